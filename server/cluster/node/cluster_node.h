// A server of a cluster at work: the thread that keeps its right, its replicas and its links, between etcd,
// the other servers and the pollers of this one.
//
//                 etcd                         other servers
//        renewals ││ reads, swaps                   ││ appends, answers, copies
//                 ││ (CallThread)                   ││ (NodeLinks)
//              ┌──┴┴────────────────────────────────┴┴──┐
//              │ the cluster's thread: ClusterMember    │
//              └──┬────────────────────┬────────────────┘
//             ShardNode            ShardNode …       each: tables, writes of pollers, beats for readers
//
// A ShardNode is a slot: it holds one shard, with its tables and, while this server is its primary, its engines.
//
// A poller whose commit has to wait does a part of the thread's work (DrivenSteps). It sends what was decided, and
// takes acknowledgements. It changes no role, and ends no service: other messages are left to the cluster's thread,
// with all that came behind them. *Else* a poller waits for the end of its own engine.
//
// Thread rule: one thread starts and ends it; of a slot, as shard_node.h says.

#ifndef OSPREY_SERVER_CLUSTER_NODE_CLUSTER_NODE_H_
#define OSPREY_SERVER_CLUSTER_NODE_CLUSTER_NODE_H_

#include <poll.h>
#include <pthread.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "rdma/lease_clock.h"
#include "server/cluster/beat/beat_thread.h"
#include "server/cluster/configuration/cluster_keys.h"
#include "server/cluster/configuration/cluster_record.h"
#include "server/cluster/etcd/etcd_store.h"
#include "server/cluster/member/cluster_member.h"
#include "server/cluster/node/call_thread.h"
#include "server/cluster/node/driven_steps.h"
#include "server/cluster/node/node_links.h"
#include "server/cluster/node/shard_node.h"
#include "server/cluster/node/shard_table.h"
#include "server/cluster/node/spin_trial.h"
#include "server/cluster/node/wake.h"
#include "server/stats/cluster_stats.h"

namespace osprey::server {

struct NodeOptions {
  ClusterKeys keys;
  ClusterRecord cluster;
  std::string server;               // its ID
  std::string zone;                 // MemberOptions
  std::vector<std::string> listen;  // for other servers
  std::vector<std::string> clients =
      {};                      // addresses of shard 0 for clients, which they can connect to
  rdma::AuthKey::Pointer key;  // the cluster's; null only where all of `listen` is shm
  absl::Duration backup_timeout;
  absl::Duration rejoin_after;  // MemberOptions
  uint64_t copy_rate = 0;       // MemberOptions
  // For so long a thread spins before it sleeps: one that waits for a commit, or that may get an append. Zero:
  // it sleeps at once.
  absl::Duration spin;
  NodeLinks::NewPorts new_ports;
  // Of the clock by which the right and leases last.
  std::function<std::unique_ptr<ClockSources>()> clock_sources = MachineClocks;
  std::function<uint64_t()> random;
  std::function<void(absl::string_view line)> log;
  // The server is to end: it hands its data over to another one, if it can, and its engines end.
  const std::atomic<bool>& stop;
};

// What a node is given. All outlive it.
struct NodeParts {
  std::vector<ShardParts> slots;  // at least one
  Wake& wake;                     // rung by the shards' writes
  // Two clients of the same store: one renews the right, and is never delayed by the other's calls.
  ConfigurationStore& renewals;
  ConfigurationStore& calls;
};

class ClusterNode final : private DrivenSteps::Work {
 public:
  // Creates this server's key when the store allows it, and listens for other servers. Errors: those of
  // Transport::Listen and of PeerLinks::Create; RESOURCE_EXHAUSTED (no thread, no descriptor).
  static absl::StatusOr<std::unique_ptr<ClusterNode>> Start(NodeOptions options, NodeParts parts);
  // Gives the right back, so that others do not wait for its end. REQUIRES: no engine is left.
  ~ClusterNode() override;
  ClusterNode(const ClusterNode&) = delete;
  ClusterNode& operator=(const ClusterNode&) = delete;

  // In the order of NodeParts.
  ShardNode& slot(size_t number) { return *slots_[number]; }
  // Of all shards. Any thread.
  ClusterStats stats() const;
  // Of all servers, for clients: those of shard 0, one a line, of its primary first. Any thread.
  std::string client_addresses() const;

 private:
  ClusterNode(NodeOptions options, NodeParts parts);
  absl::Status Open();
  void Run();
  bool Step();
  void Sleep();
  bool RunStore(absl::Time now);
  bool RunLinks(absl::Time now);
  void TakeIncarnation(absl::Time now);
  void TakeServers();
  void SetLinks(absl::Time now);
  void ReleaseRight();
  void TakeMessage(const LinkEvent& event, absl::Time now);
  bool StepSlots(absl::Time now);
  void Publish(absl::Time now);
  ClusterStats StatsOf(uint32_t shard, absl::Time now) const;
  void TakeStats(absl::Time now);
  void Fail(const absl::Status& why);

  // --- DrivenSteps::Work
  bool DriveStep() override;
  bool ArmLinks(std::vector<pollfd>& waits) override;
  bool IsAwaitedByOthers() const override;

  const NodeOptions options_;
  const NodeParts parts_;
  SharedLeaseClock clock_;
  DrivenSteps steps_;
  Lingering lingering_;
  std::unique_ptr<CallThread> renewal_thread_, call_thread_, session_thread_;
  NodeLinks links_;
  std::vector<std::unique_ptr<ShardNode>> slots_;
  bool may_end_ = false;                             // as they have it
  absl::Time stops_since_ = absl::InfiniteFuture();  // it is to end
  std::vector<std::unique_ptr<ShardTable>> tables_;  // by shard
  std::optional<ClusterMember> member_;
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
  std::set<std::string> needed_;                // servers to which there are to be links
  std::set<uint64_t> linked_;                   // incarnations to which there is one
  absl::Time links_at_ = absl::InfinitePast();  // of SetLinks, the last
  absl::Time stats_at_ = absl::InfinitePast();  // taken last
  std::atomic<bool> ends_{false};

  mutable std::mutex stats_mutex_;
  // Guarded by stats_mutex_.
  ClusterStats stats_;
  std::string client_addresses_;
};

}  // namespace osprey::server

#endif  // OSPREY_SERVER_CLUSTER_NODE_CLUSTER_NODE_H_
