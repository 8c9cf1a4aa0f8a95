// kvserver's flags as a server of a cluster: they are given together, or not at all.

#ifndef OSPREY_SERVER_CONFIG_CLUSTER_CONFIG_H_
#define OSPREY_SERVER_CONFIG_CLUSTER_CONFIG_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "rdma/address.h"
#include "rdma/authentication.h"
#include "server/cluster/etcd/etcd_flags.h"
#include "server/cluster/etcd/etcd_options.h"

namespace osprey::server {

// As given; empty: not given.
struct ClusterFlags {
  EtcdFlags etcd = {};  // its URI is --cluster
  std::string server_id = "";
  std::string listen = "";
  std::string key_file = "";
  std::string backup_timeout = "1s";
  std::string zone = "";
  std::string rejoin_after = "30s";
  std::string copy_rate = "";
};

struct ClusterConfig {
  EtcdOptions etcd;                   // checked; its URI has the cluster's name
  std::string server_id;              // IsServerId
  std::vector<rdma::Address> listen;  // for other servers; at least one, each with a port
  rdma::AuthKey::Pointer key;         // null only if all of `listen` is shm://
  // A backup that acknowledges nothing for so long may be dropped.
  absl::Duration backup_timeout;
  std::string zone;  // IsZone
  // The copies of a server that has ended wait for it for so long.
  absl::Duration rejoin_after;
  uint64_t copy_rate = 0;  // bytes a second for copies to other servers; 0: no limit
};

// The rest of the configuration, which a cluster's part has to fit.
struct ServedConfig {
  absl::Span<const rdma::Address> listen;  // for clients
  rdma::AuthKey::Pointer auth_key;         // the clients'; null: none
};

// REQUIRES: --cluster is given. Reads the files that the flags name. Errors: one line with the flag,
// the mistake and the fix; INVALID_ARGUMENT, NOT_FOUND, PERMISSION_DENIED, or those of
// AuthKey::FromFile.
absl::StatusOr<ClusterConfig> MakeClusterConfig(const ClusterFlags& flags,
                                                const ServedConfig& served);

// The addresses of `listen`, as clients of other machines can use them: instead of 0.0.0.0 or :: the host of
// `cluster_listen`. Without such a host the address is left out.
std::vector<std::string> ClientAddresses(absl::Span<const rdma::Address> listen,
                                         absl::Span<const rdma::Address> cluster_listen);

// Each shard of a server listens beside each of its addresses (rdma::ShardAddress): whether all of these differ.
// Errors: INVALID_ARGUMENT, with --listen.
absl::Status CheckShardAddresses(uint32_t shards, absl::Span<const rdma::Address> listen,
                                 absl::Span<const rdma::Address> cluster_listen);

// Without --cluster no other flag of a cluster is given. Errors: INVALID_ARGUMENT, with the flag.
absl::Status CheckNoCluster(const ClusterFlags& flags);

}  // namespace osprey::server

#endif  // OSPREY_SERVER_CONFIG_CLUSTER_CONFIG_H_
