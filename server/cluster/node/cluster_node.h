// A server of a cluster at work: the thread that keeps its right, its replica and its links, between etcd,
// the other servers and the pollers of this one.
//
//                 etcd                         other servers
//        renewals ││ reads, swaps                   ││ appends, answers, copies
//                 ││ (CallThread)                   ││ (NodeLinks)
//              ┌──┴┴────────────────────────────────┴┴──┐
//              │ the cluster's thread: ClusterMember    │──> ServingBeat ──> region
//              └──┬──────────────┬───────────────────┬──┘
//                 │ TableReplica │ AwaitService      │ ReplicatedWrites
//              tables            main thread         pollers
//
// The server has engines only while it is the primary:
//
//   node->AwaitService ──> engines are made from the sessions ──> BeginService ──> they run
//     ^                                                                             │ the bell rings
//     └────────────── EndService(their sessions) <── engines are destroyed <────────┘
//
// Two times bound what engines do: the right, while the record names this server, and the mark up to which it
// may judge expiries (TimeMarks). MayAnswer bounds answers, beats bound READs (server/cluster/beat).
//
// A poller whose commit has to wait does a part of the thread's work (DrivenSteps). It sends what was decided, and
// takes acknowledgements. It changes no role, and ends no service: other messages are left to the cluster's thread,
// with all that came behind them. *Else* a poller waits for the end of its own engine.
//
// Thread rule: AwaitService, BeginService and EndService are the main thread's, MayAnswer any thread's.

#ifndef OSPREY_SERVER_CLUSTER_NODE_CLUSTER_NODE_H_
#define OSPREY_SERVER_CLUSTER_NODE_CLUSTER_NODE_H_

#include <poll.h>
#include <pthread.h>

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <limits>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "rdma/lease_clock.h"
#include "server/clock.h"
#include "server/cluster/beat/beat_thread.h"
#include "server/cluster/beat/serving_beat.h"
#include "server/cluster/configuration/cluster_keys.h"
#include "server/cluster/configuration/cluster_record.h"
#include "server/cluster/etcd/etcd_store.h"
#include "server/cluster/member/cluster_member.h"
#include "server/cluster/node/call_thread.h"
#include "server/cluster/node/driven_steps.h"
#include "server/cluster/node/node_links.h"
#include "server/cluster/node/replica_tables.h"
#include "server/cluster/node/replicated_writes.h"
#include "server/cluster/node/spin_trial.h"
#include "server/cluster/node/wake.h"
#include "server/requests/sessions.h"
#include "server/requests/tables.h"
#include "server/stats/cluster_stats.h"

namespace osprey::server {

struct NodeOptions {
  ClusterKeys keys;
  ClusterRecord cluster;
  std::string server;               // its ID
  std::vector<std::string> listen;  // for other servers
  rdma::AuthKey::Pointer key;       // the cluster's; null only where all of `listen` is shm
  absl::Duration backup_timeout;
  // For so long a thread spins before it sleeps: one that waits for a commit, or that may get an append. Zero:
  // it sleeps at once.
  absl::Duration spin;
  NodeLinks::NewPorts new_ports;
  std::function<uint64_t()> random;
  std::function<void(absl::string_view line)> log;
  // The server is to end: it hands its data over to another one, if it can, and its engines end.
  const std::atomic<bool>& stop;
};

// What a node is given. All outlive it.
struct NodeParts {
  Tables& tables;
  Clock& clock;  // of the tables
  // The changes of each partition.
  std::vector<const ReplicatedChanges*> changes;
  ReplicatedWrites& writes;
  Wake& wake;  // rung by `writes`
  absl::Span<std::byte> region;
  uint64_t region_incarnation = 0;
  // Two clients of the same store: one renews the right, and is never delayed by the other's calls.
  ConfigurationStore& renewals;
  ConfigurationStore& calls;
};

class ClusterNode final : private ReplicaTables::Owner, private DrivenSteps::Work {
 public:
  // Creates this server's key when the store allows it, and listens for other servers. Errors: those of
  // Transport::Listen and of PeerLinks::Create; RESOURCE_EXHAUSTED (no thread, no descriptor).
  static absl::StatusOr<std::unique_ptr<ClusterNode>> Start(NodeOptions options, NodeParts parts);
  // Gives the right back, so that others do not wait for its end. REQUIRES: no engine is left.
  ~ClusterNode() override;
  ClusterNode(const ClusterNode&) = delete;
  ClusterNode& operator=(const ClusterNode&) = delete;

  // Waits until this server is the primary and has applied its tail. The sessions are for
  // Engine::RestoreSessions; nothing: `stop` has become true. Errors: the node cannot go on.
  absl::StatusOr<std::optional<std::vector<SessionImage>>> AwaitService(
      const std::atomic<bool>& stop);
  // The engines exist. `end` is called, on the cluster's thread, when they have to end; `take_sessions`
  // returns theirs, and waits for them. Both until EndService.
  void BeginService(std::function<void()> end,
                    std::function<std::optional<std::vector<SessionImage>>()> take_sessions);
  // They are destroyed; these were their sessions. What they had prepared is dropped.
  void EndService(std::vector<SessionImage> sessions);

  // Whether an answer may leave now.
  bool MayAnswer() {
    return absl::ToUnixNanos(clock_.Now()) < answers_until_ns_.load() &&
           parts_.writes.marks().MayJudge(parts_.clock.Now());
  }
  // Not OK: the node cannot go on.
  absl::Status failure() const;
  // Any thread.
  ClusterStats stats() const;

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

  ClusterNode(NodeOptions options, NodeParts parts);
  absl::Status Open();
  void Run();
  bool Step();
  void Sleep();
  bool RunStore(absl::Time now);
  bool RunLinks(absl::Time now);
  void TakeIncarnation(absl::Time now);
  void LoseReaders(absl::Time now);
  void ReleaseRight();
  bool OfferService();
  void TakeOver();
  void TakeMessage(const LinkEvent& event, absl::Time now);
  bool DecideGroups(absl::Time now);
  bool CommitGroups();
  void ReviewMarks(absl::Time now);
  bool DecideMark();
  ServingBounds BeatBounds();
  void Publish(absl::Time now);
  std::vector<ClusterStats::Member> Members(const ShardRecord& record) const;
  void TakeStats(absl::Time now);
  void Stop(absl::Time now);
  const Replica* Successor() const;
  uint64_t Made() const;
  void Fail(const absl::Status& why);
  ShardMember& shard() { return member_->shard(0); }

  // --- ReplicaTables::Owner
  uint64_t EndService(std::vector<SessionImage>& sessions) override;
  std::optional<std::vector<SessionImage>> TakeSessions() override;
  bool has_engines() const override;

  // --- DrivenSteps::Work
  bool DriveStep() override;
  bool ArmLinks(std::vector<pollfd>& waits) override;

  const NodeOptions options_;
  const NodeParts parts_;
  SharedLeaseClock clock_;
  DrivenSteps steps_;
  Lingering lingering_;
  std::unique_ptr<CallThread> renewal_thread_, call_thread_, session_thread_;
  std::optional<ReplicaTables> tables_;
  NodeLinks links_;
  std::optional<ClusterMember> member_;
  std::optional<ServingBeat> beat_;
  std::unique_ptr<BeatThread> beat_thread_;
  pthread_t thread_ = {};
  bool started_ = false;

  // --- The cluster's thread, and pollers that drive: under the lock of steps_, as links, member and tables
  TransactionResult renewal_result_;
  absl::Time renewal_sent_;
  StoreCall call_;
  TransactionResult call_result_;
  absl::StatusOr<RangeAnswer> call_read_;
  std::vector<LinkEvent> events_;
  std::deque<Numbered> groups_;  // decided, and not known to be made
  uint64_t committed_ = 0;       // of groups_: the last number that was committed
  uint64_t committed_lsn_ = 0;   // likewise
  std::set<uint64_t> linked_;    // incarnations to which there is a link
  uint64_t promotions_ = 0;
  absl::Time stats_at_ = absl::InfinitePast();    // taken last
  bool gained_ = false;                           // the region says that this server serves
  absl::Time leases_end_ = absl::InfinitePast();  // that readers have from before
  absl::Time stops_at_ = absl::InfiniteFuture();  // at the latest; InfiniteFuture: it is not to

  // --- Shared
  // By clock_.
  std::atomic<int64_t> answers_until_ns_{kNever};
  std::atomic<int64_t> right_until_ns_{kNever};
  std::atomic<bool> ends_{false};
  mutable std::mutex mutex_;  // guards all below
  std::condition_variable changed_;
  Service service_ = Service::kNone;
  uint64_t made_ = 0;                   // by engines that have ended: all groups up to this number
  std::vector<SessionImage> sessions_;  // offered; or of engines that have ended
  std::function<void()> end_;
  std::function<std::optional<std::vector<SessionImage>>()> take_sessions_;
  bool takes_sessions_ = false;  // it is called
  absl::Status failure_;
  ClusterStats stats_;
};

}  // namespace osprey::server

#endif  // OSPREY_SERVER_CLUSTER_NODE_CLUSTER_NODE_H_
