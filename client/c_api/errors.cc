// The errors of osprey.h: numbers, names and texts. The number of a Reason (reasons.h) is the same.

#include <string>

#include "absl/strings/cord.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/types/optional.h"
#include "client/c_api/result.h"
#include "client/reasons.h"

namespace {

struct Description {
  int error;
  const char* name;
  const char* text;
};

// In the order of osprey.h.
constexpr Description kDescriptions[] = {
    {OSPREY_OK, "OSPREY_OK", "done"},
    {OSPREY_ERROR_EMPTY_KEY, "OSPREY_ERROR_EMPTY_KEY",
     "the key is empty; keys have 1 to 4096 bytes"},
    {OSPREY_ERROR_KEY_TOO_LONG, "OSPREY_ERROR_KEY_TOO_LONG",
     "the key is too long; keys have 1 to 4096 bytes: store under a hash of it"},
    {OSPREY_ERROR_VALUE_TOO_LONG, "OSPREY_ERROR_VALUE_TOO_LONG",
     "the value is longer than the server takes (kvserver --value-max)"},
    {OSPREY_ERROR_APPEND_TOO_LONG, "OSPREY_ERROR_APPEND_TOO_LONG",
     "key and what is appended do not fit one message; append in parts"},
    {OSPREY_ERROR_BAD_CONDITION, "OSPREY_ERROR_BAD_CONDITION",
     "conditions that exclude each other, or that this operation does not have"},
    {OSPREY_ERROR_BAD_DEADLINE, "OSPREY_ERROR_BAD_DEADLINE",
     "the deadline must be positive and at most 60 s"},
    {OSPREY_ERROR_BAD_OPTION, "OSPREY_ERROR_BAD_OPTION", "an option is out of its range"},
    {OSPREY_ERROR_BAD_BUFFER, "OSPREY_ERROR_BAD_BUFFER", "no bytes of a buffer of this client"},
    {OSPREY_ERROR_BAD_CURSOR, "OSPREY_ERROR_BAD_CURSOR",
     "not the cursor of a scan's page; an empty one begins a scan"},
    {OSPREY_ERROR_NULL_ARGUMENT, "OSPREY_ERROR_NULL_ARGUMENT",
     "an argument is NULL that must not be"},
    {OSPREY_ERROR_IN_CALLBACK, "OSPREY_ERROR_IN_CALLBACK",
     "callbacks may start operations, not wait for them, nor close the client"},
    {OSPREY_ERROR_BAD_ADDRESS, "OSPREY_ERROR_BAD_ADDRESS",
     "an address is rdma://HOST[:PORT] or shm://PATH"},
    {OSPREY_ERROR_BAD_AUTH_KEY, "OSPREY_ERROR_BAD_AUTH_KEY",
     "a key has 32 to 4096 bytes; its file must be readable by its owner alone (chmod 600)"},
    {OSPREY_ERROR_BAD_TTL, "OSPREY_ERROR_BAD_TTL",
     "the time to live must be above zero and at most 100 years, and of an operation that has one"},
    {OSPREY_ERROR_ABSENT, "OSPREY_ERROR_ABSENT", "there is no such key"},
    {OSPREY_ERROR_PRESENT, "OSPREY_ERROR_PRESENT", "the key is there already"},
    {OSPREY_ERROR_WRONG_VERSION, "OSPREY_ERROR_WRONG_VERSION",
     "the key has another version; get it, and try again"},
    {OSPREY_ERROR_NOT_A_NUMBER, "OSPREY_ERROR_NOT_A_NUMBER",
     "the value is no decimal number of 64 bits; put one"},
    {OSPREY_ERROR_OVERFLOW, "OSPREY_ERROR_OVERFLOW", "the sum would leave the range of 64 bits"},
    {OSPREY_ERROR_STALE_CURSOR, "OSPREY_ERROR_STALE_CURSOR",
     "the server was started again since the scan began; start the scan again"},
    {OSPREY_ERROR_BUFFER_TOO_SMALL, "OSPREY_ERROR_BUFFER_TOO_SMALL",
     "the value does not fit the buffer; osprey_result_length says how long it is"},
    {OSPREY_ERROR_VALUE_CHANGED, "OSPREY_ERROR_VALUE_CHANGED",
     "the value's bytes were changed before the operation had ended"},
    {OSPREY_ERROR_TOO_MANY_OPERATIONS, "OSPREY_ERROR_TOO_MANY_OPERATIONS",
     "too many operations in flight, or ended and not taken; poll, wait or take"},
    {OSPREY_ERROR_BUFFERS_USED_UP, "OSPREY_ERROR_BUFFERS_USED_UP",
     "the client's registered memory is in use; wait, or osprey_options_set_buffer_bytes_max"},
    {OSPREY_ERROR_LANES_TAKEN, "OSPREY_ERROR_LANES_TAKEN", "all lanes of the pool are taken"},
    {OSPREY_ERROR_SERVER_FULL, "OSPREY_ERROR_SERVER_FULL",
     "the server has no room; delete something, or kvserver --memory"},
    {OSPREY_ERROR_VERSIONS_USED_UP, "OSPREY_ERROR_VERSIONS_USED_UP",
     "the server has no version left to give; restart it"},
    {OSPREY_ERROR_OUT_OF_MEMORY, "OSPREY_ERROR_OUT_OF_MEMORY",
     "this process has no memory left; close the client"},
    {OSPREY_ERROR_CHAIN_FULL, "OSPREY_ERROR_CHAIN_FULL",
     "too many keys share this key's line of the server's index; use another key"},
    {OSPREY_ERROR_DISK_FULL, "OSPREY_ERROR_DISK_FULL",
     "the server has no room for its log; free disk space there"},
    {OSPREY_ERROR_DEADLINE, "OSPREY_ERROR_DEADLINE", "no answer by the deadline"},
    {OSPREY_ERROR_NO_CONNECTION, "OSPREY_ERROR_NO_CONNECTION",
     "no connection to the server by the deadline"},
    {OSPREY_ERROR_SERVER_GONE, "OSPREY_ERROR_SERVER_GONE",
     "the server that had the write is gone; get, and decide"},
    {OSPREY_ERROR_FORGOTTEN, "OSPREY_ERROR_FORGOTTEN",
     "the server does not remember any more how the write ended; get, and decide"},
    {OSPREY_ERROR_CLOSED, "OSPREY_ERROR_CLOSED", "the client was closed first"},
    {OSPREY_ERROR_BAD_SERVER, "OSPREY_ERROR_BAD_SERVER", "the server's answer makes no sense"},
    {OSPREY_ERROR_NO_DEVICE, "OSPREY_ERROR_NO_DEVICE", "this machine has no RDMA device"},
    {OSPREY_ERROR_NOT_RDMA_ADDRESS, "OSPREY_ERROR_NOT_RDMA_ADDRESS",
     "the address belongs to no RDMA device"},
    {OSPREY_ERROR_MEMLOCK_TOO_LOW, "OSPREY_ERROR_MEMLOCK_TOO_LOW",
     "the limit of locked memory is too low; raise it (ulimit -l)"},
    {OSPREY_ERROR_NO_LISTENER, "OSPREY_ERROR_NO_LISTENER", "no server listens there"},
    {OSPREY_ERROR_REFUSED, "OSPREY_ERROR_REFUSED",
     "the server has as many connections as it takes (kvserver --connections-max)"},
    {OSPREY_ERROR_SHUTTING_DOWN, "OSPREY_ERROR_SHUTTING_DOWN", "the server is about to end"},
    {OSPREY_ERROR_UNREACHABLE, "OSPREY_ERROR_UNREACHABLE",
     "no route to the host, or no answer from it"},
    {OSPREY_ERROR_VERSION_MISMATCH, "OSPREY_ERROR_VERSION_MISMATCH",
     "client and server speak different versions of the protocol"},
    {OSPREY_ERROR_NOT_OSPREY, "OSPREY_ERROR_NOT_OSPREY", "something else listens there"},
    {OSPREY_ERROR_CONNECT_TIMEOUT, "OSPREY_ERROR_CONNECT_TIMEOUT", "no connection in time"},
    {OSPREY_ERROR_PEER_GONE, "OSPREY_ERROR_PEER_GONE", "the server died or fell silent"},
    {OSPREY_ERROR_AUTHENTICATION_FAILED, "OSPREY_ERROR_AUTHENTICATION_FAILED",
     "the server's key is another one; give both the same"},
    {OSPREY_ERROR_AUTHENTICATION_REQUIRED, "OSPREY_ERROR_AUTHENTICATION_REQUIRED",
     "the server requires a key; give its key file (osprey_options_set_auth_key_file)"},
    {OSPREY_ERROR_SERVER_UNPROVEN, "OSPREY_ERROR_SERVER_UNPROVEN",
     "the server does not prove that it has this client's key"},
    {OSPREY_ERROR_OTHER, "OSPREY_ERROR_OTHER", "another error; the message says which"},
};

const Description& Describe(int error) {
  for (const Description& description : kDescriptions) {
    if (description.error == error) return description;
  }
  return Describe(OSPREY_ERROR_OTHER);
}

}  // namespace

const char* osprey_error_text(int error) { return Describe(error).text; }
const char* osprey_error_name(int error) { return Describe(error).name; }

namespace osprey::capi {

namespace {

static_assert(static_cast<int>(Reason::kEmptyKey) == OSPREY_ERROR_EMPTY_KEY &&
              static_cast<int>(Reason::kServerUnproven) == OSPREY_ERROR_SERVER_UNPROVEN);

// The code as a decimal number.
constexpr absl::string_view kCodePayload = "osprey/capi.Code";

}  // namespace

absl::Status Error(int code, absl::string_view message) {
  absl::Status status(absl::StatusCode::kInvalidArgument, message);
  status.SetPayload(kCodePayload, absl::Cord(absl::StrCat(code)));
  return status;
}

int CodeOf(const absl::Status& status) {
  if (status.ok()) return OSPREY_OK;
  const absl::optional<absl::Cord> payload = status.GetPayload(kCodePayload);
  int code = OSPREY_ERROR_OTHER;
  if (payload.has_value() && absl::SimpleAtoi(std::string(*payload), &code)) return code;
  const Reason reason = ReasonOf(status);
  return reason == Reason::kNone ? OSPREY_ERROR_OTHER : static_cast<int>(reason);
}

}  // namespace osprey::capi
