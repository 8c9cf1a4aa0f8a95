// The keys that a cluster has in the store, below EtcdUri::KeyPrefix.
//
//   /osprey/NAME/cluster        ClusterRecord
//   /osprey/NAME/servers/ID     ServerRecord, of a server that runs
//   /osprey/NAME/shards/N       ShardRecord; N is decimal, without leading zeros
//
// Thread rule: plain values.

#ifndef OSPREY_SERVER_CLUSTER_CONFIGURATION_CLUSTER_KEYS_H_
#define OSPREY_SERVER_CLUSTER_CONFIGURATION_CLUSTER_KEYS_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/string_view.h"
#include "rdma/wire/wire.h"

namespace osprey {

using rdma::kShardsMax;
inline constexpr size_t kServerIdBytesMax = 63;

// 1 to 63 of a to z, 0 to 9 and '-', as in a host's name.
bool IsServerId(absl::string_view id);

class ClusterKeys {
 public:
  // `prefix`: EtcdUri::KeyPrefix, with a slash at its end.
  explicit ClusterKeys(std::string prefix) : prefix_(std::move(prefix)) {}

  std::string Cluster() const { return prefix_ + "cluster"; }
  std::string Servers() const { return prefix_ + "servers/"; }  // what their keys begin with
  std::string Shards() const { return prefix_ + "shards/"; }
  std::string Server(absl::string_view id) const;
  std::string Shard(uint32_t shard) const;

  // Nothing: it is no key of a server, or of a shard below kShardsMax.
  std::optional<std::string> ParseServer(absl::string_view key) const;
  std::optional<uint32_t> ParseShard(absl::string_view key) const;

 private:
  std::string prefix_;
};

}  // namespace osprey

#endif  // OSPREY_SERVER_CLUSTER_CONFIGURATION_CLUSTER_KEYS_H_
