#include "index/layout/partitions.h"

namespace osprey::index {
namespace {

// Only the highest bits differ between partitions. Offsets do not reach these bits. So offset ^
// incarnation, of which checksums are made, differs for any two offsets of any two partitions.
constexpr int kIncarnationShift = 64 - std::countr_zero(kPartitionsMax);
constexpr uint64_t kIncarnationLow = (uint64_t{1} << kIncarnationShift) - 1;
static_assert(kRegionBytesMax <= uint64_t{1} << kIncarnationShift);

constexpr uint64_t kPartitionGrainBytes = 4096;

}  // namespace

PartitionSpan SpanOfPartition(uint64_t region_bytes, uint32_t partitions, uint32_t index) {
  assert(IsPartitionCount(partitions) && index < partitions);
  if (partitions == 1) return {0, region_bytes};
  const uint64_t bytes = region_bytes / partitions / kPartitionGrainBytes * kPartitionGrainBytes;
  return {index * bytes, bytes};
}

uint64_t IncarnationOfPartition(uint64_t incarnation, uint32_t index) {
  assert(index < kPartitionsMax);
  if (index == 0) return incarnation;
  if ((incarnation & kIncarnationLow) == 0) incarnation |= 1;
  return incarnation ^ uint64_t { index } << kIncarnationShift;
}

}  // namespace osprey::index
