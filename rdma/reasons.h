// Why an operation failed, for programs: the one list of reasons, of the client, the server, the
// transports and the protocol. A status has a code, which gives the kind of failure, and a Reason,
// which identifies it. The message is for people, and names the bound and the fix.
// client/README.md has the table.
//
//   switch (osprey::ReasonOf(status)) {
//     case osprey::Reason::kServerFull: …
//
// Two other lists are not reasons of a status: rdma::RejectReason (transport.h), the numbers by
// which a transport rejects a connection, which errors.h turns into statuses; and
// server::CloseReason, the labels of a metric.
//
// Thread rule: thread-safe.

#ifndef OSPREY_RDMA_REASONS_H_
#define OSPREY_RDMA_REASONS_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace osprey {

// The number is that of the error in C (client/osprey.h), and never changes.
enum class Reason {
  kNone = 0,  // OK, or a status that this library did not make
  // The call itself is wrong: INVALID_ARGUMENT. Nothing was sent.
  kEmptyKey = 101,
  kKeyTooLong = 102,
  kValueTooLong = 103,
  kAppendTooLong = 104,
  kBadCondition = 105,  // conditions that exclude each other, or that this operation does not take
  kBadDeadline = 106,
  kBadOption = 107,
  kBadBuffer = 108,   // the bytes are not in a Buffer of this Client
  kBadCursor = 109,   // not the cursor of a scan
  kBadAuthKey = 113,  // invalid key or key file: INVALID_ARGUMENT, NOT_FOUND, PERMISSION_DENIED
  kBadTtl = 114,      // out of range, or the operation takes none
  // The condition did not hold, or the value has the wrong form.
  kAbsent = 201,          // NOT_FOUND
  kPresent = 202,         // ALREADY_EXISTS
  kWrongVersion = 203,    // FAILED_PRECONDITION
  kNotANumber = 204,      // FAILED_PRECONDITION: increment
  kOverflow = 205,        // OUT_OF_RANGE: increment
  kStaleCursor = 206,     // FAILED_PRECONDITION: the keys are others since the scan began
  kBufferTooSmall = 207,  // OUT_OF_RANGE: GetInto. BytesNeeded (client/buffer.h) returns the length
  kValueChanged = 208,    // DATA_LOSS: the value changed while the server fetched it
  // RESOURCE_EXHAUSTED.
  kTooManyOperations = 301,  // here: Options::operations_max
  kBuffersUsedUp = 302,      // here: Options::buffer_bytes_max
  kLanesTaken = 303,         // here: PoolOptions::lanes_max
  kServerFull = 304,
  kVersionsUsedUp = 305,  // at the server: only a restart helps
  kChainFull = 307,       // at the server: too many keys share the key's line of the index
  kDiskFull = 308,        // at the server: no room for its log
  // Time and connections.
  kDeadline = 401,        // DEADLINE_EXCEEDED
  kNoConnection = 402,    // UNAVAILABLE
  kServerGone = 403,      // UNKNOWN: the server that had the write is gone
  kForgotten = 404,       // UNKNOWN: the server has forgotten the outcome of the write
  kClosed = 405,          // CANCELLED: the Client was closed
  kBadServer = 406,       // INTERNAL: an invalid answer
  kTooFewReplicas = 407,  // UNAVAILABLE: too few servers of the cluster have the data to write
  // Client::Connect.
  kNoDevice = 501,                // FAILED_PRECONDITION: this machine has no RDMA device
  kNotRdmaAddress = 502,          // INVALID_ARGUMENT: the address belongs to no RDMA device
  kMemlockTooLow = 503,           // RESOURCE_EXHAUSTED: RLIMIT_MEMLOCK
  kNoListener = 504,              // UNAVAILABLE: no server listens there
  kRefused = 505,                 // RESOURCE_EXHAUSTED: the server is at a limit of connections
  kShuttingDown = 506,            // UNAVAILABLE: the server is about to end
  kUnreachable = 507,             // UNAVAILABLE: no route, or no answer from the host
  kVersionMismatch = 508,         // FAILED_PRECONDITION: the server speaks another protocol version
  kNotOsprey = 509,               // INVALID_ARGUMENT: the listener is not an Osprey server
  kConnectTimeout = 510,          // DEADLINE_EXCEEDED
  kPeerGone = 511,                // UNAVAILABLE: the server died or fell silent
  kAuthenticationFailed = 512,    // UNAUTHENTICATED: the server has another key
  kAuthenticationRequired = 513,  // UNAUTHENTICATED: the client has no key
  kServerUnproven = 514,          // UNAUTHENTICATED: the server does not prove that it has the key
  kNotServing = 515,              // UNAVAILABLE: the server is in a cluster and does not serve now
  kWrongShard = 516,              // INVALID_ARGUMENT: the server has another shard, or other shards
  kForked = 517,                  // FAILED_PRECONDITION: the devices are open in the parent process
};

// The Reason of a status that this project made; kNone for OK and for statuses of other origin. Two
// codes are unambiguous and frequent, and need no mark: NOT_FOUND is kAbsent, ALREADY_EXISTS kPresent.
Reason ReasonOf(const absl::Status& status);

// A status with the code of `reason`, or with `code` where a reason has several.
absl::Status MakeError(Reason reason, absl::string_view message);
absl::Status MakeError(absl::StatusCode code, Reason reason, absl::string_view message);

struct ReasonRow {
  Reason reason;
  absl::StatusCode code;  // the usual one
  // Its number in RefusedBody and ReplyBody (wire/wire.h), and in the log, where the status alone is
  // ambiguous. It never changes. 0: the reason is not sent.
  uint32_t wire;
  const char* c_name;  // in client/osprey.h
  const char* text;    // without the particulars that a message adds
};

// In the order of numbers, kNone first.
absl::Span<const ReasonRow> ReasonRows();

inline constexpr uint32_t kWireReasonMax = 15;

// Most replies have no reason: the functions below compare inline before they search the table.
namespace reasons_internal {
uint32_t WireNumberOf(Reason reason);
Reason ReasonOfWire(uint32_t number);
}  // namespace reasons_internal

// 0 for a reason that is not sent.
inline uint32_t WireNumberOf(Reason reason) {
  return reason == Reason::kNone ? 0 : reasons_internal::WireNumberOf(reason);
}
// kNone for 0, and for a number that is not in the table.
inline Reason ReasonOfWire(uint32_t number) {
  return number == 0 ? Reason::kNone : reasons_internal::ReasonOfWire(number);
}
absl::string_view TextOf(Reason reason);

}  // namespace osprey

#endif  // OSPREY_RDMA_REASONS_H_
