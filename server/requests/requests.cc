#include "server/requests/requests.h"

#include <algorithm>
#include <cassert>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/types/optional.h"
#include "server/requests/request_values.h"

namespace osprey::server {
namespace {

Reason ReasonOf(const absl::Status& refusal) {
  switch (refusal.code()) {
    case absl::StatusCode::kFailedPrecondition:
      return Reason::kWrongVersion;
    case absl::StatusCode::kResourceExhausted:
      if (index::IsVersionsUsedUp(refusal)) return Reason::kVersionsUsedUp;
      return index::IsChainFull(refusal) ? Reason::kChainFull : Reason::kServerFull;
    default:
      return Reason::kNone;
  }
}

absl::string_view ShortText(const Result& result) {
  if (result.reason != Reason::kNone) return TextOf(result.reason);
  switch (result.code) {
    case absl::StatusCode::kOk:
      return "";
    case absl::StatusCode::kNotFound:
      return TextOf(Reason::kAbsent);
    case absl::StatusCode::kAlreadyExists:
      return TextOf(Reason::kPresent);
    default:
      return "refused";
  }
}

}  // namespace

bool ExpiredMeanwhile(const Answer& answer, const index::Condition& condition) {
  return answer.code() == absl::StatusCode::kNotFound &&
         condition.kind == index::Condition::Kind::kNone;
}

Answer AnswerOf(absl::StatusCode code, absl::string_view text, Reason reason) {
  Answer answer;
  answer.body.status = static_cast<uint32_t>(code);
  answer.body.reason = WireNumberOf(reason);
  answer.text = std::string(text);
  return answer;
}

Answer AnswerOf(const absl::Status& refusal) {
  return AnswerOf(refusal.code(), refusal.message(), ReasonOf(refusal));
}

Answer AnswerOfLog(const absl::Status& refusal) {
  const Reason reason =
      absl::IsResourceExhausted(refusal) ? Reason::kDiskFull : osprey::ReasonOf(refusal);
  return AnswerOf(refusal.code(), refusal.message(), reason);
}

Answer AnswerOfNumber(int64_t number, uint64_t version) {
  Answer answer = AnswerOf(absl::StatusCode::kOk, absl::StrCat(number));
  answer.has_number = true;
  answer.number = number;
  answer.body.version = version;
  answer.body.value_length = answer.text.size();
  return answer;
}

Answer AnswerOf(const Result& result) {
  Answer answer = result.has_number ? AnswerOfNumber(result.number, result.version)
                                    : AnswerOf(result.code, ShortText(result), result.reason);
  answer.body.version = result.version;
  answer.body.slot = result.slot;
  answer.body.value_length = result.value_length;
  answer.body.expiry = result.expiry;
  return answer;
}

index::Lifetime LifetimeOf(uint64_t ttl_ns) {
  if (ttl_ns == 0) return index::Lifetime::Forever();
  // 292 years are as good as any more.
  return index::Lifetime::For(absl::Nanoseconds(std::min<uint64_t>(ttl_ns, INT64_MAX)));
}

Answer ValueTooLong(uint64_t value_length, uint64_t value_bytes_max) {
  return AnswerOf(
      absl::StatusCode::kInvalidArgument,
      absl::StrCat("a value of ", value_length, " bytes is longer than this server takes (",
                   value_bytes_max, "; kvserver --value-max raises it)"),
      Reason::kValueTooLong);
}

namespace {

Answer Expire(index::Table& table, const KeyedRequest& request, absl::Time now) {
  const index::WriteResult result =
      table.Expire(request.key, request.condition, LifetimeOf(request.ttl_ns), now);
  Answer answer = AnswerOf(result);
  answer.body.expiry = result.expiry_ns;
  return answer;
}

Answer IncrementOnce(index::Table& table, const KeyedRequest& request, absl::Time now) {
  const absl::StatusOr<index::Table::View> present = table.Find(request.key);
  if (absl::optional<Answer> refusal = RefuseFrom(present, request.condition))
    return *std::move(refusal);
  Sum64 sum = SumOf(present, request);
  if (sum.refusal.has_value()) return *std::move(sum.refusal);
  const std::string text = absl::StrCat(sum.number);
  const index::WriteResult result = table.Put(request.key, AsFrameBytes(text), ConditionOn(present),
                                              now, index::Lifetime::Kept());
  if (!result.status.ok()) return AnswerOf(result);
  Answer answer = AnswerOfNumber(sum.number, result.version);
  answer.body.slot = result.slot;
  return answer;
}

Answer AppendOnce(index::Table& table, const KeyedRequest& request, uint64_t value_bytes_max,
                  absl::Time now) {
  const absl::StatusOr<index::Table::View> present = table.Find(request.key);
  if (absl::optional<Answer> refusal = RefuseFrom(present, request.condition))
    return *std::move(refusal);
  const uint64_t length = (present.ok() ? present->value.size() : 0) + request.value.size();
  if (length > value_bytes_max) return ValueTooLong(length, value_bytes_max);
  if (length > kAppendAtOnceBytesMax) {
    Answer later;
    later.is_for_later = true;
    return later;
  }
  const std::string value = Appended(present, request);
  Answer answer = AnswerOf(table.Put(request.key, AsFrameBytes(value), ConditionOn(present), now,
                                     index::Lifetime::Kept()));
  if (answer.code() == absl::StatusCode::kOk) answer.body.value_length = length;
  return answer;
}

Answer Increment(index::Table& table, const KeyedRequest& request, absl::Time now) {
  Answer answer = IncrementOnce(table, request, now);
  if (!ExpiredMeanwhile(answer, request.condition)) return answer;
  return IncrementOnce(table, request, now);
}

Answer Get(index::Table& table, const KeyedRequest& request, size_t reply_bytes_max,
           absl::Time now) {
  const absl::StatusOr<index::Table::View> view = table.Find(request.key);
  if (!view.ok()) return AnswerOf(view.status());
  if (table.evicts()) table.Touch(request.key);
  Answer answer;
  answer.body.version = view->version;
  answer.body.slot = view->slot;
  answer.body.expiry = view->expiry_ns;
  answer.body.value_length = view->value.size();
  if (!request.wants_value) return answer;
  if (view->value.size() <= reply_bytes_max) {
    answer.value = view->value;
    return answer;
  }
  const absl::Duration lease = LeaseOf(view->value.size());
  table.Lease(view->slot, LeaseEnd(lease, now));
  answer.body.lease_ms = static_cast<uint32_t>(absl::ToInt64Milliseconds(lease));
  return answer;
}

Answer Touch(index::Table& table, const KeyedRequest& request) {
  const absl::StatusOr<index::Table::View> view = table.Find(request.key);
  if (!view.ok()) return AnswerOf(view.status());
  table.Touch(request.key);
  Answer answer;
  answer.body.version = view->version;
  answer.body.expiry = view->expiry_ns;
  return answer;
}

}  // namespace

Answer ExecuteAppend(index::Table& table, const KeyedRequest& request, uint64_t value_bytes_max,
                     absl::Time now) {
  Answer answer = AppendOnce(table, request, value_bytes_max, now);
  if (!ExpiredMeanwhile(answer, request.condition)) return answer;
  return AppendOnce(table, request, value_bytes_max, now);
}

Answer ExecuteKeyed(index::Table& table, const KeyedRequest& request, const ValueLimits& limits,
                    absl::Time now) {
  switch (request.opcode) {
    case rdma::Opcode::kPut:
      if (request.value.size() > limits.value_bytes_max)
        return ValueTooLong(request.value.size(), limits.value_bytes_max);
      return AnswerOf(ExecutePut(table, request, now));
    case rdma::Opcode::kDelete:
      return AnswerOf(table.Delete(request.key, request.condition, now));
    case rdma::Opcode::kIncrement:
      return Increment(table, request, now);
    case rdma::Opcode::kAppend:
      return ExecuteAppend(table, request, limits.value_bytes_max, now);
    case rdma::Opcode::kGet:
      return Get(table, request, limits.reply_bytes_max, now);
    case rdma::Opcode::kExpire:
      return Expire(table, request, now);
    case rdma::Opcode::kTouch:
      return Touch(table, request);
    default:
      assert(false && "IsKeyed");
      return {};
  }
}

bool RoomAwaited::IsWorthIt(const absl::Status& refusal, const index::Table& table,
                            absl::string_view key, uint64_t value_length, absl::Time now) {
  if (!absl::IsResourceExhausted(refusal) || index::IsVersionsUsedUp(refusal) ||
      index::IsChainFull(refusal))
    return false;
  since_ = std::min(since_, now);
  const bool evicting = std::exchange(evictions_, table.evictions()) != table.evictions();
  retry_at_ = evicting ? now : now + kRoomRetry();
  const absl::Duration most = table.evicts() ? kRoomAwaitedMax() : kRoomAwaitedToMoveMax();
  return now < since_ + most && table.MayMakeRoom(key, value_length);
}

absl::Duration LeaseOf(uint64_t value_length) {
  return kGetLease() + absl::Seconds(1) * (static_cast<double>(value_length) /
                                           static_cast<double>(kGetLeaseBytesPerSecond));
}

absl::Time LeaseEnd(absl::Duration lease, absl::Time now) {
  return absl::UnixEpoch() + absl::Ceil(now + lease - absl::UnixEpoch(), kGetLeaseStep());
}

}  // namespace osprey::server
