// The shards of a cluster: each has the keys whose hashes begin with its number.
//
// Clients send a key's requests to the shard's servers, and servers refuse keys of other shards. So
// this function never changes: the data of a cluster lies where it says.

#ifndef OSPREY_RDMA_WIRE_SHARD_H_
#define OSPREY_RDMA_WIRE_SHARD_H_

#include <xxhash.h>

#include <bit>
#include <cassert>
#include <cstdint>

#include "absl/strings/string_view.h"
#include "rdma/wire/wire.h"

namespace osprey::rdma {

// A cluster may have so many shards.
constexpr bool IsShardCount(uint32_t shards) {
  return std::has_single_bit(shards) && shards <= kShardsMax;
}

// The shard of a key: the top log2(shards) bits of its XXH3-64 with seed 0. REQUIRES:
// IsShardCount(shards).
inline uint32_t ShardOf(absl::string_view key, uint32_t shards) {
  assert(IsShardCount(shards));
  if (shards == 1) return 0;
  return static_cast<uint32_t>(XXH3_64bits(key.data(), key.size()) >>
                               (64 - std::countr_zero(shards)));
}

}  // namespace osprey::rdma

#endif  // OSPREY_RDMA_WIRE_SHARD_H_
