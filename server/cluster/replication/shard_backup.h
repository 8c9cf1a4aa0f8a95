// A backup of a shard: holds what the primary of a term appends, and applies what is committed.
//
//   record of term t ──> Follow(t, primary)
//   Append of t ──> TakeAppend: each group that follows is compared, and placed ──> Ack
//                                                 │
//       ReplicaStore::Reserve <───────────────────┘   before it is confirmed
//       ReplicaStore::Apply   <── the commit point passes a confirmed group
//
// Rules:
//
// - An append of a lower term is refused. *Else* a primary that was replaced commits a write which its
//   successor does not have.
// - A higher term counts only after the shard's record with it was read (Follow). *Else* a message
//   alone makes a primary.
// - The commit point covers only groups that were confirmed in this term. *Else* a pending group that the
//   new primary has replaced is applied.
// - Pending groups of an earlier term stay until other groups arrive in their place. *Else* a committed
//   group is lost when this backup is promoted before they arrive.
// - A group that replaces another takes all behind that away. *Else* these follow a group that they were
//   not decided after.
// - A group is confirmed when it is here whole, and the table has reserved its room.
//
// Thread rule: one thread.

#ifndef OSPREY_SERVER_CLUSTER_REPLICATION_SHARD_BACKUP_H_
#define OSPREY_SERVER_CLUSTER_REPLICATION_SHARD_BACKUP_H_

#include <cstdint>

#include "absl/status/status.h"
#include "server/cluster/replication/replica_log.h"
#include "server/cluster/replication/replica_name.h"
#include "server/cluster/replication/replication_messages.h"

namespace osprey {

// The table of a replica, as replication uses it. Groups come in the order of their lsns; the same
// group may come again after Release.
class ReplicaStore {
 public:
  virtual ~ReplicaStore() = default;
  // Reserves all that Apply needs. Errors: the group has no room, or is malformed; nothing is reserved.
  virtual absl::Status Reserve(const ReplicatedGroup& group) = 0;
  // The group was reserved last, and will not be applied.
  virtual void Release(const ReplicatedGroup& group) = 0;
  // REQUIRES: it was reserved. Cannot fail.
  virtual void Apply(const ReplicatedGroup& group) = 0;
};

class ShardBackup {
 public:
  // Both outlive this. What `log` has pending is reserved.
  ShardBackup(uint32_t shard, ReplicaName self, ReplicaLog& log, ReplicaStore& store)
      : shard_(shard), self_(self), log_(log), store_(store) {}

  // The shard's record, which was read from the store, names this primary in this term. Lower terms
  // than before do nothing.
  void Follow(uint64_t term, ReplicaName primary);
  uint64_t term() const { return term_; }
  // Up to here the groups are those of the term's primary.
  uint64_t confirmed() const { return confirmed_; }
  // Why a group was refused with kNoRoom; OK: none was.
  const absl::Status& failure() const { return failure_; }

  // Takes an append, and returns the answer.
  Ack TakeAppend(const Append& append);

 private:
  Ack Answer(AckCode code, const Append& append) const;
  void CutAfter(uint64_t lsn);
  AckCode Place(const ReplicatedGroup& group);
  void ApplyUpTo(uint64_t lsn);

  const uint32_t shard_;
  const ReplicaName self_;
  ReplicaLog& log_;
  ReplicaStore& store_;
  uint64_t term_ = 0;
  ReplicaName primary_;
  uint64_t confirmed_ = 0;
  absl::Status failure_;
};

}  // namespace osprey

#endif  // OSPREY_SERVER_CLUSTER_REPLICATION_SHARD_BACKUP_H_
