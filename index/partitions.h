// How the server's region is cut into partitions: tables that know nothing of each other, so that
// several threads can write at once.
//
//   0          span.bytes   2 * span.bytes                                       region_bytes
//   +------------+------------+------------+------------+- … -+------------+---------+
//   | partition 0| partition 1| partition 2| partition 3|     | P - 1      | (unused)|
//   +------------+------------+------------+------------+- … -+------------+---------+
//     each: header, directory, segments, items, with offsets from its own start
//
// A key lives in one partition for good. Hence each rule of README.md holds within a partition, and
// nothing is said across them but this: all cas versions of a server come from one counter, and all
// partitions hash keys with the same seed, which each of their headers tells.
//
// With one partition it is the region itself. Pure functions; server and client compute the same.

#ifndef OSPREY_INDEX_PARTITIONS_H_
#define OSPREY_INDEX_PARTITIONS_H_

#include <bit>
#include <cassert>
#include <cstdint>

#include "index/hash.h"
#include "index/layout.h"

namespace osprey::index {

inline constexpr uint32_t kPartitionsMax = 64;

// How many partitions a region may have: a power of two, 1 to kPartitionsMax.
// (By hand: each GET asks, and to count bits takes a call where the CPU may be of any age.)
constexpr bool IsPartitionCount(uint64_t partitions) {
  return partitions - 1 < kPartitionsMax && (partitions & (partitions - 1)) == 0;
}

// The partition of a key whose hash, under the region's seed, is `hash`. Says nothing of its
// segment, home and fingerprint there: those are bits of the hash, this is the top of a product to
// which all of them add. REQUIRES: IsPartitionCount(partitions).
constexpr uint32_t PartitionOf(KeyHash hash, uint32_t partitions) {
  assert(IsPartitionCount(partitions));
  constexpr uint64_t kFactor = 0xd6e8feb86659fd93;  // odd, without a pattern
  if (partitions == 1) return 0;
  return static_cast<uint32_t>((hash.bits * kFactor) >> (64 - std::countr_zero(partitions)));
}

struct PartitionSpan {
  uint64_t offset = 0;  // from the start of the region; a multiple of 4 KiB
  uint64_t bytes = 0;   // all partitions are equally long
};

// Where partition `index` is. The whole region when there is only one; else less than 4 KiB for
// each of them stays unused. REQUIRES: IsPartitionCount(partitions), index < partitions.
PartitionSpan SpanOfPartition(uint64_t region_bytes, uint32_t partitions, uint32_t index);

// What the checksums of partition `index` are bound to, and its header tells: the server's own
// incarnation for partition 0. No two partitions have the same, nor the same sum of offset and
// incarnation (record.h) anywhere: a record of one is none of another. Never 0 for index > 0.
// REQUIRES: index < kPartitionsMax.
uint64_t IncarnationOfPartition(uint64_t incarnation, uint32_t index);

}  // namespace osprey::index

#endif  // OSPREY_INDEX_PARTITIONS_H_
