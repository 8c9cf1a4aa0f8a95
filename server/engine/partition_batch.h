// Requests that wait for a moment, so that those of one partition are executed together. Their
// memory is prefetched together. The partition's lock and the table's own data move to this
// engine's core once for all of them.
//
//   partition 0:   Put a -> Get a -> Put f         in the order in which they came
//   partition 1:   Delete c
//   partition 2:
//   partition 3:   Put b -> Put d
//
// Only the order of requests for different partitions changes. No client can observe that, because
// none of them has been answered. Pure memory. Thread rule: the engine's thread.

#ifndef OSPREY_SERVER_ENGINE_PARTITION_BATCH_H_
#define OSPREY_SERVER_ENGINE_PARTITION_BATCH_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "index/layout/hash.h"
#include "index/layout/partitions.h"
#include "rdma/wire/protocol.h"

namespace osprey::server {

class Connection;

// The limit of waiting requests: each touches 256 B first, and a core's second-level cache holds
// that for all of them.
inline constexpr size_t kBatchedMax = 256;

class PartitionBatch {
 public:
  static constexpr uint16_t kNone = 0xffff;

  struct Request {
    Connection* connection = nullptr;
    rdma::FrameHeader header;
    rdma::FrameBytes frame;  // in the transport's memory
    index::KeyHash hash;     // of its key
    uint16_t next = kNone;   // in its partition, for PartitionBatch
  };

  PartitionBatch();

  // REQUIRES: !full().
  void Add(const Request& request, uint32_t partition);
  bool full() const { return requests_.size() == kBatchedMax; }
  bool empty() const { return requests_.empty(); }
  void Clear();

  // The partitions that have requests, a bit each.
  uint64_t partitions() const { return partitions_; }
  // The requests of one partition, one by one: null after the last.
  const Request* First(uint32_t partition) const;
  const Request* Next(const Request& request) const {
    return request.next == kNone ? nullptr : &requests_[request.next];
  }
  // The connections of the requests; each once.
  const std::vector<Connection*>& connections() const { return connections_; }
  // REQUIRES: the connection was not added before.
  void AddConnection(Connection& connection) { connections_.push_back(&connection); }

 private:
  static_assert(kBatchedMax < kNone && index::kPartitionsMax <= 64);

  std::vector<Request> requests_;
  uint64_t partitions_ = 0;
  // By partition; valid where partitions_ has a bit.
  std::array<uint16_t, index::kPartitionsMax> first_;
  std::array<uint16_t, index::kPartitionsMax> last_;
  std::vector<Connection*> connections_;
};

}  // namespace osprey::server

#endif  // OSPREY_SERVER_ENGINE_PARTITION_BATCH_H_
