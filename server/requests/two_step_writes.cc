#include "server/requests/two_step_writes.h"

#include <algorithm>
#include <cassert>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/functional/function_ref.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/types/span.h"
#include "index/layout/test_hooks.h"
#include "server/requests/request_values.h"

namespace osprey::server {

namespace {

// What the table gives the write.
void TakeForecast(const index::Table::Forecast& forecast, Decision& decision) {
  decision.expiry_ns = forecast.expiry_ns;
  decision.present_version = forecast.present_version;
}

// REQUIRES: the forecast is taken.
void TakeVersion(index::Table& table, Decision& decision) {
  decision.version =
      decision.kind == Decision::Kind::kExpire ? decision.present_version : table.NextVersion();
}

// What a write asks for, without its value. None: it is no write, or too long.
absl::optional<Decision> Asked(const KeyedRequest& request, uint64_t value_bytes_max) {
  Decision decision;
  decision.condition = request.condition;
  switch (request.opcode) {
    case rdma::Opcode::kPut:
      if (request.value.size() > value_bytes_max) return absl::nullopt;
      decision.kind = Decision::Kind::kPut;
      decision.lifetime = LifetimeOf(request.ttl_ns);
      decision.value = request.value;
      return decision;
    case rdma::Opcode::kExpire:
      decision.kind = Decision::Kind::kExpire;
      decision.lifetime = LifetimeOf(request.ttl_ns);
      return decision;
    case rdma::Opcode::kDelete:
      decision.kind = Decision::Kind::kDelete;
      return decision;
    case rdma::Opcode::kIncrement:
    case rdma::Opcode::kAppend:
      decision.kind = Decision::Kind::kPut;
      decision.lifetime = index::Lifetime::Kept();
      return decision;
    default:
      return absl::nullopt;
  }
}

// The new value of an INCREMENT or APPEND. False: the present one refuses it, or it is too long.
bool Compute(const index::Table& table, const KeyedRequest& request, uint64_t value_bytes_max,
             Decision& decision) {
  const absl::StatusOr<index::Table::View> present = table.Find(request.key);
  decision.condition = ConditionOn(present);
  if (request.opcode == rdma::Opcode::kIncrement) {
    const Sum64 sum = SumOf(present, request);
    if (sum.refusal.has_value()) return false;
    decision.number = sum.number;
    decision.text = absl::StrCat(sum.number);
    return true;
  }
  const uint64_t length = (present.ok() ? present->value.size() : 0) + request.value.size();
  if (length > std::min(value_bytes_max, kAppendAtOnceBytesMax)) return false;
  decision.text = Appended(present, request);
  return true;
}

absl::optional<index::WriteResult> Prepare(index::Table& table, const index::HashedKey& key,
                                           const Decision& decision,
                                           const index::Table::Forecast& forecast, absl::Time now) {
  index::Table::Intent intent;
  switch (decision.kind) {
    case Decision::Kind::kDelete:
      return absl::nullopt;
    case Decision::Kind::kExpire:
      intent.kind = index::Table::Intent::Kind::kExpire;
      break;
    case Decision::Kind::kPut:
      if (decision.is_reserved) intent.kind = index::Table::Intent::Kind::kPublish;
      intent.value = decision.bytes();
      break;
  }
  intent.condition = decision.condition;
  return table.Prepare(key, intent, forecast, now);
}

// Prepares the table for what is asked. `compute` makes the value from the present one; false: that
// one refuses it.
Verdict Settle(index::Table& table, const index::HashedKey& key, Decision asked,
               absl::FunctionRef<bool(Decision&)> compute, absl::Time now) {
  const index::Condition condition = asked.condition;
  absl::optional<index::WriteResult> refusal;
  do {  // again if the key expires meanwhile, which it does once
    const index::Table::Forecast forecast = table.Foresee(key, condition, asked.lifetime, now);
    if (forecast.refusal.has_value()) return {absl::nullopt, AnswerOf(*forecast.refusal)};
    if (!forecast.present && asked.kind != Decision::Kind::kPut) return {};
    if (!compute(asked)) return {};
    refusal = Prepare(table, key, asked, forecast, now);
    TakeForecast(forecast, asked);
  } while (refusal.has_value() && absl::IsAborted(refusal->status));
  if (refusal.has_value()) return {absl::nullopt, AnswerOf(*refusal)};
  TakeVersion(table, asked);
  return {std::move(asked), absl::nullopt};
}

}  // namespace

Verdict Decide(index::Table& table, const KeyedRequest& request, uint64_t value_bytes_max,
               absl::Time now) {
  absl::optional<Decision> asked = Asked(request, value_bytes_max);
  if (!asked.has_value()) return {};
  const bool is_computed =
      request.opcode == rdma::Opcode::kIncrement || request.opcode == rdma::Opcode::kAppend;
  const auto compute = [&](Decision& decision) {
    return !is_computed || Compute(table, request, value_bytes_max, decision);
  };
  return Settle(table, {request.key, request.hash}, *std::move(asked), compute, now);
}

void Report(const Decision& decision, const index::HashedKey& hashed, PartitionChanges& changes) {
  changes.BeginPending(hashed.hash.bits);
  const absl::string_view key = hashed.key;
  switch (decision.kind) {
    case Decision::Kind::kPut:
      return changes.OnPut(key, decision.bytes(), decision.version, decision.expiry_ns);
    case Decision::Kind::kExpire:
      return changes.OnExpire(key, decision.version, decision.expiry_ns);
    case Decision::Kind::kDelete:
      return changes.OnDelete(key, decision.present_version, decision.version);
  }
}

bool MayReplace(const KeyedRequest& earlier, const KeyedRequest& request) {
  const auto is_plain = [](const KeyedRequest& one) {
    return one.opcode == rdma::Opcode::kPut && !one.rendezvous && one.ttl_ns == 0 &&
           one.condition.kind == index::Condition::Kind::kNone;
  };
  return is_plain(earlier) && is_plain(request) && earlier.key == request.key &&
         earlier.value.size() == request.value.size();
}

Decision Replace(index::Table& table, const Decision& earlier, const KeyedRequest& request) {
  assert(earlier.kind == Decision::Kind::kPut && !earlier.is_reserved);
  Decision decision = earlier;
  decision.value = request.value;
  TakeVersion(table, decision);
  return decision;
}

void ReportReplacing(const Decision& decision, const index::HashedKey& hashed,
                     PartitionChanges& changes) {
  changes.ContinuePending(hashed.hash.bits);
  changes.OnPut(hashed.key, decision.bytes(), decision.version, decision.expiry_ns);
}

bool InTwoSteps(const TableAccess& tables) {
  return tables.log() != nullptr && tables.log()->AwaitsSync();
}

namespace {

Answer VoidAnswer(const absl::Status& failure) {
  Answer answer = AnswerOf(failure);
  answer.is_void = true;
  return answer;
}

// Between the steps: releases the table, and holds it again once what was reported is durable. An
// error is the engine's, whose next Commit has it too; no answer leaves. What was reported may be
// durable nevertheless, so its keys stay pending until the server ends.
absl::Status CommitReleased(TableAccess& tables, LockedTable& table) {
  const uint32_t partition = table.partition();
  table.Release();
  absl::Status committed = tables.log()->Commit();
  table = tables.At(partition);
  return committed;
}

index::WriteResult Write(index::Table& table, const index::HashedKey& key, const Decision& decision,
                         absl::Time now) {
  switch (decision.kind) {
    case Decision::Kind::kPut:
      return table.ApplyPut(key, decision.bytes(), decision.version, decision.expiry_ns, now);
    case Decision::Kind::kExpire:
      return table.ApplyExpire(key, decision.version, decision.expiry_ns, now);
    case Decision::Kind::kDelete:
      break;
  }
  return table.ApplyDelete(key, decision.version, now);
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
             PartitionChanges& changes, absl::Time now) {
  changes.EndPending(request.hash.bits);
  const index::HashedKey key{request.key, request.hash};
  return AnswerFor(decision, request, AnswerOf(Write(table, key, decision, now)));
}

Answer ExecuteAppend(TableAccess& tables, LockedTable& table, const KeyedRequest& request,
                     uint64_t value_bytes_max, absl::Time now) {
  Verdict verdict;
  if (InTwoSteps(tables)) verdict = Decide(*table, request, value_bytes_max, now);
  if (verdict.refusal.has_value()) return *std::move(verdict.refusal);
  if (!verdict.decision.has_value()) return ExecuteAppend(*table, request, value_bytes_max, now);
  Report(*verdict.decision, {request.key, request.hash}, *table.changes());
  const absl::Status committed = CommitReleased(tables, table);
  if (!committed.ok()) return VoidAnswer(committed);
  return Apply(*table, request, *verdict.decision, *table.changes(), now);
}

absl::optional<Verdict> DecideReserved(TableAccess& tables, TableSpace& space,
                                       const ValueUpload* upload, absl::string_view key,
                                       const index::Condition& condition,
                                       const index::Lifetime& lifetime, absl::Time now) {
  const index::HashedKey hashed{key, tables.HashOf(key)};
  const LockedTable table = tables.At(tables.PartitionOf(hashed.hash));
  PartitionChanges& changes = *table.changes();
  if (changes.IsPending(hashed.hash.bits)) return absl::nullopt;
  Decision asked;
  asked.is_reserved = true;
  asked.value = space.value();
  asked.condition = condition;
  asked.lifetime = lifetime;
  const auto is_given = [](Decision&) { return true; };
  Verdict verdict = Settle(*table, hashed, std::move(asked), is_given, now);
  if (verdict.refusal.has_value()) {
    space.Take(table).Abort();
    return verdict;
  }
  changes.SetUpload(upload);
  Report(*verdict.decision, hashed, changes);
  changes.SetUpload(nullptr);
  return verdict;
}

Answer ApplyReserved(TableAccess& tables, TableSpace& space, absl::string_view key,
                     const Decision& decision, absl::Time now) {
  const index::KeyHash hash = tables.HashOf(key);
  const LockedTable table = tables.At(tables.PartitionOf(hash));
  table.changes()->EndPending(hash.bits);
  return AnswerOf(
      table->ApplyPublish(space.Take(table), decision.version, decision.expiry_ns, now));
}

absl::optional<Answer> PublishReserved(TableAccess& tables, TableSpace& space,
                                       const ValueUpload* upload, absl::string_view key,
                                       const index::Condition& condition,
                                       const index::Lifetime& lifetime, absl::Time now) {
  if (InTwoSteps(tables)) {
    absl::optional<Verdict> verdict =
        DecideReserved(tables, space, upload, key, condition, lifetime, now);
    if (!verdict.has_value()) return absl::nullopt;
    if (verdict->refusal.has_value()) return std::move(verdict->refusal);
    // As in CommitReleased, the key stays pending after an error.
    if (const absl::Status committed = tables.log()->Commit(); !committed.ok()) {
      space.Drop();
      return VoidAnswer(committed);
    }
    return ApplyReserved(tables, space, key, *verdict->decision, now);
  }
  const LockedTable table = tables.For(key);
  if (upload != nullptr) table.changes()->SetUpload(upload);
  Answer answer = AnswerOf(table->Publish(space.Take(table), condition, now, lifetime));
  if (upload != nullptr) table.changes()->SetUpload(nullptr);
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

bool AnyPending(const TableAccess& tables, const PartitionChanges& changes,
                absl::Span<const index::Flusher::Listed> keys) {
  return absl::c_any_of(keys, [&](const index::Flusher::Listed& one) {
    return changes.IsPending(tables.HashOf(one.key).bits);
  });
}

// Logs the deletions, and makes them when they are durable.
Answer FlushLogged(TableAccess& tables, uint32_t partition, uint64_t table_cursor, Answer answer,
                   absl::Time now) {
  LockedTable table = tables.At(partition);
  PartitionChanges& changes = *table.changes();
  index::Flusher::List list =
      table->ListFlush(table_cursor, answer.body.version, kFlushKeysPerRequest);
  while (AnyPending(tables, changes, list.keys)) {
    table.Release();
    if (absl::Status status = tables.log()->Commit(); !status.ok()) return VoidAnswer(status);
    absl::SleepFor(kPendingStep());
    table = tables.At(partition);
    list = table->ListFlush(table_cursor, answer.body.version, kFlushKeysPerRequest);
  }
  answer.body.value_length = list.keys.size();
  answer.body.slot = NextCursor(partition, list.cursor, tables.partitions());
  Decision deletion;
  deletion.kind = Decision::Kind::kDelete;
  for (const index::Flusher::Listed& one : list.keys) {
    deletion.present_version = deletion.version = one.version;
    Report(deletion, {one.key, tables.HashOf(one.key)}, changes);
  }
  changes.OnResult(ResultOf(answer));
  const absl::Status committed = CommitReleased(tables, table);
  if (!committed.ok()) return VoidAnswer(committed);
  for (const index::Flusher::Listed& one : list.keys)
    changes.EndPending(tables.HashOf(one.key).bits);
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
  if (InTwoSteps(tables))
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

}  // namespace osprey::server
