#include "server/engine/synced_batch.h"

#include <algorithm>
#include <cstdint>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "absl/time/clock.h"
#include "absl/types/optional.h"
#include "index/layout/test_hooks.h"
#include "server/engine/connection/connection.h"

namespace osprey::server {

absl::Status SyncedBatch::Execute(absl::Time now) {
  left_.resize(access_.partitions());
  decided_.resize(access_.partitions());
  for (uint32_t i = 0; i < access_.partitions(); ++i) {
    left_[i].clear();
    for (const PartitionBatch::Request* request = batch_.First(i); request != nullptr;
         request = batch_.Next(*request))
      left_[i].push_back(request);
  }
  const auto some_left = [this] {
    return std::any_of(left_.begin(), left_.end(), [](const auto& some) { return !some.empty(); });
  };
  while (some_left()) {
    bool any = false;
    for (uint32_t i = 0; i < access_.partitions(); ++i) {
      if (left_[i].empty()) continue;
      (void)access_.Hold(i, /*wait=*/true);
      DecideAll(left_[i], now);
      access_.LetGo(/*wants_nothing=*/false);
      any |= !decided_[i].empty();
    }
    if (index::IsMutant(index::Mutant::kApplyBeforeCommit)) ApplyAllPartitions(now);
    if (absl::Status status = log_.Commit(); !status.ok()) {
      for (auto& some : decided_) some.clear();  // their requests are reused
      for (const auto& some : left_) {
        for (const PartitionBatch::Request* request : some)
          request->connection->DropBatched(*request);
      }
      return status;
    }
    ApplyAllPartitions(now);
    // Requests may wait for them.
    any |= apply_others_(now);
    if (!any && some_left()) absl::SleepFor(kPendingStep());
  }
  return absl::OkStatus();
}

// The pending PUT of this batch that the request may replace; null: there is none.
SyncedBatch::Decided* SyncedBatch::ReplaceableBy(const PartitionBatch::Request& request) {
  if (!access_.changes()->IsPending(request.hash.bits)) return nullptr;
  Decided* last = nullptr;
  for (Decided& one : decided_[access_.held_partition()]) {
    if (one.request->hash.bits != request.hash.bits) continue;
    const bool is_repeated =
        one.request->connection == request.connection && one.request->sequence == request.sequence;
    if (is_repeated) return nullptr;  // it waits for the answer
    last = &one;
  }
  return last != nullptr && MayReplace(*last->request, request) ? last : nullptr;
}

// For a pending write of its key.
bool SyncedBatch::HasToWait(const PartitionBatch::Request& request) const {
  const uint64_t hash = request.hash.bits;
  if (!access_.changes()->IsPending(hash)) return false;
  if (request.is_write() || request.connection->AnswersLater(request, access_.held())) return true;
  const std::vector<Decided>& decided = decided_[access_.held_partition()];
  return std::any_of(decided.begin(), decided.end(),
                     [hash](const Decided& one) { return one.request->hash.bits == hash; });
}

void SyncedBatch::ApplyAllPartitions(absl::Time now) {
  for (uint32_t i = 0; i < access_.partitions(); ++i) {
    if (decided_[i].empty()) continue;
    (void)access_.Hold(i, /*wait=*/true);
    ApplyAll(now);
    access_.LetGo(/*wants_nothing=*/false);
  }
}

// Leaves those in `some` that wait for another write of their key.
void SyncedBatch::DecideAll(std::vector<const PartitionBatch::Request*>& some, absl::Time now) {
  PartitionChanges& changes = *access_.changes();
  std::vector<const PartitionBatch::Request*> waiting;
  absl::flat_hash_set<uint64_t> waiting_keys;  // their later requests wait, too
  for (const PartitionBatch::Request* request : some) {
    const uint64_t hash = request->hash.bits;
    Decided* const replaced = ReplaceableBy(*request);
    if (waiting_keys.contains(hash) || (replaced == nullptr && HasToWait(*request))) {
      waiting_keys.insert(hash);
      waiting.push_back(request);
      continue;
    }
    absl::optional<Decision> decision = request->connection->DecideBatched(
        *request, access_.held(), replaced == nullptr ? nullptr : &replaced->decision, now);
    if (!decision.has_value()) continue;
    if (replaced == nullptr) {
      Report(*decision, {request->key, request->hash}, changes);
    } else {
      ReportReplacing(*decision, {request->key, request->hash}, changes);
      replaced->replaced = true;
    }
    decided_[access_.held_partition()].push_back({request, *std::move(decision)});
  }
  some = std::move(waiting);
}

void SyncedBatch::ApplyAll(absl::Time now) {
  std::vector<Decided>& decided = decided_[access_.held_partition()];
  for (const Decided& one : decided) {
    if (one.replaced) {
      one.request->connection->AnswerReplaced(*one.request, one.decision, now);
      continue;
    }
    one.request->connection->ApplyBatched(*one.request, one.decision, access_.held(),
                                          *access_.changes(), now);
  }
  decided.clear();
}

}  // namespace osprey::server
