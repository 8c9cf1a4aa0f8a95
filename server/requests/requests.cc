#include "server/requests/requests.h"

#include <algorithm>
#include <cassert>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/types/optional.h"
#include "server/requests/decimal_int.h"

namespace osprey::server {
namespace {

using rdma::WireReason;

absl::string_view TextOf(rdma::FrameBytes bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

WireReason ReasonOf(const absl::Status& refusal) {
  switch (refusal.code()) {
    case absl::StatusCode::kFailedPrecondition:
      return WireReason::kWrongVersion;
    case absl::StatusCode::kResourceExhausted:
      if (index::IsVersionsUsedUp(refusal)) return WireReason::kVersionsUsedUp;
      return index::IsChainFull(refusal) ? WireReason::kChainFull : WireReason::kServerFull;
    default:
      return WireReason::kNone;
  }
}

absl::string_view ShortText(const Result& result) {
  switch (result.reason) {
    case WireReason::kNone:
      break;
    case WireReason::kValueTooLong:
      return "the value is longer than this server takes";
    case WireReason::kWrongVersion:
      return "the key has another version";
    case WireReason::kNotANumber:
      return "the value is no decimal number of 64 bits";
    case WireReason::kOverflow:
      return "the sum does not fit into 64 bits";
    case WireReason::kServerFull:
      return "the server's memory is full; nothing was changed";
    case WireReason::kChainFull:
      return "too many keys share this key's line of the index; nothing was changed";
    case WireReason::kValueChanged:
      return "the value changed while it was fetched; nothing was written";
    case WireReason::kVersionsUsedUp:
      return "the server has used up its versions; restart it to write again";
    case WireReason::kForgotten:
    case WireReason::kShuttingDown:
    case WireReason::kAuthenticationFailed:
    case WireReason::kAuthenticationRequired:
      break;  // never remembered
  }
  switch (result.code) {
    case absl::StatusCode::kOk:
      return "";
    case absl::StatusCode::kNotFound:
      return "no such key";
    case absl::StatusCode::kAlreadyExists:
      return "the key exists";
    default:
      return "refused";
  }
}

// The condition as it was when the value was looked at, so that what is computed from it is written
// over it and nothing else.
index::Condition ConditionOn(const absl::StatusOr<index::Table::View>& present) {
  if (!present.ok()) return {index::Condition::Kind::kAbsent, 0};
  return {index::Condition::Kind::kVersionIs, present->version};
}

// Whether a write with this condition may go on from `present`. Those that read before they write
// ask here; their write itself then needs no other condition.
absl::optional<Answer> RefuseFrom(const absl::StatusOr<index::Table::View>& present,
                                  const index::Condition& condition) {
  if (condition.kind != index::Condition::Kind::kVersionIs) return absl::nullopt;
  if (!present.ok()) return AnswerOf(absl::StatusCode::kNotFound, "no such key");
  if (present->version == condition.version) return absl::nullopt;
  Answer answer =
      AnswerOf(absl::StatusCode::kFailedPrecondition,
               absl::StrCat("the key's version is ", present->version, ", not ", condition.version),
               WireReason::kWrongVersion);
  answer.body.version = present->version;
  return answer;
}

// With what is there now.
Answer Refusal(absl::StatusCode code, absl::string_view text, WireReason reason,
               const index::Table::View& present) {
  Answer answer = AnswerOf(code, text, reason);
  answer.body.version = present.version;
  return answer;
}

}  // namespace

bool ExpiredMeanwhile(const Answer& answer, const index::Condition& condition) {
  return answer.code() == absl::StatusCode::kNotFound &&
         condition.kind == index::Condition::Kind::kNone;
}

Answer AnswerOf(absl::StatusCode code, absl::string_view text, WireReason reason) {
  Answer answer;
  answer.body.status = static_cast<uint32_t>(code);
  answer.body.reason = static_cast<uint32_t>(reason);
  answer.text = std::string(text);
  return answer;
}

Answer AnswerOf(const absl::Status& refusal) {
  return AnswerOf(refusal.code(), refusal.message(), ReasonOf(refusal));
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
      WireReason::kValueTooLong);
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
  int64_t number = 0;
  if (present.ok()) {
    const absl::string_view text = TextOf(present->value);
    const absl::optional<int64_t> parsed = ParseNumber(text);
    if (!parsed.has_value()) {
      constexpr size_t kShownBytesMax = 32;
      return Refusal(absl::StatusCode::kFailedPrecondition,
                     absl::StrCat("the value is no decimal number of 64 bits but '",
                                  absl::CHexEscape(text.substr(0, kShownBytesMax)),
                                  text.size() > kShownBytesMax ? "..." : "",
                                  "'; put a number such as 0 first"),
                     WireReason::kNotANumber, *present);
    }
    number = *parsed;
  }
  const absl::optional<int64_t> sum = Sum(number, request.by);
  if (!sum.has_value()) {
    const std::string text =
        absl::StrCat(number, " and ", request.by, " have a sum that does not fit into 64 bits");
    return present.ok()
               ? Refusal(absl::StatusCode::kOutOfRange, text, WireReason::kOverflow, *present)
               : AnswerOf(absl::StatusCode::kOutOfRange, text, WireReason::kOverflow);
  }
  const std::string text = absl::StrCat(*sum);
  const index::WriteResult result = table.Put(request.key, AsFrameBytes(text), ConditionOn(present),
                                              now, index::Lifetime::Kept());
  if (!result.status.ok()) return AnswerOf(result);
  Answer answer = AnswerOfNumber(*sum, result.version);
  answer.body.slot = result.slot;
  return answer;
}

Answer AppendOnce(index::Table& table, const KeyedRequest& request, uint64_t value_bytes_max,
                  absl::Time now) {
  const absl::StatusOr<index::Table::View> present = table.Find(request.key);
  if (absl::optional<Answer> refusal = RefuseFrom(present, request.condition))
    return *std::move(refusal);
  const uint64_t old_length = present.ok() ? present->value.size() : 0;
  const uint64_t length = old_length + request.value.size();
  if (length > value_bytes_max) return ValueTooLong(length, value_bytes_max);
  if (length > kAppendAtOnceBytesMax) {
    Answer later;
    later.is_for_later = true;
    return later;
  }
  // A copy, since the table moves what it has while it makes room.
  std::string value;
  value.reserve(length);
  if (present.ok()) value.append(TextOf(present->value).data(), old_length);
  value.append(TextOf(request.value).data(), request.value.size());
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

// The client's cursor: the table's own, which has 41 bits, and the table's number.
Answer ExecuteFlush(TableAccess& tables, const rdma::FlushBody& request, absl::Time now) {
  constexpr int kPartitionShift = 56;
  constexpr uint64_t kCursorMask = (uint64_t{1} << kPartitionShift) - 1;
  Answer answer;
  answer.body.version = request.version_bound != 0 ? request.version_bound : tables.CloseVersions();
  if (answer.body.version == 0) return answer;  // nothing was ever written
  const uint64_t partition = request.cursor >> kPartitionShift;
  if (partition >= tables.partitions()) return answer;  // past the end, where no cursor of ours is
  const LockedTable table = tables.At(static_cast<uint32_t>(partition));
  const absl::StatusOr<index::Table::FlushResult> result = table->FlushStep(
      request.cursor & kCursorMask, answer.body.version, kFlushKeysPerRequest, now);
  if (!result.ok()) return AnswerOf(result.status());
  answer.body.value_length = result->deleted;
  if (result->cursor != 0) {
    answer.body.slot = partition << kPartitionShift | result->cursor;
  } else if (partition + 1 < tables.partitions()) {
    answer.body.slot = (partition + 1) << kPartitionShift;
  }
  if (table.changes() != nullptr) table.changes()->OnFlushed(ResultOf(answer));
  return answer;
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
