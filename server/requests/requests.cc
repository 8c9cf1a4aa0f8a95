#include "server/requests/requests.h"

#include <algorithm>
#include <cassert>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/types/optional.h"
#include "absl/types/span.h"
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
    case WireReason::kDiskFull:
      return "the server's disk is full; nothing was changed";
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

// The number that an INCREMENT makes of the present value, or why it does not.
struct Sum64 {
  absl::optional<Answer> refusal;
  int64_t number = 0;
};

Sum64 SumOf(const absl::StatusOr<index::Table::View>& present, const KeyedRequest& request) {
  int64_t number = 0;
  if (present.ok()) {
    const absl::string_view text = TextOf(present->value);
    const absl::optional<int64_t> parsed = ParseNumber(text);
    if (!parsed.has_value()) {
      constexpr size_t kShownBytesMax = 32;
      return {Refusal(absl::StatusCode::kFailedPrecondition,
                      absl::StrCat("the value is no decimal number of 64 bits but '",
                                   absl::CHexEscape(text.substr(0, kShownBytesMax)),
                                   text.size() > kShownBytesMax ? "..." : "",
                                   "'; put a number such as 0 first"),
                      WireReason::kNotANumber, *present),
              0};
    }
    number = *parsed;
  }
  const absl::optional<int64_t> sum = Sum(number, request.by);
  if (sum.has_value()) return {absl::nullopt, *sum};
  const std::string text =
      absl::StrCat(number, " and ", request.by, " have a sum that does not fit into 64 bits");
  return {present.ok()
              ? Refusal(absl::StatusCode::kOutOfRange, text, WireReason::kOverflow, *present)
              : AnswerOf(absl::StatusCode::kOutOfRange, text, WireReason::kOverflow),
          0};
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

// A copy, since the table moves what it has while it makes room.
std::string Appended(const absl::StatusOr<index::Table::View>& present,
                     const KeyedRequest& request) {
  std::string value;
  const size_t old_length = present.ok() ? present->value.size() : 0;
  value.reserve(old_length + request.value.size());
  if (present.ok()) value.append(TextOf(present->value).data(), old_length);
  value.append(TextOf(request.value).data(), request.value.size());
  return value;
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

// --- Decide and apply --------------------------------------------------------

absl::optional<Decision> Decide(index::Table& table, const KeyedRequest& request,
                                uint64_t value_bytes_max, absl::Time now) {
  Decision decision;
  decision.condition = request.condition;
  switch (request.opcode) {
    case rdma::Opcode::kPut:
      if (request.value.size() > value_bytes_max) return absl::nullopt;
      decision.kind = Decision::Kind::kPut;
      decision.lifetime = LifetimeOf(request.ttl_ns);
      decision.value = request.value;
      break;
    case rdma::Opcode::kExpire:
      decision.kind = Decision::Kind::kExpire;
      decision.lifetime = LifetimeOf(request.ttl_ns);
      break;
    case rdma::Opcode::kDelete:
      decision.kind = Decision::Kind::kDelete;
      break;
    case rdma::Opcode::kIncrement:
    case rdma::Opcode::kAppend:
      decision.kind = Decision::Kind::kPut;
      decision.lifetime = index::Lifetime::Kept();
      break;
    default:
      return absl::nullopt;
  }
  const index::HashedKey key{request.key, request.hash};
  const index::Table::Forecast forecast =
      table.Foresee(key, request.condition, decision.lifetime, now);
  if (forecast.refusal.has_value()) return absl::nullopt;
  if (!forecast.present && decision.kind != Decision::Kind::kPut) return absl::nullopt;
  if (request.opcode == rdma::Opcode::kIncrement || request.opcode == rdma::Opcode::kAppend) {
    const absl::StatusOr<index::Table::View> present = table.Find(request.key);
    decision.condition = ConditionOn(present);
    if (request.opcode == rdma::Opcode::kIncrement) {
      const Sum64 sum = SumOf(present, request);
      if (sum.refusal.has_value()) return absl::nullopt;
      decision.number = sum.number;
      decision.text = absl::StrCat(sum.number);
    } else {
      const uint64_t length = (present.ok() ? present->value.size() : 0) + request.value.size();
      if (length > std::min(value_bytes_max, kAppendAtOnceBytesMax)) return absl::nullopt;
      decision.text = Appended(present, request);
    }
  }
  decision.expiry_ns = forecast.expiry_ns;
  decision.present_version = forecast.present_version;
  decision.version =
      decision.kind == Decision::Kind::kExpire ? forecast.present_version : table.NextVersion();
  return decision;
}

void Report(const Decision& decision, absl::string_view key, PartitionChanges& changes) {
  switch (decision.kind) {
    case Decision::Kind::kPut:
      return changes.OnPut(key, decision.bytes(), decision.version, decision.expiry_ns);
    case Decision::Kind::kExpire:
      return changes.OnExpire(key, decision.version, decision.expiry_ns);
    case Decision::Kind::kDelete:
      return changes.OnDelete(key, decision.present_version, decision.version);
  }
}

namespace {

// Reports that a reported write was not made, since it was answered so: the key is as it is now.
void Revoke(index::Table& table, absl::string_view key, const ClientWrite& write,
            const Answer& answer, uint64_t version, PartitionChanges& changes) {
  const ClientWrite none{0, 0, rdma::Opcode::kFlush};
  changes.SetWrite(&none);
  const absl::StatusOr<index::Table::View> present = table.Find(key);
  if (present.ok()) {
    changes.OnPut(key, present->value, present->version, present->expiry_ns);
  } else {
    changes.OnDelete(key, version, version);
  }
  changes.SetWrite(&write);
  changes.OnResult(ResultOf(answer));
}

// Whether the write took effect just before its key ended: one that keeps the lifetime of a present
// key, which expired, or was evicted or flushed, since the write was reported.
bool TookEffectBeforeEnd(const Answer& answer, const index::Condition& condition,
                         const index::Lifetime& lifetime) {
  return answer.code() == absl::StatusCode::kNotFound &&
         condition.kind == index::Condition::Kind::kVersionIs &&
         lifetime.kind == index::Lifetime::Kind::kKept;
}

// Reports the end of such a write's value. Its reported result stays.
Answer EndValue(absl::string_view key, const ClientWrite& write, uint64_t version,
                PartitionChanges& changes) {
  const ClientWrite none{0, 0, rdma::Opcode::kFlush};
  changes.SetWrite(&none);
  changes.OnDelete(key, version, version);
  changes.SetWrite(&write);
  Answer answer;
  answer.body.version = version;
  return answer;
}

Answer AnswerFor(const Decision& decision, const KeyedRequest& request, Answer answer) {
  switch (request.opcode) {
    case rdma::Opcode::kIncrement: {
      Answer number = AnswerOfNumber(decision.number, answer.body.version);
      number.body.slot = answer.body.slot;
      return number;
    }
    case rdma::Opcode::kAppend:
      answer.body.value_length = decision.text.size();
      return answer;
    case rdma::Opcode::kExpire:
      answer.body.expiry = decision.expiry_ns;
      return answer;
    default:
      return answer;
  }
}

}  // namespace

Answer Apply(index::Table& table, const KeyedRequest& request, const Decision& decision,
             const ClientWrite& write, PartitionChanges& changes, absl::Time now) {
  changes.EndPending(request.hash.bits);
  table.Give(decision.version, decision.expiry_ns);
  index::WriteResult result;
  switch (decision.kind) {
    case Decision::Kind::kPut:
      result = table.Put({request.key, request.hash}, decision.bytes(), decision.condition, now,
                         decision.lifetime);
      break;
    case Decision::Kind::kExpire:
      result = table.Expire(request.key, {index::Condition::Kind::kVersionIs, decision.version},
                            decision.lifetime, now);
      break;
    case Decision::Kind::kDelete:
      result = table.Delete(request.key, {}, now);
      // It expired or was evicted meanwhile. The deletion took effect just before.
      if (absl::IsNotFound(result.status)) {
        result = {};
        result.version = decision.version;
      }
      break;
  }
  table.TakeBackGiven();
  Answer answer = AnswerOf(result);
  if (TookEffectBeforeEnd(answer, decision.condition, decision.lifetime))
    answer = EndValue(request.key, write, decision.version, changes);
  if (answer.code() == absl::StatusCode::kOk)
    return AnswerFor(decision, request, std::move(answer));
  Revoke(table, request.key, write, answer, decision.version, changes);
  return answer;
}

Answer ExecuteAppend(TableAccess& tables, LockedTable& table, const KeyedRequest& request,
                     uint64_t value_bytes_max, absl::Time now) {
  absl::optional<Decision> decision;
  if (tables.log() != nullptr && tables.log()->AwaitsSync())
    decision = Decide(*table, request, value_bytes_max, now);
  if (!decision.has_value()) return ExecuteAppend(*table, request, value_bytes_max, now);
  table.changes()->BeginPending(request.hash.bits);
  Report(*decision, request.key, *table.changes());
  table.Release();
  // An error is the engine's, whose next Commit has it too; no answer leaves.
  const absl::Status committed = tables.log()->Commit();
  table = tables.For(request.key);
  if (committed.ok())
    return Apply(*table, request, *decision, tables.write(), *table.changes(), now);
  table.changes()->EndPending(request.hash.bits);
  return AnswerOf(committed);
}

absl::optional<Answer> PublishReserved(TableAccess& tables, TableSpace& space,
                                       absl::string_view key, const index::Condition& condition,
                                       const index::Lifetime& lifetime, absl::Time now) {
  const index::KeyHash hash = tables.HashOf(key);
  if (tables.log() == nullptr || !tables.log()->AwaitsSync()) {
    const LockedTable table = tables.For(key);
    return AnswerOf(table->Publish(space.Take(table), condition, now, lifetime));
  }
  uint64_t version = 0, expiry_ns = 0;
  {
    const LockedTable table = tables.For(key);
    if (table.changes()->IsPending(hash.bits)) return absl::nullopt;
    index::Table::Forecast forecast = table->Foresee({key, hash}, condition, lifetime, now);
    if (forecast.refusal.has_value()) {
      space.Take(table).Abort();
      return AnswerOf(*forecast.refusal);
    }
    version = table->NextVersion();
    expiry_ns = forecast.expiry_ns;
    table.changes()->BeginPending(hash.bits);
    table.changes()->OnPut(key, space.value(), version, expiry_ns);
  }
  // An error is the engine's, whose next Commit has it too; no answer leaves.
  const absl::Status committed = tables.log()->Commit();
  const LockedTable table = tables.For(key);
  table.changes()->EndPending(hash.bits);
  if (!committed.ok()) {
    space.Take(table).Abort();
    return AnswerOf(committed);
  }
  table->Give(version, expiry_ns);
  const Answer answer = AnswerOf(table->Publish(space.Take(table), condition, now, lifetime));
  table->TakeBackGiven();
  if (TookEffectBeforeEnd(answer, condition, lifetime))
    return EndValue(key, tables.write(), version, *table.changes());
  if (answer.code() != absl::StatusCode::kOk)
    Revoke(*table, key, tables.write(), answer, version, *table.changes());
  return answer;
}

namespace {

// A client's cursor: the table's own, which has 45 bits, and the table's number.
constexpr int kPartitionShift = 56;
constexpr uint64_t kTableCursorMask = (uint64_t{1} << kPartitionShift) - 1;

uint64_t NextCursor(uint64_t partition, uint64_t table_cursor, uint32_t partitions) {
  if (table_cursor != 0) return partition << kPartitionShift | table_cursor;
  return partition + 1 < partitions ? (partition + 1) << kPartitionShift : 0;
}

// Until another poller has made its pending change of a key.
constexpr absl::Duration kPendingStep() { return absl::Microseconds(50); }

bool AnyPending(const TableAccess& tables, const PartitionChanges& changes,
                absl::Span<const index::Flusher::Listed> keys) {
  return absl::c_any_of(keys, [&](const index::Flusher::Listed& one) {
    return changes.IsPending(tables.HashOf(one.key).bits);
  });
}

// Logs the deletions, and makes them when they are durable.
Answer FlushLogged(TableAccess& tables, uint32_t partition, uint64_t table_cursor, Answer answer,
                   absl::Time now) {
  index::Flusher::List list;
  while (true) {
    LockedTable table = tables.At(partition);
    PartitionChanges& changes = *table.changes();
    list = table->ListFlush(table_cursor, answer.body.version, kFlushKeysPerRequest);
    if (AnyPending(tables, changes, list.keys)) {
      table.Release();
      if (absl::Status status = tables.log()->Commit(); !status.ok()) return AnswerOf(status);
      absl::SleepFor(kPendingStep());
      continue;
    }
    answer.body.value_length = list.keys.size();
    answer.body.slot = NextCursor(partition, list.cursor, tables.partitions());
    for (const index::Flusher::Listed& one : list.keys) {
      changes.BeginPending(tables.HashOf(one.key).bits);
      changes.OnDelete(one.key, one.version, one.version);
    }
    changes.OnResult(ResultOf(answer));
    break;
  }
  const absl::Status committed = tables.log()->Commit();
  const LockedTable table = tables.At(partition);
  for (const index::Flusher::Listed& one : list.keys)
    table.changes()->EndPending(tables.HashOf(one.key).bits);
  if (!committed.ok()) return AnswerOf(committed);
  table->FlushListed(list.keys, now);
  return answer;
}

}  // namespace

Answer ExecuteFlush(TableAccess& tables, const rdma::FlushBody& request, absl::Time now) {
  Answer answer;
  answer.body.version = request.version_bound != 0 ? request.version_bound : tables.CloseVersions();
  if (answer.body.version == 0) return answer;  // nothing was ever written
  const uint64_t partition = request.cursor >> kPartitionShift;
  if (partition >= tables.partitions()) return answer;  // past the end, where no cursor of ours is
  const uint64_t table_cursor = request.cursor & kTableCursorMask;
  if (tables.log() != nullptr && tables.log()->AwaitsSync())
    return FlushLogged(tables, static_cast<uint32_t>(partition), table_cursor, answer, now);
  const LockedTable table = tables.At(static_cast<uint32_t>(partition));
  const absl::StatusOr<index::Table::FlushResult> result =
      table->FlushStep(table_cursor, answer.body.version, kFlushKeysPerRequest, now);
  if (!result.ok()) return AnswerOf(result.status());
  answer.body.value_length = result->deleted;
  answer.body.slot = NextCursor(partition, result->cursor, tables.partitions());
  if (table.changes() != nullptr) table.changes()->OnResult(ResultOf(answer));
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
