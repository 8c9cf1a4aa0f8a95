// The groups of entries that a replica of a shard holds in memory: applied ones that another replica
// may still need, and pending ones.
//
//       discarded      kept, applied        pending
//   ................+------------------+---------------+
//                   ^                  ^               ^
//               kept_after()        applied()       last()
//
// A log sequence number (lsn) counts the entries of the shard. A group is applied, or replaced, whole.
//
// Two replicas have applied the same groups, as far as both have applied. Their pending groups may
// differ after a primary has failed. Two groups of the same lsns and term are the same group, since
// only the primary of that term decided it.
//
// Thread rule: one thread.

#ifndef OSPREY_SERVER_CLUSTER_REPLICATION_REPLICA_LOG_H_
#define OSPREY_SERVER_CLUSTER_REPLICATION_REPLICA_LOG_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>

namespace osprey {

// Entries that a primary decided together.
struct ReplicatedGroup {
  uint64_t first_lsn = 0;  // 1 or more
  uint64_t last_lsn = 0;   // included
  uint64_t term = 0;       // of the decision
  std::shared_ptr<const std::string> body;

  uint64_t bytes() const { return body->size(); }
  bool IsSameAs(const ReplicatedGroup& other) const {
    return first_lsn == other.first_lsn && last_lsn == other.last_lsn && term == other.term;
  }
};

class ReplicaLog {
 public:
  // Everything up to `applied` is in the replica's table already; 0: the shard is new.
  explicit ReplicaLog(uint64_t applied = 0)
      : kept_after_(applied), applied_(applied), last_(applied) {}

  uint64_t kept_after() const { return kept_after_; }
  uint64_t applied() const { return applied_; }
  uint64_t last() const { return last_; }
  uint64_t pending_bytes() const { return pending_bytes_; }
  uint64_t kept_bytes() const { return end_ - discarded_bytes_; }  // of all groups here

  // Of the groups here that end at `lsn` or before.
  uint64_t BytesUpTo(uint64_t lsn) const;

  // REQUIRES: it begins at last() + 1.
  void Append(ReplicatedGroup group);
  // Forgets the pending groups behind `lsn`, the end of a group.
  // REQUIRES: applied() <= lsn <= last().
  void CutAfter(uint64_t lsn);
  // The group that begins at lsn + 1. Null: it is not here. Valid until the next change.
  const ReplicatedGroup* After(uint64_t lsn) const;
  // Null: none is kept. Likewise.
  const ReplicatedGroup* last_group() const {
    return groups_.empty() ? nullptr : &groups_.back().group;
  }
  // Whether a group ends at `lsn`, or the kept ones begin behind it.
  bool IsBoundary(uint64_t lsn) const;
  // The first pending group is applied, and the last one of it is now `applied()`.
  // REQUIRES: there is one.
  void MarkApplied();
  // No other replica needs the applied groups up to `lsn` any more. Lower lsns than before do nothing.
  void Discard(uint64_t lsn);

 private:
  // Of the first group that begins behind `lsn`.
  size_t IndexAfter(uint64_t lsn) const;

  struct Kept {
    ReplicatedGroup group;
    uint64_t begin = 0;  // bytes that were appended before it, ever
  };

  std::deque<Kept> groups_;  // contiguous, from kept_after_ + 1 to last_
  uint64_t kept_after_;
  uint64_t applied_;
  uint64_t last_;
  uint64_t pending_bytes_ = 0;
  uint64_t discarded_bytes_ = 0;
  uint64_t end_ = 0;  // of the bytes that were appended, less those that were cut
};

}  // namespace osprey

#endif  // OSPREY_SERVER_CLUSTER_REPLICATION_REPLICA_LOG_H_
