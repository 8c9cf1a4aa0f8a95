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

#ifndef OSPREY_SERVER_ENGINE_CONNECTION_PARTITION_BATCH_H_
#define OSPREY_SERVER_ENGINE_CONNECTION_PARTITION_BATCH_H_

#include <array>
#include <cassert>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "index/layout/partitions.h"
#include "server/requests/keyed_request.h"

namespace osprey::server {

class Connection;

// The limit of waiting requests: each touches 256 B first, and a core's second-level cache holds
// that and the request for all of them.
inline constexpr size_t kBatchedMax = 256;

class PartitionBatch {
 public:
  static constexpr uint16_t kNone = 0xffff;

  struct Request : KeyedRequest {  // its frame is in the transport's memory, or kept
    Connection* connection = nullptr;
    uint32_t cost = 0;      // in the units of kTurnCostMax
    uint16_t next = kNone;  // in its partition, for PartitionBatch
    bool waited = false;    // for a turn of its own, which this is
  };

  // `keeps_frames`: requests may wait longer than the transport keeps their frames (Keep).
  explicit PartitionBatch(bool keeps_frames = false)
      : requests_(kBatchedMax),
        connections_(kBatchedMax),
        frames_(keeps_frames ? kBatchedMax : 0) {}

  bool keeps_frames() const { return !frames_.empty(); }
  // Copies the frame of the request in Place(). The copy lasts until Clear. REQUIRES:
  // keeps_frames(), !full().
  rdma::FrameBytes Keep(rdma::FrameBytes frame) {
    std::vector<std::byte>& kept = frames_[size_];
    kept.assign(frame.begin(), frame.end());
    return kept;
  }

  // The place of the next request, which the caller fills; used again unless Add follows.
  // REQUIRES: !full().
  Request& Place() {
    assert(!full());
    return requests_[size_];
  }
  // Adds the request in Place().
  [[gnu::always_inline]] void Add(uint32_t partition) {
    assert(!full() && partition < index::kPartitionsMax);
    const auto number = static_cast<uint16_t>(size_++);
    requests_[number].next = kNone;
    const uint64_t bit = uint64_t{1} << partition;
    if ((partitions_ & bit) == 0) {
      first_[partition] = number;
    } else {
      requests_[last_[partition]].next = number;
    }
    last_[partition] = number;
    partitions_ |= bit;
  }
  bool full() const { return size_ == kBatchedMax; }
  bool empty() const { return size_ == 0; }
  size_t size() const { return size_; }
  void Clear() {
    size_ = connections_size_ = 0;
    partitions_ = 0;
  }

  // The partitions that have requests, a bit each.
  uint64_t partitions() const { return partitions_; }
  // The requests of one partition, one by one: null after the last.
  Request* First(uint32_t partition) {
    return (partitions_ >> partition & 1) == 0 ? nullptr : &requests_[first_[partition]];
  }
  Request* Next(const Request& request) {
    return request.next == kNone ? nullptr : &requests_[request.next];
  }
  // The connections of the requests; each once.
  absl::Span<Connection* const> connections() const {
    return {connections_.data(), connections_size_};
  }
  // REQUIRES: the connection was not added before.
  void AddConnection(Connection& connection) { connections_[connections_size_++] = &connection; }

 private:
  static_assert(kBatchedMax < kNone && index::kPartitionsMax <= 64);

  std::vector<Request> requests_;  // kBatchedMax of them, which are used again
  size_t size_ = 0;
  uint64_t partitions_ = 0;
  // By partition; valid where partitions_ has a bit.
  std::array<uint16_t, index::kPartitionsMax> first_;
  std::array<uint16_t, index::kPartitionsMax> last_;
  std::vector<Connection*> connections_;  // likewise
  size_t connections_size_ = 0;
  std::vector<std::vector<std::byte>> frames_;  // by request; the memory is used again
};

}  // namespace osprey::server

#endif  // OSPREY_SERVER_ENGINE_CONNECTION_PARTITION_BATCH_H_
