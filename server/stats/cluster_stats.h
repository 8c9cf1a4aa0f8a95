// What a server of a cluster (--cluster) tells of its part in it.

#ifndef OSPREY_SERVER_STATS_CLUSTER_STATS_H_
#define OSPREY_SERVER_STATS_CLUSTER_STATS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/time/time.h"

namespace osprey::server {

// Up to some 100 ms old. Counts are since the server started.
struct ClusterStats {
  // A server that etcd or the record names.
  struct Member {
    std::string server;      // its ID
    uint64_t primaries = 0;  // shards whose primary it is, as the records say
    uint64_t in_sync = 0;    // shards of which it is in sync, likewise
    bool is_known = false;   // etcd has its key
    bool is_self = false;
    bool is_needed = false;  // there is to be a link to it
    bool is_linked = false;  // messages can be sent to it
  };

  // A copy that is to be at another server.
  struct Move {
    uint32_t shard = 0;
    std::string from, to;  // IDs
  };

  uint64_t shards = 1;          // that these figures are of
  uint64_t primaries = 0;       // of these: this server serves them, as long as it has its right
  uint64_t slots = 0;           // for so many shards there is memory
  uint64_t slots_used = 0;      // of these
  uint64_t term = 0;            // of the record that was read last; 0: none
  uint64_t in_sync = 0;         // servers that the record names, the primary included
  uint64_t replicas = 0;        // that there should be
  absl::Duration right_left;    // to serve, without another renewal in etcd; not negative
  uint64_t links = 0;           // connections to other servers that messages can be sent on
  uint64_t promotions = 0;      // of this server
  uint64_t groups = 0;          // of changes, that it has decided as a primary
  uint64_t groups_waiting = 0;  // of these: not on all servers in sync yet
  std::vector<Member> members;  // by ID
  std::vector<Move> moves;      // that are not done, by shard

  // Adds another shard's. Of the servers in sync the least counts, of terms the highest.
  void Add(const ClusterStats& other);
};

}  // namespace osprey::server

#endif  // OSPREY_SERVER_STATS_CLUSTER_STATS_H_
