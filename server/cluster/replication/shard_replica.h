// One replica of a shard, whatever its role: follows the shard's record from term to term.
//
//              record names it a member            record names it primary
//   kOut ──BeginCopy──> kJoining ──────────> kBackup ──────────> kPrimary
//     ^                    │                    │                   │
//     '────────────────────┴────────────────────┴───────────────────'
//            the record names it no more; what it holds counts for nothing
//
// The record is configuration: it changes only by swaps, which the owner makes. A replica does not
// propose them; it shows what there is to decide about them.
//
// Thread rule: one thread.

#ifndef OSPREY_SERVER_CLUSTER_REPLICATION_SHARD_REPLICA_H_
#define OSPREY_SERVER_CLUSTER_REPLICATION_SHARD_REPLICA_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/optional.h"
#include "server/cluster/replication/replica_log.h"
#include "server/cluster/replication/replica_name.h"
#include "server/cluster/replication/replication_messages.h"
#include "server/cluster/replication/shard_backup.h"
#include "server/cluster/replication/shard_primary.h"

namespace osprey {

// What a shard's record says.
struct ShardPlaces {
  uint64_t term = 0;
  ReplicaName primary;
  std::vector<ReplicaName> in_sync;  // the primary too
};

class ShardReplica {
 public:
  enum class Role { kOut, kJoining, kBackup, kPrimary };

  // `store` outlives this. Without a name the replica holds nothing, until BeginCopy or BeginEmpty.
  ShardReplica(uint32_t shard, ReplicaName self, uint32_t min_in_sync, ReplicaStore& store);

  Role role() const { return role_; }
  uint64_t term() const { return term_; }
  const ReplicaName& self() const { return self_; }
  const ReplicaLog& log() const { return log_; }

  // Begins to join: as `name`, whose life is new, by a copy from the primary of this term, which has
  // applied everything up to `applied`. The table is empty, or becomes the copy. REQUIRES: kOut.
  void BeginCopy(const ReplicaName& name, const ShardPlaces& places, uint64_t applied);
  // Takes the name by which the first record of a shard will name it, as primary. REQUIRES: kOut.
  void BeginEmpty(const ReplicaName& name);
  // This server has another incarnation, and the record names that in the place of self(). What the
  // replica holds is a tail, as after a promotion. REQUIRES: it has a name.
  void Rename(const ReplicaName& name, const ShardPlaces& places);
  // A record that was read from the store, in any order. Groups that were pending stay. A primary that
  // becomes a backup reserves those that it has decided, or leaves: the owner has dropped what it had
  // prepared for them.
  void TakePlaces(const ShardPlaces& places);
  // What it holds counts for nothing any more, and it has no name. Its table is for the owner to empty.
  void Leave();

  // Of the present term, if this is its primary; else null.
  const ShardPrimary* primary() const { return primary_.has_value() ? &*primary_ : nullptr; }
  ShardPrimary* primary() { return primary_.has_value() ? &*primary_ : nullptr; }
  // Appends for another replica, or that come when this is none, are refused.
  Ack TakeAppend(const Append& append);
  // Why a group was refused with kNoRoom; OK: none was.
  absl::Status failure() const {
    return backup_.has_value() ? backup_->failure() : absl::OkStatus();
  }
  // A primary applies its tail, as far as it is committed. Groups that it has decided itself are for
  // the owner to apply, and to report by MarkApplied.
  void ApplyTail();
  // The owner has applied the next groups that were decided here, up to this lsn.
  void MarkApplied(uint64_t lsn);

 private:
  void BecomePrimary();
  bool ReserveOwn();
  // A primary reserves nothing for what it decides.
  bool IsReserved(const ReplicatedGroup& group) const {
    return role_ != Role::kPrimary || group.term < term_;
  }

  const uint32_t shard_;
  const uint32_t min_in_sync_;
  ReplicaName self_;
  ReplicaStore& store_;
  Role role_ = Role::kOut;
  uint64_t term_ = 0;
  ReplicaLog log_;
  absl::optional<ShardBackup> backup_;
  absl::optional<ShardPrimary> primary_;
};

}  // namespace osprey

#endif  // OSPREY_SERVER_CLUSTER_REPLICATION_SHARD_REPLICA_H_
