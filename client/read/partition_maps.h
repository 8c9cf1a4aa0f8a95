// The client's copy of the directories of all partitions of a server's region
// (index/layout/partitions.h), one index::DirectoryCache each. Every READ starts from them.
//
// Offsets in maps, lines and slots are from the start of their partition, those of READs from the
// start of the region. The code that posts a READ adds MappedPartition::offset. No other code
// converts between them.
//
// Thread rule: one thread.

#ifndef OSPREY_CLIENT_READ_PARTITION_MAPS_H_
#define OSPREY_CLIENT_READ_PARTITION_MAPS_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "index/layout/hash.h"
#include "index/layout/partitions.h"
#include "index/reader/directory_cache.h"

namespace osprey::client {

struct MappedPartition {
  uint32_t number;
  uint64_t offset;  // in the region
  index::DirectoryCache map;

  // The offset of the key's home line in the region; 0: not known (DirectoryCache::HomeOf).
  uint64_t HomeOf(index::KeyHash hash) const {
    const uint64_t home = map.HomeOf(hash);
    return home == 0 ? 0 : offset + home;
  }
  // The next READ of the map, with its offset in the region.
  index::ReadSpan NextRead() const {
    const index::ReadSpan read = map.NextRead();
    return {offset + read.offset, read.length};
  }
};

class PartitionMaps {
 public:
  // The values are those of the server's Welcome (ServerTerms). REQUIRES:
  // IsPartitionCount(partitions), and that each partition has space for a DirectoryCache's header
  // and first page.
  PartitionMaps(uint64_t incarnation, uint64_t dataset, uint64_t region_bytes, uint32_t partitions);

  // True once all maps are.
  bool ready() const { return next_ == partitions_.size(); }
  // The next READ while not ready(), from the start of the region; then its bytes, as in
  // DirectoryCache. Errors: also DATA_LOSS if the partitions do not hash alike.
  index::ReadSpan NextRead() const { return partitions_[next_].NextRead(); }
  absl::Status Apply(index::ByteSpan bytes);

  uint32_t count() const { return static_cast<uint32_t>(partitions_.size()); }
  uint64_t dataset() const { return dataset_; }  // the server's
  // REQUIRES for the others: ready().
  uint64_t hash_seed() const { return partitions_[0].map.hash_seed(); }
  MappedPartition& at(uint32_t index) { return partitions_[index]; }
  MappedPartition& Of(index::KeyHash hash) {
    return partitions_[index::PartitionOf(hash, count())];
  }
  const MappedPartition& Of(index::KeyHash hash) const {
    return partitions_[index::PartitionOf(hash, count())];
  }

 private:
  const uint64_t dataset_;
  std::vector<MappedPartition> partitions_;  // never resized: lookups point into it
  uint32_t next_ = 0;                        // the first that is not ready
};

}  // namespace osprey::client

#endif  // OSPREY_CLIENT_READ_PARTITION_MAPS_H_
