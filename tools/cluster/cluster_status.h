// What etcd says of a cluster: of its servers, and of the replicas of its shards.
//
// Only a server's renewals show that it runs. So the servers are read twice, kRenewalWait apart: one
// that has not renewed its key meanwhile has ended, or is cut off from etcd.
//
// Thread rule: one thread at a time.

#ifndef OSPREY_TOOLS_CLUSTER_CLUSTER_STATUS_H_
#define OSPREY_TOOLS_CLUSTER_CLUSTER_STATUS_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "server/cluster/configuration/cluster_record.h"
#include "server/cluster/configuration/configuration_watch.h"
#include "server/cluster/configuration/shard_record.h"
#include "server/cluster/etcd/etcd_store.h"
#include "server/cluster/etcd/etcd_uri.h"

namespace osprey {

// A running server renews its key every second.
inline constexpr absl::Duration kRenewalWait() { return absl::Milliseconds(1200); }

struct ClusterStatus {
  struct Server {
    WatchedServer stored;
    bool is_renewed = false;  // within the wait, or created
    bool is_new = false;      // created within the wait
  };

  std::string name;
  ClusterRecord cluster;
  int64_t revision = 0;  // of etcd, when all was read
  std::map<std::string, Server> servers;
  std::vector<std::optional<StoredShard>> shards;  // by number; nothing: no readable record
  std::vector<absl::Status> errors;                // of records that cannot be read

  // Whether the key of exactly this member's server is there.
  bool HasKey(const Replica& member) const;
};

// Takes `renewal_wait`, unless there is no server. `timeout`: of each read. With `is_watched` etcd has to answer in
// time all the while: *else* servers that run could not renew their keys. Errors: NOT_FOUND (no such
// cluster), FAILED_PRECONDITION (etcd was replaced meanwhile; a newer program made the cluster),
// DATA_LOSS (the cluster's record), and those of Range.
absl::StatusOr<ClusterStatus> ReadClusterStatus(ConfigurationStore& store, const EtcdUri& uri,
                                                absl::Duration timeout,
                                                absl::Duration renewal_wait = kRenewalWait(),
                                                bool is_watched = false);

}  // namespace osprey

#endif  // OSPREY_TOOLS_CLUSTER_CLUSTER_STATUS_H_
