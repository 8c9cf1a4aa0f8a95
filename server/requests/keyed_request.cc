#include "server/requests/keyed_request.h"

#include <cassert>

#include "rdma/wire/checks.h"

namespace osprey::server {
namespace {

template <typename Body>
[[gnu::always_inline]] inline absl::Status Parse(rdma::FrameBytes frame, KeyedRequest& request) {
  if (!rdma::CheckRequest<rdma::IsCorrect, Body>(frame))
    return rdma::ErrorOfKeyed(request.opcode, frame);
  const rdma::RequestParts<Body> parts = rdma::PartsOf<Body>(frame);
  request.key = parts.key;
  request.value = parts.value;
  const Body& body = parts.body;
  if constexpr (requires { body.condition; })
    request.condition = ConditionOf(body.condition, body.condition_version);
  if constexpr (requires { body.ttl_ns; }) request.ttl_ns = body.ttl_ns;
  if constexpr (requires { body.by; }) request.by = body.by;
  if constexpr (requires { body.want_value; }) request.wants_value = body.want_value == 1;
  if constexpr (requires { body.rendezvous; }) request.rendezvous = body.rendezvous == 1;
  return absl::OkStatus();
}

}  // namespace

absl::Status ParseKeyed(const rdma::FrameHeader& header, rdma::FrameBytes frame,
                        KeyedRequest& request) {
  request.frame = frame;
  request.sequence = header.sequence;
  request.opcode = static_cast<rdma::Opcode>(header.opcode);
  request.rendezvous = false;
  switch (request.opcode) {
    case rdma::Opcode::kPut:
      return Parse<rdma::PutBody>(frame, request);
    case rdma::Opcode::kDelete:
      return Parse<rdma::DeleteBody>(frame, request);
    case rdma::Opcode::kIncrement:
      return Parse<rdma::IncrementBody>(frame, request);
    case rdma::Opcode::kAppend:
      return Parse<rdma::AppendBody>(frame, request);
    case rdma::Opcode::kGet:
      return Parse<rdma::GetBody>(frame, request);
    case rdma::Opcode::kExpire:
      return Parse<rdma::ExpireBody>(frame, request);
    default:
      assert(request.opcode == rdma::Opcode::kTouch);
      return Parse<rdma::TouchBody>(frame, request);
  }
}

}  // namespace osprey::server
