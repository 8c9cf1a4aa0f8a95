// What is fixed when a cluster is created, as JSON in the key `cluster`:
//
//   {"format":1,"hash_seed":"5e0f…","id":"00f1…","min_in_sync":2,"replicas":3,"shard_bytes":1073741824,
//    "shards":64}
//
// Thread rule: plain values and functions.

#ifndef OSPREY_SERVER_CLUSTER_CONFIGURATION_CLUSTER_RECORD_H_
#define OSPREY_SERVER_CLUSTER_CONFIGURATION_CLUSTER_RECORD_H_

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "server/cluster/configuration/cluster_keys.h"
#include "server/cluster/etcd/etcd_store.h"

namespace osprey {

inline constexpr size_t kClusterRecordBytesMax = 4 << 10;
// Of all records of a cluster. It is raised by changes that an older program cannot read.
inline constexpr uint32_t kClusterFormat = 1;
inline constexpr uint32_t kReplicasMax = 7;

// Into how many partitions each server of a cluster cuts a shard's memory. It is the same for all,
// whatever their --pollers: replicas exchange groups of a partition's changes, and a copy is made
// partition by partition.
inline constexpr uint32_t kClusterPartitions = 8;

// Memory of one shard: from the least that a server can cut into its partitions, to the longest
// region.
inline constexpr uint64_t kShardBytesMin = kClusterPartitions * (256 << 10);
inline constexpr uint64_t kShardBytesMax = uint64_t{1} << 41;

// A shard's part of the memory of a server with so many: whole pages in each partition.
constexpr uint64_t ShardBytes(uint64_t memory_bytes, uint32_t shards) {
  const uint64_t step = shards == 1 ? 4096 : uint64_t{4096} * kClusterPartitions;
  return memory_bytes / shards / step * step;
}

struct ClusterRecord {
  uint32_t format = kClusterFormat;
  uint64_t id = 0;      // random, not 0: tells this cluster from others of its name
  uint32_t shards = 0;  // a power of two, at most kShardsMax
  uint32_t replicas = 0;
  // With fewer replicas in sync a shard accepts no writes. From 1 to `replicas`.
  uint32_t min_in_sync = 0;
  uint64_t hash_seed = 0;    // not 0; of the hash by which tables place keys
  uint64_t shard_bytes = 0;  // a multiple of 4096

  friend bool operator==(const ClusterRecord&, const ClusterRecord&) = default;
};

// How many replicas must be in sync in a cluster with so many: an acknowledged write is then on at
// least two servers, where there are three.
constexpr uint32_t MinInSync(uint32_t replicas) { return replicas >= 3 ? 2 : 1; }

// Why no cluster can have this record; OK if one can. Errors: INVALID_ARGUMENT, with the field and
// its bounds.
absl::Status Validate(const ClusterRecord& record);

std::string EncodeClusterRecord(const ClusterRecord& record);

// Errors: DATA_LOSS (it is no such record; says what is wrong), FAILED_PRECONDITION (a newer program
// wrote it).
absl::StatusOr<ClusterRecord> DecodeClusterRecord(absl::string_view text);

// Creates the cluster and an initial record of each shard, if none of these keys is there. A refused
// transaction has read the key `cluster`, and below it how many records of shards there are: without
// the former but with the latter, an earlier cluster of this name was deleted in part. After an
// unknown outcome, the cluster is this one once its key has `record.id`; the transaction can be sent
// again. REQUIRES: Validate(record) is OK.
Transaction CreateCluster(const ClusterKeys& keys, const ClusterRecord& record);

}  // namespace osprey

#endif  // OSPREY_SERVER_CLUSTER_CONFIGURATION_CLUSTER_RECORD_H_
