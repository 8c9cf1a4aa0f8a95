// The division of a region into partitions, and the partition of a key.

#include "index/layout/partitions.h"

#include <cmath>
#include <cstdint>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "index/layout/hash.h"
#include "index/layout/layout.h"
#include "index/layout/record.h"

namespace osprey::index {
namespace {

constexpr uint32_t kCounts[] = {1, 2, 4, 8, 16, 32, 64};

TEST(PartitionsTest, OnlyPowersOfTwoUpTo64AreCounts) {
  for (uint32_t partitions : kCounts) EXPECT_TRUE(IsPartitionCount(partitions)) << partitions;
  for (uint64_t partitions :
       {uint64_t{0}, uint64_t{3}, uint64_t{6}, uint64_t{63}, uint64_t{128}, uint64_t{1} << 32})
    EXPECT_FALSE(IsPartitionCount(partitions)) << partitions;
}

// Server and client are built separately and must agree. (The values were computed in Python.)
TEST(PartitionsTest, KnownHashesBelongToKnownPartitions) {
  EXPECT_EQ(PartitionOf({0xffffffffffffffff}, 1), 0u);
  EXPECT_EQ(PartitionOf({0}, 64), 0u);
  EXPECT_EQ(PartitionOf({1}, 64), 53u);
  EXPECT_EQ(PartitionOf({1}, 2), 1u);
  EXPECT_EQ(PartitionOf({0x0123456789abcdef}, 64), 46u);
  EXPECT_EQ(PartitionOf({0x0123456789abcdef}, 4), 2u);
  EXPECT_EQ(IncarnationOfPartition(0x0123456789abcdef, 3), 0x0d23456789abcdefu);
}

TEST(PartitionsTest, SpansAreEqualAlignedAndApart) {
  for (uint64_t region_bytes : {uint64_t{64} << 20, (uint64_t{100} << 20) + 12345}) {
    for (uint32_t partitions : kCounts) {
      uint64_t end = 0;
      for (uint32_t i = 0; i < partitions; ++i) {
        const PartitionSpan span = SpanOfPartition(region_bytes, partitions, i);
        EXPECT_EQ(span.offset, end);
        EXPECT_EQ(span.offset % 4096, 0u);
        EXPECT_EQ(span.bytes, SpanOfPartition(region_bytes, partitions, 0).bytes);
        end = span.offset + span.bytes;
      }
      EXPECT_LE(end, region_bytes);
      EXPECT_GT(end + partitions * 4096, region_bytes);
    }
  }
  EXPECT_EQ(SpanOfPartition(12345, 1, 0).bytes, 12345u);
}

TEST(PartitionsTest, RecordsOfDifferentPartitionsHaveDifferentChecksums) {
  std::mt19937_64 random(7);
  for (uint64_t incarnation : {uint64_t{1}, uint64_t{0xffffffffffffffff}, uint64_t{1} << 63,
                               uint64_t{random()}, uint64_t{random()}}) {
    for (uint32_t a = 0; a < kPartitionsMax; ++a) {
      const uint64_t in_a = IncarnationOfPartition(incarnation, a);
      EXPECT_NE(in_a, 0u);
      for (uint32_t b = 0; b < a; ++b) {
        // The offsets that come nearest to cancelling the difference.
        const uint64_t in_b = IncarnationOfPartition(incarnation, b);
        const uint64_t offset = (in_a ^ in_b) % kRegionBytesMax;
        EXPECT_NE(RecordChecksum(1, 2, 3, {offset, in_a}), RecordChecksum(1, 2, 3, {0, in_b}));
        EXPECT_NE(in_a, in_b);
      }
    }
  }
  EXPECT_EQ(IncarnationOfPartition(5, 0), 5u);
}

// Chi-square of `counts` against the uniform distribution, in standard deviations.
double Excess(const std::vector<uint64_t>& counts) {
  uint64_t sum = 0;
  for (uint64_t count : counts) sum += count;
  const double expected = static_cast<double>(sum) / static_cast<double>(counts.size());
  double chi = 0;
  for (uint64_t count : counts) {
    const double off = static_cast<double>(count) - expected;
    chi += off * off / expected;
  }
  const double freedom = static_cast<double>(counts.size() - 1);
  return (chi - freedom) / std::sqrt(2 * freedom);
}

// Within a partition, keys are spread over homes, segments and fingerprints as in the whole region.
// Otherwise its index would fill unevenly.
TEST(PartitionsTest, PartitionsSayNothingOfHomesSegmentsAndFingerprints) {
  constexpr uint32_t kPlaces = 64;
  constexpr uint64_t kKeys = 1 << 20;
  const std::vector<std::function<uint32_t(KeyHash)>> places = {
      [](KeyHash hash) { return hash.home() * kPlaces / kHomesPerSegment; },
      [](KeyHash hash) { return hash.directory_index(6); },
      [](KeyHash hash) { return hash.directory_index(26) >> 20; },
      [](KeyHash hash) { return hash.fingerprint() % kPlaces; },
      [](KeyHash hash) { return hash.fingerprint() >> 10; },
  };
  for (uint32_t partitions : {2u, 64u}) {
    for (size_t p = 0; p < places.size(); ++p) {
      // 64 does not divide the 255 homes, so each place is compared with the same place elsewhere.
      std::vector<std::vector<uint64_t>> counts(kPlaces, std::vector<uint64_t>(partitions));
      for (uint64_t key = 0; key < kKeys; ++key) {
        const KeyHash hash = HashKey("key" + std::to_string(key), 42);
        ++counts[places[p](hash)][PartitionOf(hash, partitions)];
      }
      for (uint32_t place = 0; place < kPlaces; ++place) {
        EXPECT_LT(Excess(counts[place]), 6)
            << "view " << p << ", place " << place << " of " << partitions << " partitions";
      }
    }
  }
}

}  // namespace
}  // namespace osprey::index
