#include "server/cluster/configuration/swap_tracker.h"

#include <algorithm>
#include <cassert>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"

namespace osprey {

SwapTracker::State SwapTracker::state() const {
  if (sent_.has_value()) return State::kAwaitsAnswer;
  return is_unknown_ ? State::kUnknown : State::kIdle;
}

bool SwapTracker::Saw(const StoredShard& seen) {
  assert(seen.shard == shard_.shard);
  if (seen.mod_revision <= shard_.mod_revision) return false;
  // Whatever was under way compares an earlier revision.
  shard_ = seen;
  pending_.reset();
  is_unknown_ = false;
  sends_alone_ = false;
  return true;
}

bool SwapTracker::MayBegin(const ShardSwap& swap) const {
  if (sent_.has_value() || swap.shard != shard_.shard || swap.mod_revision != shard_.mod_revision)
    return false;
  return !is_unknown_ || swap.next == *pending_ || swap.next == shard_.record;
}

void SwapTracker::Begin(const ShardSwap& swap) {
  assert(MayBegin(swap));
  sent_ = swap;
  if (!is_unknown_) pending_ = swap.next;
}

absl::Status SwapTracker::TakeAnswer(const TransactionResult& result, size_t place) {
  assert(sent_.has_value());
  absl::Status status;
  bool has_ended = false;
  switch (result.outcome) {
    case TransactionOutcome::kApplied:
      status = TakeApplied(result);
      break;
    case TransactionOutcome::kRefused:
      status = TakeRefusal(result, place);
      has_ended = status.ok();
      break;
    case TransactionOutcome::kNotApplied:
      has_ended = true;
      break;
    case TransactionOutcome::kUnknown:
      break;
  }
  // Of an earlier revision it is settled, whatever the answer.
  if (sent_->mod_revision == shard_.mod_revision) {
    if (!has_ended) is_unknown_ = true;
    if (!is_unknown_) pending_.reset();
  }
  sent_.reset();
  return status;
}

absl::Status SwapTracker::TakeApplied(const TransactionResult& result) {
  if (result.header.revision <= sent_->mod_revision)
    return absl::DataLossError(absl::StrCat("etcd answers at revision ", result.header.revision,
                                            " that it has changed shard ", shard_.shard,
                                            ", which was of revision ", sent_->mod_revision));
  Saw({shard_.shard, result.header.revision, sent_->next});
  return absl::OkStatus();
}

absl::Status SwapTracker::TakeRefusal(const TransactionResult& result, size_t place) {
  // Also if its record cannot be read. *Else* it keeps the swaps of other shards from being applied.
  if (result.results.size() > 1) sends_alone_ = true;
  if (place >= result.results.size() || result.results[place].keys.size() > 1)
    return absl::DataLossError("etcd answers a refused transaction without a shard's record");
  if (result.results[place].keys.empty())
    return absl::DataLossError(absl::StrCat("the record of shard ", shard_.shard,
                                            " is gone from etcd; restore etcd from a backup"));
  const StoredKey& key = result.results[place].keys[0];
  const absl::StatusOr<ShardRecord> record = DecodeShardRecord(key.value);
  if (!record.ok()) return record.status();
  Saw({shard_.shard, key.mod_revision, *record});
  sends_alone_ = result.results.size() > 1;
  return absl::OkStatus();
}

std::vector<Replica> SwapTracker::Counted() const {
  std::vector<Replica> counted = shard_.record.in_sync;
  if (!pending_.has_value()) return counted;
  for (const Replica& replica : pending_->in_sync) {
    if (!shard_.record.Has(replica)) counted.push_back(replica);
  }
  return counted;
}

bool SwapTracker::IsPrimary(const Replica& self) const {
  return shard_.record.HasAsPrimary(self) &&
         (!pending_.has_value() || pending_->HasAsPrimary(self));
}

}  // namespace osprey
