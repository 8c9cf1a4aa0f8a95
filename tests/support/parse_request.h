// Requests on a key, checked as the server checks them.

#ifndef OSPREY_TESTS_SUPPORT_PARSE_REQUEST_H_
#define OSPREY_TESTS_SUPPORT_PARSE_REQUEST_H_

#include <cassert>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "rdma/wire/checks.h"
#include "rdma/wire/protocol.h"

namespace osprey::rdma {

// REQUIRES: CheckHeader(frame) was OK, and the opcode is that of Body. Errors: INVALID_ARGUMENT.
template <typename Body>
absl::StatusOr<RequestParts<Body>> ParseRequest(FrameBytes frame) {
  const absl::Status error = ErrorOfKeyed(static_cast<Opcode>(HeaderOf(frame).opcode), frame);
  const bool is_correct = CheckRequest<IsCorrect, Body>(frame);
  assert(error.ok() == is_correct);  // the two forms of the check
  if (!is_correct) return error;
  return PartsOf<Body>(frame);
}

}  // namespace osprey::rdma

#endif  // OSPREY_TESTS_SUPPORT_PARSE_REQUEST_H_
