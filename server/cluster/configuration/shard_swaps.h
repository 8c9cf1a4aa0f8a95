// The changes of shards' records. Each is a swap: a transaction that compares the revision of the
// record, and puts the next one.
//
//   const ShardAuthor author{keys, self};                     // self: this server's replica
//   auto swap = DropMember(author, tracker.shard(), "c", cluster.min_in_sync);
//   if (swap.ok() && tracker.MayBegin(*swap)) {
//     tracker.Begin(*swap);                                   // before it is sent (swap_tracker.h)
//     tracker.TakeAnswer(store.Execute(SwapTransaction(keys, {*swap}), timeout), 0);
//   }
//
//   swap           its author            the record's next value              further conditions
//   AdoptShard     any server            term 1, the author alone             the author's key
//   DropMember     the primary           without that member                  the author's key
//   AddMember      the primary           with the joiner                      … and the joiner's key
//   PromoteSelf    a member              next term, the author is primary,    … and the primary's key
//                                        the primary before is no member      is gone
//   HandOver       the primary           next term, a member is primary       the author's key
//   ResumePlace    a member's server,    the member's new incarnation;        the new key
//                  incarnated again      no primary, if it was that
//   RenewRecord    any server            the same: it only ends swaps         the author's key
//                                        that may still be on their way
//   BeginMove      anyone                with the move                        none
//   EndMove        anyone                without it                           none
//
// A move ends with the member that it is from: DropMember and PromoteSelf take it out.
//
// A server's key counts as there only with the create revision that a replica names.
//
// Thread rule: plain functions and values.

#ifndef OSPREY_SERVER_CLUSTER_CONFIGURATION_SHARD_SWAPS_H_
#define OSPREY_SERVER_CLUSTER_CONFIGURATION_SHARD_SWAPS_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "server/cluster/configuration/cluster_keys.h"
#include "server/cluster/configuration/shard_record.h"
#include "server/cluster/etcd/etcd_store.h"

namespace osprey {

// In one transaction. With their conditions they stay below etcd's limit of 128 compares.
inline constexpr size_t kSwapsMax = 32;

struct ShardSwap {
  uint32_t shard = 0;
  int64_t mod_revision = 0;              // of the record that it changes
  ShardRecord next;                      // what that becomes
  std::vector<StoreCompare> conditions;  // beside the record's revision
  bool alone = false;                    // shares no transaction (SwapTracker::sends_alone)
};

struct ShardAuthor {
  ClusterKeys keys;
  Replica self;  // of the shard in question
};

// Errors of all: FAILED_PRECONDITION, if `seen` does not allow the swap, with the reason. A swap whose
// record has changed since is refused by the store.

// The first replica of a shard. `self` has a new life, and begins empty.
absl::StatusOr<ShardSwap> AdoptShard(const ShardAuthor& author, const StoredShard& seen,
                                     uint64_t highest_term);

// A backup that is silent. Leaves at least `min_in_sync` members: to go below, the primary has to hand
// over instead. Until the swap is known to have happened, the primary counts that member.
absl::StatusOr<ShardSwap> DropMember(const ShardAuthor& author, const StoredShard& seen,
                                     absl::string_view server, uint32_t min_in_sync);

// A replica that has everything committed. REQUIRES: the author's own tail is committed, and from
// before the sending it waits for the joiner as for a member.
absl::StatusOr<ShardSwap> AddMember(const ShardAuthor& author, const StoredShard& seen,
                                    const Replica& joiner);

// `primary_key`: the create revision that the key of the primary's server had in a linearizable read;
// 0: it was absent. It differs from that of the primary, whose right has ended. Without a primary it is
// not looked at. `highest_term`: that the author has seen in any record of the shard.
absl::StatusOr<ShardSwap> PromoteSelf(const ShardAuthor& author, const StoredShard& seen,
                                      int64_t primary_key, uint64_t highest_term);

// REQUIRES: the author's region has not said for a reader's lease that it serves the shard, and the
// author has stopped to decide.
absl::StatusOr<ShardSwap> HandOver(const ShardAuthor& author, const StoredShard& seen,
                                   absl::string_view successor, uint64_t highest_term);

// `before`: the replica that the author's log or memory has, whole: everything that it ever
// acknowledged. `self` is the same server and life, under a new incarnation and key. REQUIRES: the
// server has not begun to copy the shard since (that is another life).
absl::StatusOr<ShardSwap> ResumePlace(const ShardAuthor& author, const StoredShard& seen,
                                      const Replica& before);

// An operator accepts the loss of all that the shard has: the next server adopts it, empty. It has no author. The
// caller adds conditions by which the right of each member's server has ended.
absl::StatusOr<ShardSwap> GiveUpShard(const StoredShard& seen);

// A copy is to move. `from` is a member, `to` is none, and no other move of the shard is under way.
absl::StatusOr<ShardSwap> BeginMove(const StoredShard& seen, ShardMove move);
// It is done, or given up.
absl::StatusOr<ShardSwap> EndMove(const StoredShard& seen);

// Never fails.
ShardSwap RenewRecord(const ShardAuthor& author, const StoredShard& seen);

// A refused transaction has read the record of each, in this order. REQUIRES: 1 to kSwapsMax swaps, of
// no shard twice.
Transaction SwapTransaction(const ClusterKeys& keys, absl::Span<const ShardSwap> swaps);

// The swaps of each transaction: those that are `alone` by themselves, the others kSwapsMax at a time.
std::vector<std::vector<ShardSwap>> GroupSwaps(std::vector<ShardSwap> swaps);

}  // namespace osprey

#endif  // OSPREY_SERVER_CLUSTER_CONFIGURATION_SHARD_SWAPS_H_
