// The name of one replica of a shard.

#ifndef OSPREY_SERVER_CLUSTER_REPLICATION_REPLICA_NAME_H_
#define OSPREY_SERVER_CLUSTER_REPLICATION_REPLICA_NAME_H_

#include <cstdint>
#include <tuple>

namespace osprey {

// A copy of a shard in one life of a server: a copy that begins again is another replica.
struct ReplicaName {
  uint64_t incarnation = 0;  // of the server, random; 0: no replica
  uint64_t life = 0;         // random: new with every beginning of a copy of this shard

  friend bool operator==(const ReplicaName&, const ReplicaName&) = default;
  friend bool operator<(const ReplicaName& a, const ReplicaName& b) {
    return std::tie(a.incarnation, a.life) < std::tie(b.incarnation, b.life);
  }
};

}  // namespace osprey

#endif  // OSPREY_SERVER_CLUSTER_REPLICATION_REPLICA_NAME_H_
