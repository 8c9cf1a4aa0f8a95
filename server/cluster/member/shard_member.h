// A server's part in one shard: its replica, the swaps of the shard's record that are due, and copies
// to and from others.
//
//   record, read ──Saw──> SwapTracker ──> ShardReplica: backup, primary, out
//                            │                 │ ^
//   WantedSwap <─────────────┘            Pump │ │ TakeAppend, TakeAck, TakeCopy
//      what is missing: a primary, members,    v │
//      one member less                        the other servers
//
//   wants                      when
//   to adopt the shard         it is new
//   to resume its place        the record names an earlier incarnation, whose memory this server has
//   to be promoted             it is a member, and the key of the primary's server is gone
//   to drop a member           as primary: it cannot go on, was silent for too long, or its server
//                              has a new incarnation
//   to add a joiner            as primary: it has the copy, and all that is committed
//   to hand the shard over     as primary: when asked; when its own copy moves to a member; or when it waits for
//                              a silent member, without which too few would be left
//   to begin or end a move     as primary: so that another shard has room; when nothing of it is left to do
//   to renew the record        a swap has an unknown outcome
//
// Rules:
//
// - A joiner keeps a whole copy until a record of a later term does not name it, or the primary refuses
//   its name. *Else* a swap that is under way adds a replica that holds nothing.
// - A replica that was given up never comes back under its name.
// - A primary that hands over first ends its region's claim to serve. It waits for readers' leases to end,
//   a tenth more, and then sends the swap; from then on it neither decides nor answers. *Else* a client
//   READs here what the successor has changed.
//
// Thread rule: one thread. Time is that of the server's lease clock.

#ifndef OSPREY_SERVER_CLUSTER_MEMBER_SHARD_MEMBER_H_
#define OSPREY_SERVER_CLUSTER_MEMBER_SHARD_MEMBER_H_

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "server/cluster/configuration/cluster_keys.h"
#include "server/cluster/configuration/cluster_record.h"
#include "server/cluster/configuration/configuration_watch.h"
#include "server/cluster/configuration/shard_record.h"
#include "server/cluster/configuration/shard_swaps.h"
#include "server/cluster/configuration/swap_tracker.h"
#include "server/cluster/etcd/etcd_store.h"
#include "server/cluster/member/copy_rate.h"
#include "server/cluster/member/replica_host.h"
#include "server/cluster/replication/replication_messages.h"
#include "server/cluster/replication/shard_replica.h"

namespace osprey {

inline ReplicaName NameOf(const Replica& replica) { return {replica.incarnation, replica.life}; }

struct ShardMemberOptions {
  ClusterKeys keys;
  ClusterRecord cluster;
  std::string server;  // its ID
  // A member that has not answered for so long is dropped.
  absl::Duration backup_timeout = absl::Seconds(1);
  // A joiner without a message for so long asks again.
  absl::Duration join_interval = absl::Milliseconds(500);
  // A replica without room for the shard joins again after this.
  absl::Duration full_interval = absl::Seconds(10);
  // Of all shards of the server; null: there is no limit. It outlives the member.
  CopyRate* copy_rate = nullptr;
  std::function<uint64_t()> random;  // 64 bits. Required.
  // Takes a line for the operator's log. May be empty.
  std::function<void(absl::string_view line)> log;
};

class ShardMember {
 public:
  // Both outlive this.
  ShardMember(uint32_t shard, ShardMemberOptions options, MemberTable& table, PeerSender& sender);

  // --- This server has a new incarnation; or its key in the store was created, at this revision (0: not
  // yet). What the replica held under the last one is a tail, until it has resumed its place.
  void SetServer(int64_t create_revision, uint64_t incarnation);

  // --- The record
  void Saw(const StoredShard& seen, absl::Time now);
  // Nothing: nothing is to be changed, or an answer is awaited. REQUIRES: the server has its right.
  std::optional<ShardSwap> WantedSwap(const ConfigurationWatch& watch, absl::Time now);
  // Before the swap is sent. REQUIRES: WantedSwap returned it, and nothing was decided since.
  void BeginSwap(const ShardSwap& swap);
  absl::Status TakeAnswer(const TransactionResult& result, size_t place, absl::Time now);

  // --- Other servers
  // Adds the servers, by ID, to which this one has something to send, or will have: other members; the primary that a
  // joiner asks; a primary's joiner.
  void AddNeededServers(std::set<std::string>& servers) const;
  void LinkUp(uint64_t incarnation);
  void LinkDown(uint64_t incarnation);
  void TakeAppend(const Append& append, absl::Time now);
  void TakeAck(const Ack& ack, absl::Time now);
  void TakeCopy(const CopyMessage& message, const ConfigurationWatch& watch, absl::Time now);
  // Sends what is due.
  void Pump(absl::Time now);
  // Of that, at a primary, appends.
  void PumpAppends(absl::Time now);

  // --- Serving
  // This is the shard's primary, has applied its tail, and no swap is under way that makes another one it.
  // The right of the server is another matter.
  bool serves() const;
  // It serves, and the region may say so: clients may READ here.
  bool publishes() const { return serves() && !hand_over_.has_value(); }
  // Begins to hand the shard over to this member: from now on the region says no more that this server
  // serves. Writes and GETs by message go on until the clients' leases have ended, and the swap begins.
  // Afterwards this replica is a backup; or nothing has come of it, and it publishes again.
  // REQUIRES: serves().
  void HandOverTo(std::string server, absl::Time now);
  // The region says only now that this server does not serve.
  void ReadersEnd(absl::Time now);
  bool hands_over() const { return hand_over_.has_value(); }
  // The next swap shares no transaction (SwapTracker).
  bool sends_alone() const { return tracker_.sends_alone(); }
  // Whether this server is to have a copy, if it has none (MissingCopies). It may always keep one.
  void SetAssigned(bool assigned) { is_assigned_ = assigned; }
  // A move that is to begin, if this is the primary (NextRelief).
  void SetRelief(std::optional<ShardMove> move) { relief_ = std::move(move); }
  // Whether this server is about to end: then it drops no member that is only silent. *Else* no server may have the
  // data afterwards.
  void SetEnds(bool ends) { ends_ = ends; }
  // IsMoveStuck: as the primary, it ends the move.
  void SetMoveStuck(bool is_stuck);
  bool HasLinkTo(const Replica& member) const { return links_.contains(member.incarnation); }
  // Clients' writes may be decided: it serves, and enough members are in sync.
  bool may_decide() const;
  // REQUIRES: serves(). Returns the lsn with which the group is committed.
  uint64_t Decide(std::string body, uint64_t entries);
  uint64_t commit_point() const;
  // ShardPrimary::held_point.
  uint64_t held_point() const;
  // The owner has applied what was decided, up to this lsn.
  void MarkApplied(uint64_t lsn) { replica_.MarkApplied(lsn); }

  // The record has changed, as others say: it should be read soon. Once for each time.
  bool TakeWantsRead() { return std::exchange(wants_read_, false); }

  const ShardReplica& replica() const { return replica_; }
  const StoredShard& record() const { return tracker_.shard(); }

 private:
  // A replica that joins, at the primary.
  struct Joiner {
    Replica replica;
    bool is_sent = false;   // all of the copy
    bool is_whole = false;  // it says so
  };

  // The shard goes to this member once readers' leases have ended.
  struct HandingOver {
    std::string to;
    absl::Time since;
  };

  ShardAuthor Author() const;
  void TakeRecord(absl::Time now);
  void TakeInitialRecord(const ShardRecord& record);
  void Count(absl::Time now);
  void EndPrimary();
  void TellOfTerm(const ShardPlaces& places);
  void LeaveShard();
  void NoteFull(const absl::Status& why, absl::Time now);
  std::vector<ReplicaName> CountedNames() const;
  uint64_t NewLife() const;
  uint32_t InSync() const { return static_cast<uint32_t>(tracker_.shard().record.in_sync.size()); }
  void ForgetJoiner();
  std::optional<ShardSwap> WantedOfPrimary(const ConfigurationWatch& watch, absl::Time now);
  std::optional<ShardSwap> WantedHandOver(absl::Time now);
  std::optional<ShardSwap> WantedMove(const ConfigurationWatch& watch, absl::Time now);
  size_t Staying() const;
  bool HasEnded(const Replica& member, const ConfigurationWatch& watch) const;
  bool IsSilent(const Replica& member, absl::Time now) const;
  bool IsOfJoiner(const CopyMessage& message) const;
  void TakeJoin(const CopyMessage& message, const ConfigurationWatch& watch);
  void TakeWhole(const CopyMessage& message);
  void TakeOfCopy(const CopyMessage& message, absl::Time now);
  void TakeBegin(const CopyMessage& message);
  void AskToJoin(absl::Time now);
  void PumpCopy(absl::Time now);
  bool MaySendChunk(uint64_t to, absl::Time now) const;
  void SendCopy(uint64_t to, const ReplicaName& joiner, CopyKind kind, uint64_t lsn = 0,
                std::string bytes = "");
  ReplicaName name() const { return {self_.incarnation, self_.life}; }

  const uint32_t shard_;
  const ShardMemberOptions options_;
  MemberTable& table_;
  PeerSender& sender_;
  Replica self_;                   // life 0: this server has no replica
  std::optional<Replica> before_;  // the replica's name in the record, of an earlier incarnation
  ShardReplica replica_;
  SwapTracker tracker_;
  uint64_t highest_term_ = 0;
  bool wants_read_ = false;
  bool is_assigned_ = false;
  std::optional<ShardMove> relief_;
  bool is_move_stuck_ = false;
  bool ends_ = false;
  std::set<uint64_t> links_;  // incarnations to which there is one

  // At a primary.
  std::map<ReplicaName, absl::Time> heard_;   // of each peer, last
  std::map<ReplicaName, absl::Time> probed_;  // and asked
  std::optional<Joiner> joiner_;
  std::optional<HandingOver> hand_over_;
  absl::Time term_since_ = absl::InfinitePast();  // the term began, or a hand-over
  bool swaps_hand_over_ = false;  // its swap was begun, and the outcome is not known
  absl::Time greeted_ = absl::InfinitePast();

  // At a joiner.
  bool asks_ = false;         // its name was sent to a primary
  bool is_clearing_ = false;  // the table, of an earlier replica
  bool copy_is_whole_ = false;
  absl::Time asked_ = absl::InfinitePast();
  absl::Time full_until_ = absl::InfinitePast();  // the shard had no room here
  absl::Time primary_heard_ = absl::InfinitePast();
};

}  // namespace osprey

#endif  // OSPREY_SERVER_CLUSTER_MEMBER_SHARD_MEMBER_H_
