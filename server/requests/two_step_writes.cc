#include "server/requests/two_step_writes.h"

#include <algorithm>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/types/span.h"
#include "index/layout/test_hooks.h"
#include "server/requests/request_values.h"

namespace osprey::server {

namespace {

// What the table gives the write.
void TakeForecast(index::Table& table, const index::Table::Forecast& forecast, Decision& decision) {
  decision.expiry_ns = forecast.expiry_ns;
  decision.present_version = forecast.present_version;
  decision.version =
      decision.kind == Decision::Kind::kExpire ? forecast.present_version : table.NextVersion();
}

}  // namespace

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
  TakeForecast(table, forecast, decision);
  return decision;
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

namespace {

// Reports that a reported write was not made, since it was answered so: the key is as it is now.
void Revoke(index::Table& table, absl::string_view key, const ClientWrite& write,
            const Answer& answer, uint64_t version, PartitionChanges& changes) {
  if (index::IsMutant(index::Mutant::kRevocationNotLogged)) return;
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
bool TookEffectBeforeEnd(const Answer& answer, const Decision& decision) {
  return answer.code() == absl::StatusCode::kNotFound &&
         decision.condition.kind == index::Condition::Kind::kVersionIs &&
         decision.lifetime.kind == index::Lifetime::Kind::kKept;
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

// The answer to a write that was reported, and then made with this result.
Answer Conclude(index::Table& table, absl::string_view key, const Decision& decision,
                const ClientWrite& write, Answer answer, PartitionChanges& changes) {
  if (TookEffectBeforeEnd(answer, decision)) return EndValue(key, write, decision.version, changes);
  if (answer.code() != absl::StatusCode::kOk)
    Revoke(table, key, write, answer, decision.version, changes);
  return answer;
}

bool InTwoSteps(const TableAccess& tables) {
  return tables.log() != nullptr && tables.log()->AwaitsSync();
}

// Between the steps: releases the table, and holds it again once what was reported is durable. An
// error is the engine's, whose next Commit has it too; no answer leaves.
absl::Status CommitReleased(TableAccess& tables, LockedTable& table) {
  const uint32_t partition = table.partition();
  table.Release();
  absl::Status committed = tables.log()->Commit();
  table = tables.At(partition);
  return committed;
}

index::WriteResult Write(index::Table& table, const KeyedRequest& request, const Decision& decision,
                         absl::Time now) {
  const index::Table::GivenVersion given(table, decision.version, decision.expiry_ns);
  switch (decision.kind) {
    case Decision::Kind::kPut:
      return table.Put({request.key, request.hash}, decision.bytes(), decision.condition, now,
                       decision.lifetime);
    case Decision::Kind::kExpire:
      return table.Expire(request.key, {index::Condition::Kind::kVersionIs, decision.version},
                          decision.lifetime, now);
    case Decision::Kind::kDelete:
      break;
  }
  index::WriteResult result = table.Delete(request.key, {}, now);
  // It expired or was evicted meanwhile. The deletion took effect just before.
  if (absl::IsNotFound(result.status)) {
    result = {};
    result.version = decision.version;
  }
  return result;
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
  Answer answer = Conclude(table, request.key, decision, write,
                           AnswerOf(Write(table, request, decision, now)), changes);
  if (answer.code() != absl::StatusCode::kOk) return answer;
  return AnswerFor(decision, request, std::move(answer));
}

Answer ExecuteAppend(TableAccess& tables, LockedTable& table, const KeyedRequest& request,
                     uint64_t value_bytes_max, absl::Time now) {
  absl::optional<Decision> decision;
  if (InTwoSteps(tables)) decision = Decide(*table, request, value_bytes_max, now);
  if (!decision.has_value()) return ExecuteAppend(*table, request, value_bytes_max, now);
  Report(*decision, {request.key, request.hash}, *table.changes());
  const absl::Status committed = CommitReleased(tables, table);
  if (committed.ok())
    return Apply(*table, request, *decision, tables.write(), *table.changes(), now);
  table.changes()->EndPending(request.hash.bits);
  return AnswerOf(committed);
}

absl::optional<Answer> PublishReserved(TableAccess& tables, TableSpace& space,
                                       absl::string_view key, const index::Condition& condition,
                                       const index::Lifetime& lifetime, absl::Time now) {
  const index::HashedKey hashed{key, tables.HashOf(key)};
  LockedTable table = tables.At(tables.PartitionOf(hashed.hash));
  if (!InTwoSteps(tables))
    return AnswerOf(table->Publish(space.Take(table), condition, now, lifetime));
  PartitionChanges& changes = *table.changes();
  if (changes.IsPending(hashed.hash.bits)) return absl::nullopt;
  const index::Table::Forecast forecast = table->Foresee(hashed, condition, lifetime, now);
  if (forecast.refusal.has_value()) {
    space.Take(table).Abort();
    return AnswerOf(*forecast.refusal);
  }
  Decision decision;
  decision.value = space.value();
  decision.condition = condition;
  decision.lifetime = lifetime;
  TakeForecast(*table, forecast, decision);
  Report(decision, hashed, changes);
  const absl::Status committed = CommitReleased(tables, table);
  changes.EndPending(hashed.hash.bits);
  if (!committed.ok()) {
    space.Take(table).Abort();
    return AnswerOf(committed);
  }
  Answer answer = [&] {
    const index::Table::GivenVersion given(*table, decision.version, decision.expiry_ns);
    return AnswerOf(table->Publish(space.Take(table), condition, now, lifetime));
  }();
  return Conclude(*table, key, decision, tables.write(), std::move(answer), changes);
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
    if (absl::Status status = tables.log()->Commit(); !status.ok()) return AnswerOf(status);
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
  for (const index::Flusher::Listed& one : list.keys)
    changes.EndPending(tables.HashOf(one.key).bits);
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
