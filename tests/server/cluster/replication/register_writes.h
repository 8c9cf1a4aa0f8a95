// A shard of simulations: a register with the history of its writes, and what clients have seen of it.

#ifndef OSPREY_TESTS_SERVER_CLUSTER_REPLICATION_REGISTER_WRITES_H_
#define OSPREY_TESTS_SERVER_CLUSTER_REPLICATION_REGISTER_WRITES_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "server/cluster/replication/replica_log.h"

namespace osprey {

// The body of a group is its writes, 8 bytes each.
std::vector<uint64_t> WritesOf(const ReplicatedGroup& group);
std::string BodyOf(const std::vector<uint64_t>& writes);
// Whether a replica has the write applied, or pending in its log. A primary does not decide it again.
bool HasWrite(const std::vector<uint64_t>& applied, const ReplicaLog& log, uint64_t write);

// The writes that clients have seen as done, in the shard's order. Claim: they stay, in that order, and
// none is made twice.
class SeenWrites {
 public:
  size_t size() const { return seen_.size(); }
  // Clients see these, of a replica that answers. Empty, or what is wrong.
  std::string See(const std::vector<uint64_t>& writes);
  // The same of a read, which finds all that was seen before it began. `where`: for the message.
  std::string Read(const std::string& where, const std::vector<uint64_t>& writes);

 private:
  std::vector<uint64_t> seen_;
};

}  // namespace osprey

#endif  // OSPREY_TESTS_SERVER_CLUSTER_REPLICATION_REGISTER_WRITES_H_
