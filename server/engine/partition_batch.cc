#include "server/engine/partition_batch.h"

namespace osprey::server {

void PartitionBatch::Add(uint32_t partition) {
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

void PartitionBatch::Clear() {
  size_ = 0;
  connections_.clear();
  partitions_ = 0;
}

const PartitionBatch::Request* PartitionBatch::First(uint32_t partition) const {
  if ((partitions_ >> partition & 1) == 0) return nullptr;
  return &requests_[first_[partition]];
}

}  // namespace osprey::server
