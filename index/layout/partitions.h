// The division of the server's region into partitions. These are independent tables, so that
// several threads can write at once.
//
//   0          span.bytes   2 * span.bytes                                       region_bytes
//   +------------+------------+------------+------------+- … -+------------+---------+
//   | partition 0| partition 1| partition 2| partition 3|     | P - 1      | (unused)|
//   +------------+------------+------------+------------+- … -+------------+---------+
//     each: header, directory, segments, items, with offsets from its own start
//
// A key stays in one partition permanently. Hence each rule of README.md holds within a partition.
// Partitions share two things: the counter of cas versions, and the seed by which they hash keys,
// which each header contains.
//
// A single partition is the region itself. Pure functions; server and client compute the same.

#ifndef OSPREY_INDEX_LAYOUT_PARTITIONS_H_
#define OSPREY_INDEX_LAYOUT_PARTITIONS_H_

#include <bit>
#include <cassert>
#include <cstdint>

#include "index/layout/hash.h"
#include "index/layout/layout.h"

namespace osprey::index {

inline constexpr uint32_t kPartitionsMax = 64;

// Whether a region may have so many partitions: a power of two, 1 to kPartitionsMax. (Coded by
// hand: each GET calls this, and a portable popcount is a function call.)
constexpr bool IsPartitionCount(uint64_t partitions) {
  return partitions - 1 < kPartitionsMax && (partitions & (partitions - 1)) == 0;
}

// The partition of a key whose hash, under the region's seed, is `hash`. It is independent of the
// key's segment, home and fingerprint. Those are bits of the hash; this is the top of a product to
// which all of them contribute. REQUIRES: IsPartitionCount(partitions).
constexpr uint32_t PartitionOf(KeyHash hash, uint32_t partitions) {
  constexpr uint64_t kFactor = 0xd6e8feb86659fd93;  // odd, without a pattern
  if (partitions == 1) return 0;
  assert(IsPartitionCount(partitions));
  return static_cast<uint32_t>((hash.bits * kFactor) >> (64 - std::countr_zero(partitions)));
}

struct PartitionSpan {
  uint64_t offset = 0;  // from the start of the region; a multiple of 4 KiB
  uint64_t bytes = 0;   // all partitions are equally long
};

// The span of partition `index`: the whole region if there is only one; else less than 4 KiB for
// each stays unused. REQUIRES: IsPartitionCount(partitions), index < partitions.
PartitionSpan SpanOfPartition(uint64_t region_bytes, uint32_t partitions, uint32_t index);

// The incarnation to which the checksums of partition `index` are bound, and which its header
// contains. For partition 0 it is the server's own. No two partitions have the same, nor the same
// sum of offset and incarnation (record.h) anywhere. So a record of one is never valid in another.
// Never 0 for index > 0. REQUIRES: index < kPartitionsMax.
uint64_t IncarnationOfPartition(uint64_t incarnation, uint32_t index);

}  // namespace osprey::index

#endif  // OSPREY_INDEX_LAYOUT_PARTITIONS_H_
