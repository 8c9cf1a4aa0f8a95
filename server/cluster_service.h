// What a server has only in a cluster: its store, its node, and engines while it is the primary.
//
//   OpenCluster ──> tables ──> StartNode ──> RunAsMember: AwaitService, engines, EndService, …
//
// Thread rule: the main thread.

#ifndef OSPREY_SERVER_CLUSTER_SERVICE_H_
#define OSPREY_SERVER_CLUSTER_SERVICE_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/clock.h"
#include "server/cluster/configuration/cluster_keys.h"
#include "server/cluster/configuration/cluster_record.h"
#include "server/cluster/etcd/etcd_client.h"
#include "server/cluster/node/cluster_node.h"
#include "server/cluster/node/replicated_writes.h"
#include "server/cluster/node/wake.h"
#include "server/cluster/table/replicated_changes.h"
#include "server/config/config.h"
#include "server/poller_log.h"

namespace osprey::server {

struct Server;

// The members point to each other: it stays where it is.
struct ClusterParts {
  explicit ClusterParts(std::string key_prefix)
      : keys(std::move(key_prefix)), writes([this] { wake.Ring(); }) {}
  ClusterParts(const ClusterParts&) = delete;
  ClusterParts& operator=(const ClusterParts&) = delete;

  const ClusterKeys keys;
  std::unique_ptr<EtcdClient> renewals, calls;
  ClusterRecord record;
  Wake wake;
  ReplicatedWrites writes;
  std::vector<std::unique_ptr<ReplicatedChanges>> changes;  // by partition
  std::vector<std::unique_ptr<PollerLog>> logs;             // by poller; they outlive the engines
};

// Reads what the cluster is, and tries again while the store does not answer. Errors: NOT_FOUND (there is
// no such cluster; says how to create it), FAILED_PRECONDITION (this program or --memory does not fit
// it), CANCELLED: `stop` became true; those of EtcdClient::Create.
absl::StatusOr<std::unique_ptr<ClusterParts>> OpenCluster(const ClusterConfig& config,
                                                          uint64_t memory_bytes,
                                                          const std::atomic<bool>& stop);

// REQUIRES: server.cluster and its tables are there, and `clock` is theirs. Errors: those of
// ClusterNode::Start.
absl::Status StartNode(const Config& config, uint64_t incarnation, Clock& clock,
                       const std::atomic<bool>& stop, Server& server);

// Serves whenever this server is the primary, until `stop` is true. Errors: the server cannot go on.
absl::Status RunAsMember(const Config& config, uint64_t incarnation, const Clock& clock,
                         const std::atomic<bool>& stop, Server& server);

}  // namespace osprey::server

#endif  // OSPREY_SERVER_CLUSTER_SERVICE_H_
