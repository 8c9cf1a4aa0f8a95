#include "server/requests/keyed_request.h"

#include <cassert>

namespace osprey::server {
namespace {

// REQUIRES: the frame was checked.
template <typename Body>
inline void Fill(rdma::FrameBytes frame, KeyedRequest& request) {
  const Body body = rdma::BodyOf<Body>(frame);
  const rdma::FrameBytes rest = rdma::AfterBody<Body>(frame);
  request.key = rdma::KeyOf(rest, body.key_length);
  request.value = rdma::AfterKey(rest, body.key_length);
  if constexpr (requires { body.condition; })
    request.condition = ConditionOf(body.condition, body.condition_version);
  if constexpr (requires { body.ttl_ns; }) request.ttl_ns = body.ttl_ns;
  if constexpr (requires { body.by; }) request.by = body.by;
  if constexpr (requires { body.want_value; }) request.wants_value = body.want_value == 1;
  if constexpr (requires { body.rendezvous; }) request.rendezvous = body.rendezvous == 1;
}

}  // namespace

absl::Status ParseKeyed(const rdma::FrameHeader& header, rdma::FrameBytes frame,
                        KeyedRequest& request) {
  const auto opcode = static_cast<rdma::Opcode>(header.opcode);
  if (absl::Status status = rdma::CheckKeyed(opcode, frame); !status.ok()) return status;
  request.frame = frame;
  request.sequence = header.sequence;
  request.opcode = opcode;
  request.rendezvous = false;
  switch (opcode) {
    case rdma::Opcode::kPut:
      Fill<rdma::PutBody>(frame, request);
      break;
    case rdma::Opcode::kDelete:
      Fill<rdma::DeleteBody>(frame, request);
      break;
    case rdma::Opcode::kIncrement:
      Fill<rdma::IncrementBody>(frame, request);
      break;
    case rdma::Opcode::kAppend:
      Fill<rdma::AppendBody>(frame, request);
      break;
    case rdma::Opcode::kGet:
      Fill<rdma::GetBody>(frame, request);
      break;
    case rdma::Opcode::kExpire:
      Fill<rdma::ExpireBody>(frame, request);
      break;
    default:
      assert(opcode == rdma::Opcode::kTouch);
      Fill<rdma::TouchBody>(frame, request);
  }
  return absl::OkStatus();
}

}  // namespace osprey::server
