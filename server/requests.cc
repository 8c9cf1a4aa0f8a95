#include "server/requests.h"

#include "absl/strings/str_cat.h"

namespace osprey::server {

rdma::FrameBytes Answer::data() const {
  if (!value.empty()) return value;
  return {reinterpret_cast<const std::byte*>(text.data()), text.size()};
}

Answer AnswerOf(absl::StatusCode code, absl::string_view text) {
  Answer answer;
  answer.body.status = static_cast<uint32_t>(code);
  answer.text = std::string(text);
  return answer;
}

Answer AnswerOf(const index::WriteResult& result) {
  Answer answer = AnswerOf(result.status.code(), result.status.message());
  answer.body.version = result.version;
  answer.body.slot = result.slot;
  return answer;
}

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

absl::Status ValueTooLong(uint64_t value_length, uint64_t value_bytes_max) {
  return absl::InvalidArgumentError(
      absl::StrCat("a value of ", value_length, " bytes is longer than this server takes (",
                   value_bytes_max, "; kvserver --value-max raises it)"));
}

Answer ExecutePut(index::Table& table, const rdma::PutRequest& request, uint64_t value_bytes_max,
                  absl::Time now) {
  if (request.value.size() > value_bytes_max) {
    return AnswerOf(absl::StatusCode::kInvalidArgument,
                    ValueTooLong(request.value.size(), value_bytes_max).message());
  }
  return AnswerOf(table.Put(request.key, request.value,
                            ConditionOf(request.body.condition, request.body.condition_version),
                            now));
}

Answer ExecuteDelete(index::Table& table, const rdma::DeleteRequest& request, absl::Time now) {
  return AnswerOf(table.Delete(
      request.key, ConditionOf(request.body.condition, request.body.condition_version), now));
}

Answer ExecuteGet(index::Table& table, const rdma::GetRequest& request, size_t data_bytes_max,
                  absl::Time now) {
  const absl::StatusOr<index::Table::View> view = table.Find(request.key);
  if (!view.ok()) return AnswerOf(view.status().code(), view.status().message());
  Answer answer;
  answer.body.version = view->version;
  answer.body.slot = view->slot;
  answer.body.value_length = view->value.size();
  if (view->value.size() <= data_bytes_max) {
    answer.value = view->value;
    return answer;
  }
  table.Lease(view->slot, now + kGetLease());
  answer.body.lease_ms = static_cast<uint32_t>(absl::ToInt64Milliseconds(kGetLease()));
  return answer;
}

}  // namespace osprey::server
