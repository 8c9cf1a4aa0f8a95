#include "server/engine/partition_batch.h"

#include <cassert>

namespace osprey::server {

PartitionBatch::PartitionBatch() { requests_.reserve(kBatchedMax); }

void PartitionBatch::Add(const Request& request, uint32_t partition) {
  assert(!full() && partition < index::kPartitionsMax);
  const auto number = static_cast<uint16_t>(requests_.size());
  requests_.push_back(request);
  const uint64_t bit = uint64_t{1} << partition;
  if ((partitions_ & bit) == 0) {
    first_[partition] = number;
  } else {
    requests_[last_[partition]].next = number;
  }
  last_[partition] = number;
  partitions_ |= bit;
}

void PartitionBatch::Clear() {
  requests_.clear();
  connections_.clear();
  partitions_ = 0;
}

const PartitionBatch::Request* PartitionBatch::First(uint32_t partition) const {
  if ((partitions_ >> partition & 1) == 0) return nullptr;
  return &requests_[first_[partition]];
}

}  // namespace osprey::server
