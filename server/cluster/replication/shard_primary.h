// The primary of a shard in one term: decides groups, sends them to the other replicas, and commits
// what all members have confirmed.
//
//   Decide ──> pending ──NextAppend──> each replica
//                 │<───────TakeAck──────┘
//                 v
//           commit_point() ──> the owner applies, publishes, answers, and calls MarkApplied of the log
//
// A new primary has a tail: what was pending when its term began. It serves once that is committed and
// applied, and decides nothing before.
//
// Rules:
//
// - A member counts until the record is known not to name it, and from the moment in which a swap may name
//   it (SetCounted). *Else* a group is committed that a later primary does not have.
// - An acknowledgement counts in its own term, for the replica that sent it. *Else* one of an earlier term,
//   or of an earlier copy, stands for a group that the replica does not have.
// - The tail is acknowledged in the new term before the primary serves. *Else* another member may be
//   promoted without a write that was READ here.
// - Applied groups are kept until every replica has applied them. *Else* a member that has only confirmed
//   them cannot confirm them to the next primary.
// - With fewer than the least number in sync it commits its tail, and nothing that it has decided. *Else* an
//   acknowledged write is on fewer servers than the cluster promises.
// - A joiner's appends begin behind what was applied when its copy began. *Else* the copy has no pending
//   group of that time, and neither have the appends.
//
// Thread rule: one thread.

#ifndef OSPREY_SERVER_CLUSTER_REPLICATION_SHARD_PRIMARY_H_
#define OSPREY_SERVER_CLUSTER_REPLICATION_SHARD_PRIMARY_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/types/optional.h"
#include "server/cluster/replication/replica_log.h"
#include "server/cluster/replication/replica_name.h"
#include "server/cluster/replication/replication_messages.h"

namespace osprey {

// Bytes of appends that a replica has not acknowledged: more are sent after its next answer.
inline constexpr uint64_t kUnacknowledgedBytesMax = 1 << 20;

class ShardPrimary {
 public:
  // What the primary has learned of another replica.
  struct Peer {
    bool is_connected = false;
    bool is_greeted = false;    // an append was sent, whose answer says where to go on
    bool has_answered = false;  // on this connection
    bool is_unfit = false;      // it cannot confirm what it was sent, and has to be dropped
    uint64_t confirmed = 0;     // in this term
    uint64_t applied = 0;       // or more
    uint64_t copied_to = 0;     // of a joiner: what its copy alone has ends here
    uint64_t decided = 0;       // … and what was decided before the end of the copy
    uint64_t sent = 0;          // the last lsn on its way
    uint64_t sent_commit_point = 0;
  };

  // `log` outlives this. What it has pending is the tail. `min_in_sync`: this replica included.
  ShardPrimary(uint32_t shard, uint64_t term, ReplicaName self, uint32_t min_in_sync,
               ReplicaLog& log);

  uint64_t term() const { return term_; }
  // The tail is applied: the shard may be served, and groups decided.
  bool has_tail_applied() const;
  // A backup has refused this term: a later one has begun.
  bool is_deposed() const { return is_deposed_; }

  // The members that commits wait for, without this one; `in_sync`: how many the record names, with it.
  // All others are streams to joiners, or ended by RemovePeer.
  void SetCounted(const std::vector<ReplicaName>& counted, uint32_t in_sync);
  // Appends go to this replica, whose copy begins now. Returns the lsn up to which the copy has
  // everything, since that is applied here; ShardReplica::BeginCopy takes it.
  uint64_t AddJoiner(const ReplicaName& joiner);
  // All of its copy was sent.
  void EndCopy(const ReplicaName& joiner);
  // Then the joiner may be counted (SetCounted), before any other group is decided, and after that a
  // swap that adds it may be sent. It has confirmed what is committed. *Else* a group that was committed
  // without it, and is applied later, is missing when it is promoted. It has confirmed what all members
  // have. *Else* a mark of time counts that it does not have. And all members have applied what
  // its copy has. *Else* they need groups, when it is promoted, that it has in its copy alone. And they
  // have what was decided before the copy ended. *Else* the copy lacks what an eviction has removed,
  // which takes effect when it is decided, and the others never learn of it. REQUIRES: EndCopy.
  bool HasCaughtUp(const ReplicaName& joiner) const;
  void RemovePeer(const ReplicaName& name);
  const std::map<ReplicaName, Peer>& peers() const { return peers_; }

  // The connection to a peer begins, or has ended.
  void Connected(const ReplicaName& name);
  void Disconnected(const ReplicaName& name);
  // The next message to a peer, whose sending takes its place in the order; none: nothing is due. Without
  // `tells_commit_point` a commit point waits for the next groups.
  absl::optional<Append> NextAppend(const ReplicaName& name, bool tells_commit_point = true);
  // An append without groups, to which a connected peer answers: to learn whether it still does.
  absl::optional<Append> Probe(const ReplicaName& name) const;
  // Those that have not answered get another greeting. Now and then, in case they did not know the
  // term.
  void GreetAgain();
  void TakeAck(const Ack& ack);

  // The owner has applied groups.
  void OnApplied() { log_.Discard(DiscardTo()); }
  // A group of so many entries takes its place. REQUIRES: has_tail_applied(); at most kGroupBytesMax bytes.
  // Returns its last lsn.
  uint64_t Decide(std::string body, uint64_t entries);
  // Groups up to here are committed.
  uint64_t commit_point() const { return commit_point_; }
  // Every replica that may succeed this one has the groups up to here, however few these are.
  uint64_t held_point() const { return held_point_; }

 private:
  Append AppendTo(const ReplicaName& name) const;
  void AdvanceCommitPoint();
  uint64_t DiscardTo() const;

  const uint32_t shard_;
  const uint64_t term_;
  const ReplicaName self_;
  ReplicaLog& log_;
  const uint64_t tail_;
  const uint32_t min_in_sync_;
  std::map<ReplicaName, Peer> peers_;
  std::vector<ReplicaName> counted_;
  uint32_t in_sync_ = 0;  // as the record says, this replica included
  uint64_t commit_point_;
  uint64_t held_point_;
  bool is_deposed_ = false;
};

}  // namespace osprey

#endif  // OSPREY_SERVER_CLUSTER_REPLICATION_SHARD_PRIMARY_H_
