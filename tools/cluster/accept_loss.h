// `kvcli cluster accept-loss`: gives up what a shard had, when all servers that have it are lost for good. In a cluster
// nothing else can be done for such a shard: no other server may take it over.
//
// Thread rule: plain functions.

#ifndef OSPREY_TOOLS_CLUSTER_ACCEPT_LOSS_H_
#define OSPREY_TOOLS_CLUSTER_ACCEPT_LOSS_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "server/cluster/configuration/cluster_keys.h"
#include "server/cluster/etcd/etcd_store.h"
#include "tools/cluster/cluster_status.h"

namespace osprey {

// How long a key is watched: the right of a server that has not renewed it meanwhile has ended.
absl::Duration EndedRightWait();

// The next server that adopts the shard begins it empty. `status` was read with a renewal_wait of EndedRightWait(), and watched.
// Deletes the keys of the shard's servers that are still there. It is refused if anything has changed since. Errors:
// INVALID_ARGUMENT (no such shard), FAILED_PRECONDITION (a server that has the data runs; or there is none).
absl::StatusOr<Transaction> AcceptLoss(const ClusterKeys& keys, const ClusterStatus& status,
                                       uint64_t shard);

}  // namespace osprey

#endif  // OSPREY_TOOLS_CLUSTER_ACCEPT_LOSS_H_
