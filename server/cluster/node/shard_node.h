// A slot of a server of a cluster: the tables of one shard, and its engines while this server is its primary. A
// slot that is free holds a shard once this server begins a copy of it, until the copy is left and cleared.
//
//   engines ──> ReplicatedWrites ──DecideGroups──> ShardMember ──CommitGroups──> ReplicatedWrites ──> answers
//                                       │
//                      Publish ──> MayAnswer, ServingBeat: what engines and READs may tell
//
// The shard has engines only while this server is its primary:
//
//   AwaitService ──> engines are made from the sessions ──> BeginService ──> they run
//     ^                                                                       │ the bell rings
//     └────────── EndService(their sessions) <── engines are destroyed <──────┘
//
// Two times bound what engines do: the right, while the record names this server, and the mark up to which it
// may judge expiries (TimeMarks). MayAnswer bounds answers, beats bound READs (server/cluster/beat).
//
// Thread rule: AwaitService, BeginService and EndService are the slot's own thread's, MayAnswer, stats and
// BeatBounds any thread's. All else is the cluster's thread's, or, under the lock of DrivenSteps, a poller's.

#ifndef OSPREY_SERVER_CLUSTER_NODE_SHARD_NODE_H_
#define OSPREY_SERVER_CLUSTER_NODE_SHARD_NODE_H_

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <limits>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "rdma/lease_clock.h"
#include "server/clock.h"
#include "server/cluster/beat/serving_beat.h"
#include "server/cluster/member/cluster_member.h"
#include "server/cluster/node/call_thread.h"
#include "server/cluster/node/replica_tables.h"
#include "server/cluster/node/replicated_writes.h"
#include "server/requests/sessions.h"
#include "server/requests/tables.h"
#include "server/stats/cluster_stats.h"

namespace osprey::server {

// What a server has for one shard. All outlive the node.
struct ShardParts {
  Tables& tables;
  Clock& clock;  // of the tables
  // The changes of each partition.
  std::vector<const ReplicatedChanges*> changes;
  ReplicatedWrites& writes;
  absl::Span<std::byte> region;
  uint64_t region_incarnation = 0;
};

// What the slots of a node share. All outlive them.
struct NodeContext {
  ClusterRecord cluster;
  std::string server;  // its ID
  std::function<uint64_t()> random;
  std::function<void(absl::string_view line)> log;
  SharedLeaseClock& clock;
  CallThread& asker;  // makes the calls that wait for engines
  CommitDriver& driver;
  const std::atomic<bool>& ends;  // the node
};

// A server that is to end.
struct ServerEnd {
  const std::set<uint64_t>& linked;  // incarnations to which there is a link
  bool has_others = false;           // ClusterMember::HasOthers
  absl::Time since;
};

// A shard whose engines may begin.
struct OfferedService {
  uint32_t shard = 0;
  std::vector<SessionImage> sessions;  // for Engine::RestoreSessions
};

class ShardNode final : private ReplicaTables::Owner {
 public:
  ShardNode(NodeContext context, ShardParts parts);
  ShardNode(const ShardNode&) = delete;
  ShardNode& operator=(const ShardNode&) = delete;

  // --- The slot's thread
  // Waits until this server is the primary of a shard that the slot holds, and has applied its tail. Nothing:
  // the server ends (SetMayEnd). Errors: the node cannot go on.
  absl::StatusOr<std::optional<OfferedService>> AwaitService();
  // The engines exist. `end` is called, on the cluster's thread, when they have to end; `take_sessions`
  // returns theirs, and waits for them. Both until EndService.
  void BeginService(std::function<void()> end,
                    std::function<std::optional<std::vector<SessionImage>>()> take_sessions);
  // They are destroyed; these were their sessions. What they had prepared is dropped.
  void EndService(std::vector<SessionImage> sessions);

  // --- Any thread
  bool holds_shard() const { return holds_shard_.load(); }
  // Whether an answer may leave now.
  bool MayAnswer() {
    return absl::ToUnixNanos(context_.clock.Now()) < answers_until_ns_.load() &&
           parts_.writes.marks().MayJudge(parts_.clock.Now());
  }
  ServingBounds BeatBounds();
  // As of the last TakeStats.
  ClusterStats stats() const;

  // --- The node
  bool is_free() const { return !number_.has_value(); }
  // The slot holds this shard. REQUIRES: is_free().
  void Hold(uint32_t number);
  // REQUIRES: the tables are empty, and it is not the primary.
  void Free();
  ReplicaTable& table() { return tables_; }
  // Before all that follows. `member` outlives this.
  void Begin(ClusterMember& member);
  ServingBeat& beat() { return *beat_; }
  // The server has a new incarnation.
  void TakeIncarnation();
  // Not OK: the node cannot go on.
  void Fail(const absl::Status& why);
  // `ends` has become true.
  void NotifyEnd();
  // The region says to no reader any more that this server serves. Returns when all leases have ended.
  absl::Time EndReaders();

  // --- Parts of a step. True: something was done.
  bool OfferService();
  bool DecideGroups(absl::Time now);
  bool CommitGroups();
  void PumpAppends(absl::Time now) { shard().PumpAppends(now); }
  // Takes the locks of partitions, for which a poller that drives does not wait.
  void ReviewMarks(absl::Time now);
  // What other threads may do from now on.
  void Publish(absl::Time now);
  // Adds what the slot has of its shard, and keeps the result for stats.
  void TakeStats(absl::Time now, ClusterStats& stats);
  uint64_t promotions() const { return promotions_; }
  uint64_t groups() const { return parts_.writes.decided(); }
  // The server is to end: hands the shard over to another one, if it can, and then the engines end.
  void Stop(absl::Time now, const ServerEnd& end);
  // The server is to end, and need not wait for this slot. Its shard may be this server's again.
  bool IsDone(absl::Time now) const;
  // Whether it need not wait for any. False at first.
  void SetMayEnd(bool may_end);
  // ShardMember::SetEnds.
  void SetEnds(bool ends) {
    if (!is_free()) shard().SetEnds(ends);
  }
  bool is_primary() const { return tables_.is_primary(); }
  void SetTakesParts(bool takes) { parts_.writes.SetTakesParts(takes); }
  uint32_t awaiting() const { return parts_.writes.awaiting(); }

 private:
  static constexpr int64_t kNever = std::numeric_limits<int64_t>::min();
  // Of the tables.
  enum class Service {
    kNone,      // they are a backup's
    kPrepared,  // they are the primary's, which has no mark of time yet that counts
    kOffered,   // AwaitService may take them
    kTaken,     // it has: engines are made
    kRuns,      // they are the engines'
    kIsEnding,  // … which are to end
  };
  struct Numbered {
    uint64_t number = 0;  // of ReplicatedWrites; of a mark: that of the group before
    uint64_t lsn = 0;
    uint64_t mark_ns = 0;  // of a mark that does not count yet
  };

  void LoseReaders();
  void TakeOver();
  void FollowClock();
  bool DecideMark();
  const Replica* Successor(const std::set<uint64_t>& linked) const;
  uint64_t Made() const;
  uint64_t MadeByEngines() const;
  void Log(absl::string_view line) const;
  ShardMember& shard() { return member_->shard(*number_); }
  const ShardMember& shard() const { return member_->shard(*number_); }

  // --- ReplicaTables::Owner
  EndedService EndService() override;
  std::optional<std::vector<SessionImage>> TakeSessions() override;
  bool has_engines() const override;
  uint64_t decided() const override { return parts_.writes.decided(); }
  uint64_t placed() const override { return groups_.empty() ? committed_ : groups_.back().number; }

  const NodeContext context_;
  const ShardParts parts_;
  ReplicaTables tables_;
  ClusterMember* member_ = nullptr;
  std::optional<ServingBeat> beat_;
  std::optional<uint32_t> number_;  // of the shard; nothing: the slot is free

  std::deque<Numbered> groups_;  // decided, and not known to be made
  uint64_t committed_ = 0;       // of groups_: the last number that was committed
  uint64_t committed_lsn_ = 0;   // likewise
  uint64_t promotions_ = 0;
  bool gained_ = false;                           // the region says that this server serves
  absl::Time leases_end_ = absl::InfinitePast();  // that readers have from before
  absl::Time stops_at_ = absl::InfiniteFuture();  // at the latest; InfiniteFuture: it is not to
  uint64_t stop_term_ = 0;                        // in which it was handed over because of that

  // --- Shared
  std::atomic<bool> holds_shard_{false};  // as number_
  // By the lease clock.
  std::atomic<int64_t> answers_until_ns_{kNever};
  std::atomic<int64_t> right_until_ns_{kNever};
  mutable std::mutex mutex_;  // guards all below
  std::condition_variable changed_;
  Service service_ = Service::kNone;
  bool may_end_ = false;
  std::optional<uint64_t> made_;  // by engines that have ended: all groups up to this number
  uint32_t offered_shard_ = 0;
  std::vector<SessionImage> sessions_;  // offered; or of engines that have ended
  std::function<void()> end_;
  std::function<std::optional<std::vector<SessionImage>>()> take_sessions_;
  bool takes_sessions_ = false;  // it is called
  absl::Status failure_;
  ClusterStats stats_;
};

}  // namespace osprey::server

#endif  // OSPREY_SERVER_CLUSTER_NODE_SHARD_NODE_H_
