// The errors of osprey.h: those of rdma/reasons.h, by the same numbers, and those of C alone.

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

// The errors of the C API alone; rdma/reasons.h has the others.
constexpr Description kOfC[] = {
    {OSPREY_ERROR_NULL_ARGUMENT, "OSPREY_ERROR_NULL_ARGUMENT",
     "an argument is NULL that must not be"},
    {OSPREY_ERROR_IN_CALLBACK, "OSPREY_ERROR_IN_CALLBACK",
     "callbacks may start operations, not wait for them, nor close the client"},
    {OSPREY_ERROR_BAD_ADDRESS, "OSPREY_ERROR_BAD_ADDRESS",
     "an address is rdma://HOST[:PORT] or shm://PATH"},
    {OSPREY_ERROR_OUT_OF_MEMORY, "OSPREY_ERROR_OUT_OF_MEMORY",
     "this process has no memory left; close the client"},
    {OSPREY_ERROR_OTHER, "OSPREY_ERROR_OTHER", "another error; the message says which"},
};

Description Describe(int error) {
  for (const Description& description : kOfC) {
    if (description.error == error) return description;
  }
  for (const osprey::ReasonRow& row : osprey::ReasonRows()) {
    if (static_cast<int>(row.reason) == error) return {error, row.c_name, row.text};
  }
  return Describe(OSPREY_ERROR_OTHER);
}

}  // namespace

const char* osprey_error_text(int error) { return Describe(error).text; }
const char* osprey_error_name(int error) { return Describe(error).name; }

namespace osprey::capi {

namespace {

// The code as a decimal number.
constexpr absl::string_view kCodePayload = "osprey/capi.Code";

}  // namespace

absl::Status Error(int code, absl::string_view message) {
  absl::Status status(absl::StatusCode::kInvalidArgument, message);
  status.SetPayload(kCodePayload, absl::Cord(absl::AlphaNum(code).Piece()));
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
