// Why an operation failed, for programs: a status has a code, which says what kind of failure it
// is, and a Reason, which says which one. The message is for people, and names the bound and the
// mend. client/README.md has the table.
//
//   switch (osprey::ReasonOf(status)) {
//     case osprey::Reason::kServerFull: …
//
// Thread rule: thread-safe.

#ifndef OSPREY_CLIENT_REASONS_H_
#define OSPREY_CLIENT_REASONS_H_

#include "absl/status/status.h"

namespace osprey {

enum class Reason {
  kNone,  // OK, or a status that this library did not make
  // INVALID_ARGUMENT: never sent.
  kEmptyKey,
  kKeyTooLong,
  kValueTooLong,
  kAppendTooLong,
  kBadCondition,  // conditions that exclude each other, or that this operation does not have
  kBadTtl,        // out of range, or of an operation that has none
  kBadDeadline,
  kBadOption,
  kBadBuffer,  // no bytes of a Buffer of this Client
  kBadCursor,  // not the cursor of a scan
  // The condition did not hold, or the value is not what it must be.
  kAbsent,          // NOT_FOUND
  kPresent,         // ALREADY_EXISTS
  kWrongVersion,    // FAILED_PRECONDITION
  kNotANumber,      // FAILED_PRECONDITION: increment
  kOverflow,        // OUT_OF_RANGE: increment
  kStaleCursor,     // FAILED_PRECONDITION: the scan began in an earlier life of the server
  kBufferTooSmall,  // OUT_OF_RANGE: GetInto. BytesNeeded (client/buffer.h) says how long it is
  // RESOURCE_EXHAUSTED.
  kTooManyOperations,  // here: Options::operations_max
  kBuffersUsedUp,      // here: Options::buffer_bytes_max
  kLanesTaken,         // here: PoolOptions::lanes_max
  kServerFull,
  kVersionsUsedUp,  // of the server: only a restart helps
  // Time and connections.
  kDeadline,      // DEADLINE_EXCEEDED
  kNoConnection,  // UNAVAILABLE
  kServerGone,    // UNKNOWN: the server that had the write is gone
  kForgotten,     // UNKNOWN: the server no longer remembers how the write ended
  kValueChanged,  // DATA_LOSS: the value changed while the server fetched it
  kClosed,        // CANCELLED: the Client was closed
  kBadServer,     // INTERNAL: an answer that makes no sense
  // Client::Connect.
  kNoDevice,        // FAILED_PRECONDITION: this machine has no RDMA device
  kNotRdmaAddress,  // INVALID_ARGUMENT: an address that belongs to no RDMA device
  kMemlockTooLow,   // RESOURCE_EXHAUSTED: RLIMIT_MEMLOCK
  kNoListener,      // UNAVAILABLE: nobody listens there
  kRefused,         // RESOURCE_EXHAUSTED: the server has as many connections as it takes, in all or
                    // from us
  kShuttingDown,    // UNAVAILABLE: the server is about to end
  kUnreachable,     // UNAVAILABLE: no route, or no answer from the host
  kVersionMismatch,  // FAILED_PRECONDITION: the server speaks another protocol version
  kNotOsprey,        // INVALID_ARGUMENT: something else listens there
  kConnectTimeout,   // DEADLINE_EXCEEDED
  kPeerGone,         // UNAVAILABLE: the server died or fell silent
  kBadAuthKey,       // the key or its file is none: INVALID_ARGUMENT, NOT_FOUND, PERMISSION_DENIED
  kAuthenticationFailed,    // UNAUTHENTICATED: the server's key is another one
  kAuthenticationRequired,  // UNAUTHENTICATED: the server wants a key, and we have none
  kServerUnproven,          // UNAUTHENTICATED: we have a key, and the server does not prove that it
                            // has the same
};

Reason ReasonOf(const absl::Status& status);

// Of a write that failed: whether it may have been applied, or may still be, once. False: it was
// not applied and never will be. The message says the same.
bool MayBeApplied(const absl::Status& status);

}  // namespace osprey

#endif  // OSPREY_CLIENT_REASONS_H_
