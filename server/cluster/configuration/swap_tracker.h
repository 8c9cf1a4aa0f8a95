// What becomes of the swaps that one server makes of one shard's record, and which replicas it has to
// count meanwhile.
//
//            Begin                   applied, refused, not applied
//   idle ───────────> awaits answer ───────────────────────────────> idle
//                       ^    │ unknown, or an earlier one is unknown
//     the same swap,    │    v
//     or RenewRecord    └─ unknown ────────────────────────────────> idle
//                              the record has another revision
//
// - A swap without an answer may still happen. *Else* an author that reads the record again, unchanged,
//   stops to count a joiner, and the record comes to name it.
// - Only another revision of the record excludes that. A refusal of the same swap, sent again, does not:
//   it may be due to another condition, which held before.
// - A joiner is counted from before its swap is sent, and a dropped member until its swap is known to
//   have happened. *Else* the record names a replica that lacks what was acknowledged.
//
// RenewRecord settles an unknown swap: once it is applied the revision is another.
//
// Thread rule: one thread.

#ifndef OSPREY_SERVER_CLUSTER_CONFIGURATION_SWAP_TRACKER_H_
#define OSPREY_SERVER_CLUSTER_CONFIGURATION_SWAP_TRACKER_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "server/cluster/configuration/cluster_keys.h"
#include "server/cluster/configuration/shard_record.h"
#include "server/cluster/configuration/shard_swaps.h"
#include "server/cluster/etcd/etcd_store.h"

namespace osprey {

class SwapTracker {
 public:
  enum class State { kIdle, kAwaitsAnswer, kUnknown };

  explicit SwapTracker(uint32_t shard) { shard_.shard = shard; }

  // The newest record that was read or written. mod_revision 0: none yet.
  const StoredShard& shard() const { return shard_; }
  State state() const;

  // A linearizable read has found this. False: it is no newer than shard(), and says nothing.
  // REQUIRES: of the same shard.
  bool Saw(const StoredShard& seen);

  // Whether the swap is of shard(), and can be sent now. In kUnknown only the same change of the
  // record can be, or none of it (RenewRecord).
  bool MayBegin(const ShardSwap& swap) const;
  // Before the swap is sent. REQUIRES: MayBegin(swap).
  void Begin(const ShardSwap& swap);
  // The answer to the transaction that had the swap; `place`: which of its swaps. REQUIRES: since
  // Begin this is the first. Errors: DATA_LOSS (an answer that no store gives), and those of
  // DecodeShardRecord; then the swap counts as unknown.
  absl::Status TakeAnswer(const TransactionResult& result, size_t place);

  // The replicas that the record names, or may come to name by the swap under way. What a primary
  // commits, each of them has acknowledged.
  std::vector<Replica> Counted() const;
  // Whether the record names `self` as primary, and no swap under way can change that.
  bool IsPrimary(const Replica& self) const;
  // A transaction with swaps of several shards was refused: the next swap goes alone.
  bool sends_alone() const { return sends_alone_; }

 private:
  absl::Status TakeApplied(const TransactionResult& result);
  absl::Status TakeRefusal(const TransactionResult& result, size_t place);

  StoredShard shard_;
  // May come to pass while the record has shard_'s revision.
  std::optional<ShardRecord> pending_;
  // One that was sent of shard_'s revision has an unknown outcome.
  bool is_unknown_ = false;
  std::optional<ShardSwap> sent_;  // and not answered
  bool sends_alone_ = false;
};

}  // namespace osprey

#endif  // OSPREY_SERVER_CLUSTER_CONFIGURATION_SWAP_TRACKER_H_
