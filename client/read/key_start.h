// Where the lookup of a key starts.

#ifndef OSPREY_CLIENT_READ_KEY_START_H_
#define OSPREY_CLIENT_READ_KEY_START_H_

#include "absl/strings/string_view.h"
#include "client/read/location_cache.h"
#include "client/read/partition_maps.h"
#include "index/layout/hash.h"
#include "index/reader/directory_cache.h"

namespace osprey::client {

struct KeyStart {
  index::KeyHash hash;
  // Offsets in READs of a lookup are from the start of the key's partition.
  MappedPartition* partition = nullptr;
  index::DirectoryCache::Window window;

  KeyStart() = default;
  // By the maps of the present connection, which must outlive this.
  KeyStart(PartitionMaps& maps, absl::string_view key)
      : hash(index::HashKey(key, maps.hash_seed())),
        partition(&maps.Of(hash)),
        window(partition->map.WindowOf(hash)) {}

  LocationCache::Place place() const {
    return {window.offset == 0 ? 0 : partition->offset + window.offset, hash.fingerprint()};
  }
};

}  // namespace osprey::client

#endif  // OSPREY_CLIENT_READ_KEY_START_H_
