#include "client/read/partition_maps.h"

#include <cassert>

#include "absl/strings/str_cat.h"

namespace osprey::client {

PartitionMaps::PartitionMaps(uint64_t incarnation, uint64_t dataset, uint64_t region_bytes,
                             uint32_t partitions)
    : dataset_(dataset) {
  partitions_.reserve(partitions);
  for (uint32_t i = 0; i < partitions; ++i) {
    const index::PartitionSpan span = index::SpanOfPartition(region_bytes, partitions, i);
    partitions_.push_back(
        {i, span.offset,
         index::DirectoryCache(index::IncarnationOfPartition(incarnation, i), span.bytes)});
  }
}

absl::Status PartitionMaps::Apply(index::ByteSpan bytes) {
  assert(!ready());
  index::DirectoryCache& map = partitions_[next_].map;
  if (absl::Status status = map.Apply(bytes); !status.ok()) {
    if (count() == 1) return status;
    return absl::DataLossError(absl::StrCat("partition ", next_, ": ", status.message()));
  }
  if (!map.ready()) return absl::OkStatus();
  // A key's hash selects its partition, so it cannot depend on the partition.
  if (map.hash_seed() != partitions_[0].map.hash_seed()) {
    return absl::DataLossError(
        absl::StrCat("partition ", next_, " hashes keys unlike partition 0"));
  }
  ++next_;
  return absl::OkStatus();
}

}  // namespace osprey::client
