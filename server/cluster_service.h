// What a server has only in a cluster: its store, its node, and engines of the shards whose primary it is.
//
//   OpenCluster ──> slots ──> StartNode ──> RunAsMember, of each slot: AwaitService, engines, EndService, …
//
// Thread rule: the main thread.

#ifndef OSPREY_SERVER_CLUSTER_SERVICE_H_
#define OSPREY_SERVER_CLUSTER_SERVICE_H_

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "rdma/lease_clock.h"
#include "server/cluster/configuration/cluster_keys.h"
#include "server/cluster/configuration/cluster_record.h"
#include "server/cluster/etcd/etcd_store.h"
#include "server/cluster/node/cluster_node.h"
#include "server/cluster/node/replicated_writes.h"
#include "server/cluster/node/wake.h"
#include "server/cluster/table/replicated_changes.h"
#include "server/config/config.h"
#include "server/poller_log.h"
#include "server/run.h"

namespace osprey::server {

struct Server;

// The store, what it says of the cluster, and the clock by which this server's right lasts. It stays where it is.
struct ClusterParts {
  explicit ClusterParts(std::string key_prefix) : keys(std::move(key_prefix)) {}
  ClusterParts(const ClusterParts&) = delete;
  ClusterParts& operator=(const ClusterParts&) = delete;

  const ClusterKeys keys;
  std::unique_ptr<ConfigurationStore> renewals, calls;
  ClusterRecord record;
  std::function<std::unique_ptr<ClockSources>()> clock_sources = MachineClocks;
  Wake wake;
};

// What the pollers of a slot write. The members point to each other: it stays where it is.
struct SlotWrites {
  // `wake`: the cluster's thread's.
  explicit SlotWrites(Wake& wake) : writes([&wake] { wake.Ring(); }) {}
  SlotWrites(const SlotWrites&) = delete;
  SlotWrites& operator=(const SlotWrites&) = delete;

  ReplicatedWrites writes;
  std::vector<std::unique_ptr<ReplicatedChanges>> changes;  // by partition
  std::vector<std::unique_ptr<PollerLog>> logs;             // by poller; they outlive the engines
};

// Reads what the cluster is, and tries again while the store does not answer. Adapts `config` to it: the
// numbers of shards and slots, and the longest value. Errors: NOT_FOUND (there is no such cluster; says how to create
// it), FAILED_PRECONDITION (this program or --memory does not fit it), INVALID_ARGUMENT (--listen, or
// --value-max), CANCELLED: `stop` became true; those of EtcdClient::Create.
absl::StatusOr<std::unique_ptr<ClusterParts>> OpenCluster(Config& config,
                                                          const std::atomic<bool>& stop);

// Starts the directory, too. REQUIRES: server.cluster and the slots are there. Errors: those of ClusterNode::Start and
// of Directory::Start.
absl::Status StartNode(const Config& config, const std::atomic<bool>& stop, Server& server);

// Serves each shard whenever this server is its primary, until `bell` rings. It rings the bell if the server
// cannot go on: then the error is returned.
absl::Status RunAsMember(const Config& config, StopBell& bell, Server& server);

}  // namespace osprey::server

#endif  // OSPREY_SERVER_CLUSTER_SERVICE_H_
