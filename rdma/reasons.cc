#include "rdma/reasons.h"

#include <algorithm>
#include <iterator>
#include <string>

#include "absl/strings/cord.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/types/optional.h"

namespace osprey {
namespace {

using Code = absl::StatusCode;

// The name of the payload that carries the Reason, as a decimal number.
constexpr absl::string_view kReasonPayload = "osprey/Reason";

constexpr ReasonRow kRows[] = {
    {Reason::kNone, Code::kOk, 0, "OSPREY_OK", "done"},
    {Reason::kEmptyKey, Code::kInvalidArgument, 0, "OSPREY_ERROR_EMPTY_KEY",
     "the key is empty; keys have 1 to 4096 bytes"},
    {Reason::kKeyTooLong, Code::kInvalidArgument, 0, "OSPREY_ERROR_KEY_TOO_LONG",
     "the key is too long; keys have 1 to 4096 bytes: store under a hash of it"},
    {Reason::kValueTooLong, Code::kInvalidArgument, 1, "OSPREY_ERROR_VALUE_TOO_LONG",
     "the value is longer than the server takes (kvserver --value-max)"},
    {Reason::kAppendTooLong, Code::kInvalidArgument, 0, "OSPREY_ERROR_APPEND_TOO_LONG",
     "key and what is appended do not fit one message; append in parts"},
    {Reason::kBadCondition, Code::kInvalidArgument, 0, "OSPREY_ERROR_BAD_CONDITION",
     "conditions that exclude each other, or that this operation does not have"},
    {Reason::kBadDeadline, Code::kInvalidArgument, 0, "OSPREY_ERROR_BAD_DEADLINE",
     "the deadline must be positive and at most 60 s"},
    {Reason::kBadOption, Code::kInvalidArgument, 0, "OSPREY_ERROR_BAD_OPTION",
     "an option is out of its range"},
    {Reason::kBadBuffer, Code::kInvalidArgument, 0, "OSPREY_ERROR_BAD_BUFFER",
     "no bytes of a buffer of this client"},
    {Reason::kBadCursor, Code::kInvalidArgument, 0, "OSPREY_ERROR_BAD_CURSOR",
     "not the cursor of a scan's page; an empty one begins a scan"},
    {Reason::kBadAuthKey, Code::kInvalidArgument, 0, "OSPREY_ERROR_BAD_AUTH_KEY",
     "a key has 32 to 4096 bytes; its file must be readable by its owner alone (chmod 600)"},
    {Reason::kBadTtl, Code::kInvalidArgument, 0, "OSPREY_ERROR_BAD_TTL",
     "the time to live must be above zero and at most 100 years, and of an operation that has one"},
    {Reason::kAbsent, Code::kNotFound, 0, "OSPREY_ERROR_ABSENT", "no such key"},
    {Reason::kPresent, Code::kAlreadyExists, 0, "OSPREY_ERROR_PRESENT", "the key is there already"},
    {Reason::kWrongVersion, Code::kFailedPrecondition, 2, "OSPREY_ERROR_WRONG_VERSION",
     "the key has another version; get it, and try again"},
    {Reason::kNotANumber, Code::kFailedPrecondition, 3, "OSPREY_ERROR_NOT_A_NUMBER",
     "the value is no decimal number of 64 bits; put one"},
    {Reason::kOverflow, Code::kOutOfRange, 4, "OSPREY_ERROR_OVERFLOW",
     "the sum does not fit into 64 bits"},
    {Reason::kStaleCursor, Code::kFailedPrecondition, 0, "OSPREY_ERROR_STALE_CURSOR",
     "the server was started again since the scan began; start the scan again"},
    {Reason::kBufferTooSmall, Code::kOutOfRange, 0, "OSPREY_ERROR_BUFFER_TOO_SMALL",
     "the value does not fit the buffer; osprey_result_length says how long it is"},
    {Reason::kValueChanged, Code::kDataLoss, 8, "OSPREY_ERROR_VALUE_CHANGED",
     "the value's bytes were changed before the operation had ended; nothing was written"},
    {Reason::kTooManyOperations, Code::kResourceExhausted, 0, "OSPREY_ERROR_TOO_MANY_OPERATIONS",
     "too many operations in flight, or ended and not taken; poll, wait or take"},
    {Reason::kBuffersUsedUp, Code::kResourceExhausted, 0, "OSPREY_ERROR_BUFFERS_USED_UP",
     "the client's registered memory is in use; wait, or osprey_options_set_buffer_bytes_max"},
    {Reason::kLanesTaken, Code::kResourceExhausted, 0, "OSPREY_ERROR_LANES_TAKEN",
     "all lanes of the pool are taken"},
    {Reason::kServerFull, Code::kResourceExhausted, 5, "OSPREY_ERROR_SERVER_FULL",
     "the server's memory is full; delete something, or raise kvserver --memory"},
    {Reason::kVersionsUsedUp, Code::kResourceExhausted, 9, "OSPREY_ERROR_VERSIONS_USED_UP",
     "the server has used up its versions; restart it to write again"},
    {Reason::kChainFull, Code::kResourceExhausted, 12, "OSPREY_ERROR_CHAIN_FULL",
     "too many keys share this key's line of the index; use another key"},
    {Reason::kDiskFull, Code::kResourceExhausted, 13, "OSPREY_ERROR_DISK_FULL",
     "the server's disk has no space for its log; free some there"},
    {Reason::kDeadline, Code::kDeadlineExceeded, 0, "OSPREY_ERROR_DEADLINE",
     "no answer by the deadline"},
    {Reason::kNoConnection, Code::kUnavailable, 0, "OSPREY_ERROR_NO_CONNECTION",
     "no connection to the server by the deadline"},
    {Reason::kServerGone, Code::kUnknown, 0, "OSPREY_ERROR_SERVER_GONE",
     "the server that had the write is gone; get, and decide"},
    {Reason::kForgotten, Code::kUnknown, 6, "OSPREY_ERROR_FORGOTTEN",
     "the server does not remember any more how the write ended; get, and decide"},
    {Reason::kClosed, Code::kCancelled, 0, "OSPREY_ERROR_CLOSED", "the client was closed first"},
    {Reason::kBadServer, Code::kInternal, 0, "OSPREY_ERROR_BAD_SERVER",
     "the server's answer is invalid"},
    {Reason::kTooFewReplicas, Code::kUnavailable, 14, "OSPREY_ERROR_TOO_FEW_REPLICAS",
     "too few servers of the cluster have a copy of the data; start the others"},
    {Reason::kNoDevice, Code::kFailedPrecondition, 0, "OSPREY_ERROR_NO_DEVICE",
     "this machine has no RDMA device"},
    {Reason::kNotRdmaAddress, Code::kInvalidArgument, 0, "OSPREY_ERROR_NOT_RDMA_ADDRESS",
     "the address belongs to no RDMA device"},
    {Reason::kMemlockTooLow, Code::kResourceExhausted, 0, "OSPREY_ERROR_MEMLOCK_TOO_LOW",
     "the limit of locked memory is too low; raise it (ulimit -l)"},
    {Reason::kNoListener, Code::kUnavailable, 0, "OSPREY_ERROR_NO_LISTENER",
     "no server listens there"},
    {Reason::kRefused, Code::kResourceExhausted, 0, "OSPREY_ERROR_REFUSED",
     "the server accepts no more connections (kvserver --connections-max)"},
    {Reason::kShuttingDown, Code::kUnavailable, 7, "OSPREY_ERROR_SHUTTING_DOWN",
     "the server is about to end"},
    {Reason::kUnreachable, Code::kUnavailable, 0, "OSPREY_ERROR_UNREACHABLE",
     "no route to the host, or no answer from it"},
    {Reason::kVersionMismatch, Code::kFailedPrecondition, 0, "OSPREY_ERROR_VERSION_MISMATCH",
     "client and server speak different versions of the protocol"},
    {Reason::kNotOsprey, Code::kInvalidArgument, 0, "OSPREY_ERROR_NOT_OSPREY",
     "the listener is not an Osprey server"},
    {Reason::kConnectTimeout, Code::kDeadlineExceeded, 0, "OSPREY_ERROR_CONNECT_TIMEOUT",
     "no connection in time"},
    {Reason::kPeerGone, Code::kUnavailable, 0, "OSPREY_ERROR_PEER_GONE",
     "the server died or fell silent"},
    {Reason::kAuthenticationFailed, Code::kUnauthenticated, 10,
     "OSPREY_ERROR_AUTHENTICATION_FAILED", "the server's key is another one; give both the same"},
    {Reason::kAuthenticationRequired, Code::kUnauthenticated, 11,
     "OSPREY_ERROR_AUTHENTICATION_REQUIRED",
     "the server requires a key; give its key file (osprey_options_set_auth_key_file)"},
    {Reason::kServerUnproven, Code::kUnauthenticated, 0, "OSPREY_ERROR_SERVER_UNPROVEN",
     "the server does not prove that it has this client's key"},
    {Reason::kNotServing, Code::kUnavailable, 0, "OSPREY_ERROR_NOT_SERVING",
     "the server is in a cluster and does not serve now (it is not its shard's primary, or cannot "
     "reach the cluster's store)"},
    {Reason::kWrongShard, Code::kInvalidArgument, 15, "OSPREY_ERROR_WRONG_SHARD",
     "the server has another shard of its cluster than the client expects; connect to the "
     "addresses "
     "of shard 0"},
    {Reason::kForked, Code::kFailedPrecondition, 0, "OSPREY_ERROR_FORKED",
     "the process is a fork of one that uses RDMA; start it by exec, or by Python's spawn"},
};

constexpr bool NumbersRise() {
  for (size_t row = 1; row < std::size(kRows); ++row) {
    if (kRows[row - 1].reason >= kRows[row].reason) return false;
  }
  return true;
}
static_assert(NumbersRise());

constexpr bool EachWireNumberHasOneRow() {
  for (uint32_t number = 1; number <= kWireReasonMax; ++number) {
    int rows = 0;
    for (const ReasonRow& row : kRows) rows += row.wire == number;
    if (rows != 1) return false;
  }
  for (const ReasonRow& row : kRows) {
    if (row.wire > kWireReasonMax) return false;
  }
  return true;
}
static_assert(EachWireNumberHasOneRow());

const ReasonRow* RowOf(Reason reason) {
  const auto* const row =
      std::lower_bound(std::begin(kRows), std::end(kRows), reason,
                       [](const ReasonRow& one, Reason wanted) { return one.reason < wanted; });
  return row != std::end(kRows) && row->reason == reason ? row : &kRows[0];
}

}  // namespace

Reason ReasonOf(const absl::Status& status) {
  const absl::optional<absl::Cord> payload = status.GetPayload(kReasonPayload);
  int number = 0;
  if (payload.has_value() && absl::SimpleAtoi(std::string(*payload), &number))
    return RowOf(static_cast<Reason>(number))->reason;
  if (absl::IsNotFound(status)) return Reason::kAbsent;
  if (absl::IsAlreadyExists(status)) return Reason::kPresent;
  return Reason::kNone;
}

absl::Status MakeError(Reason reason, absl::string_view message) {
  return MakeError(RowOf(reason)->code, reason, message);
}

absl::Status MakeError(absl::StatusCode code, Reason reason, absl::string_view message) {
  absl::Status status(code, message);
  // Of a string_view: clang 18 and gcc name Cord's template for strings differently.
  status.SetPayload(kReasonPayload, absl::Cord(absl::AlphaNum(static_cast<int>(reason)).Piece()));
  return status;
}

absl::Span<const ReasonRow> ReasonRows() { return kRows; }

namespace reasons_internal {

uint32_t WireNumberOf(Reason reason) { return RowOf(reason)->wire; }

Reason ReasonOfWire(uint32_t number) {
  for (const ReasonRow& row : kRows) {
    if (row.wire == number) return row.reason;
  }
  return Reason::kNone;
}

}  // namespace reasons_internal

absl::string_view TextOf(Reason reason) { return RowOf(reason)->text; }

}  // namespace osprey
