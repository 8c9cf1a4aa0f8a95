// Why an operation failed, for programs. A status has a code, which gives the kind of failure, and
// a Reason, which identifies it. The message is for people, and names the bound and the fix.
// client/README.md has the table.
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
  kBadCondition,  // conditions that exclude each other, or that this operation does not take
  kBadTtl,        // out of range, or the operation takes none
  kBadDeadline,
  kBadOption,
  kBadBuffer,  // the bytes are not in a Buffer of this Client
  kBadCursor,  // not the cursor of a scan
  // The condition did not hold, or the value has the wrong form.
  kAbsent,          // NOT_FOUND
  kPresent,         // ALREADY_EXISTS
  kWrongVersion,    // FAILED_PRECONDITION
  kNotANumber,      // FAILED_PRECONDITION: increment
  kOverflow,        // OUT_OF_RANGE: increment
  kStaleCursor,     // FAILED_PRECONDITION: the server was restarted since the scan began
  kBufferTooSmall,  // OUT_OF_RANGE: GetInto. BytesNeeded (client/buffer.h) returns the length
  // RESOURCE_EXHAUSTED.
  kTooManyOperations,  // here: Options::operations_max
  kBuffersUsedUp,      // here: Options::buffer_bytes_max
  kLanesTaken,         // here: PoolOptions::lanes_max
  kServerFull,
  kChainFull,       // at the server: too many keys share the key's line of the index
  kVersionsUsedUp,  // at the server: only a restart helps
  // Time and connections.
  kDeadline,      // DEADLINE_EXCEEDED
  kNoConnection,  // UNAVAILABLE
  kServerGone,    // UNKNOWN: the server that had the write is gone
  kForgotten,     // UNKNOWN: the server has forgotten the outcome of the write
  kValueChanged,  // DATA_LOSS: the value changed while the server fetched it
  kClosed,        // CANCELLED: the Client was closed
  kBadServer,     // INTERNAL: an invalid answer
  // Client::Connect.
  kNoDevice,         // FAILED_PRECONDITION: this machine has no RDMA device
  kNotRdmaAddress,   // INVALID_ARGUMENT: the address belongs to no RDMA device
  kMemlockTooLow,    // RESOURCE_EXHAUSTED: RLIMIT_MEMLOCK
  kNoListener,       // UNAVAILABLE: no server listens there
  kRefused,          // RESOURCE_EXHAUSTED: the server has reached its limit of connections, in all
                     // or from this address
  kShuttingDown,     // UNAVAILABLE: the server is about to end
  kUnreachable,      // UNAVAILABLE: no route, or no answer from the host
  kVersionMismatch,  // FAILED_PRECONDITION: the server speaks another protocol version
  kNotOsprey,        // INVALID_ARGUMENT: the listener is not an Osprey server
  kConnectTimeout,   // DEADLINE_EXCEEDED
  kPeerGone,         // UNAVAILABLE: the server died or fell silent
  kBadAuthKey,       // invalid key or key file: INVALID_ARGUMENT, NOT_FOUND, PERMISSION_DENIED
  kAuthenticationFailed,    // UNAUTHENTICATED: the server has another key
  kAuthenticationRequired,  // UNAUTHENTICATED: the server requires a key, and the client has none
  kServerUnproven,          // UNAUTHENTICATED: the client has a key, and the server does not prove
                            // that it has the same
};

Reason ReasonOf(const absl::Status& status);

// Whether a failed write may have been applied, or may still be, once. False: it was not applied
// and never will be. The message says the same.
bool MayBeApplied(const absl::Status& status);

}  // namespace osprey

#endif  // OSPREY_CLIENT_REASONS_H_
