#include "server/requests/keyed_request.h"

#include <cassert>

#include "absl/status/statusor.h"

namespace osprey::server {
namespace {

// `fill` takes what only this kind of request has.
template <typename Parsed, typename Fill>
absl::Status Take(const absl::StatusOr<Parsed>& parsed, KeyedRequest& request, Fill&& fill) {
  if (!parsed.ok()) return parsed.status();
  request.key = parsed->key;
  if constexpr (requires { parsed->body.condition; })
    request.condition = ConditionOf(parsed->body.condition, parsed->body.condition_version);
  if constexpr (requires { parsed->value; }) request.value = parsed->value;
  if constexpr (requires { parsed->body.ttl_ns; }) request.ttl_ns = parsed->body.ttl_ns;
  fill(*parsed);
  return absl::OkStatus();
}

}  // namespace

index::Condition ConditionOf(uint8_t wire_condition, uint64_t version) {
  switch (static_cast<rdma::WireCondition>(wire_condition)) {
    case rdma::WireCondition::kNone:
      return {index::Condition::Kind::kNone, 0};
    case rdma::WireCondition::kAbsent:
      return {index::Condition::Kind::kAbsent, 0};
    case rdma::WireCondition::kVersionIs:
      return {index::Condition::Kind::kVersionIs, version};
  }
  return {};
}

absl::Status ParseKeyed(const rdma::FrameHeader& header, rdma::FrameBytes frame,
                        KeyedRequest& request) {
  const auto nothing_more = [](const auto&) {};
  request.frame = frame;
  request.sequence = header.sequence;
  request.opcode = static_cast<rdma::Opcode>(header.opcode);
  request.rendezvous = false;
  switch (request.opcode) {
    case rdma::Opcode::kPut:
      return Take(rdma::ParsePut(frame), request, [&](const rdma::PutRequest& put) {
        request.rendezvous = put.body.rendezvous == 1;
      });
    case rdma::Opcode::kDelete:
      return Take(rdma::ParseDelete(frame), request, nothing_more);
    case rdma::Opcode::kIncrement:
      return Take(rdma::ParseIncrement(frame), request,
                  [&](const rdma::IncrementRequest& increment) { request.by = increment.body.by; });
    case rdma::Opcode::kAppend:
      return Take(rdma::ParseAppend(frame), request, nothing_more);
    case rdma::Opcode::kGet:
      return Take(rdma::ParseGet(frame), request, [&](const rdma::GetRequest& get) {
        request.wants_value = get.body.want_value == 1;
      });
    case rdma::Opcode::kExpire:
      return Take(rdma::ParseExpire(frame), request, nothing_more);
    case rdma::Opcode::kTouch:
      return Take(rdma::ParseTouch(frame), request, nothing_more);
    default:
      assert(false && "IsKeyed");
      return absl::OkStatus();
  }
}

}  // namespace osprey::server
