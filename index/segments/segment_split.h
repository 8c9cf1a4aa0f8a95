// Lays out the two halves of a segment that splits.
//
// A key keeps its line number. It fits there, since the other half's keys leave space, and walks by
// line number meet it whatever splits (line_walk.h). Only keys of a chain move, into their window while
// there is space.
//
//   segment      line 7: A b C d      line 8: e F        chain of 7: G h I
//   low half     line 7: A C G I      line 8: F
//   high half    line 7: b d h        line 8: e

#ifndef OSPREY_INDEX_SEGMENTS_SEGMENT_SPLIT_H_
#define OSPREY_INDEX_SEGMENTS_SEGMENT_SPLIT_H_

#include <cstdint>
#include <vector>

#include "index/layout/layout.h"
#include "index/segments/clock_counters.h"
#include "index/segments/segment_image.h"
#include "index/space/item_store.h"
#include "index/space/region_writer.h"

namespace osprey::index {

// Not thread-safe. It is reused from split to split, for its memory: 64 KiB and some for each key.
class SegmentSplit {
 public:
  // All must outlive this.
  SegmentSplit(const RegionWriter& writer, const ItemStore& items, const ClockCounters& clocks,
               uint64_t hash_seed)
      : writer_(writer), items_(items), clocks_(clocks), hash_seed_(hash_seed) {}

  // Reads the segment at `segment` and divides its keys by bit `depth` of their hashes.
  void Read(uint64_t segment, uint32_t depth);

  // 0: the keys whose bit is 0.
  SegmentImage& half(uint32_t bit) { return halves_[bit]; }

 private:
  // The half of the key, which is counted there.
  SegmentImage& HalfOf(const SegmentEntry& entry, uint32_t depth);

  const RegionWriter& writer_;
  const ItemStore& items_;
  const ClockCounters& clocks_;
  uint64_t hash_seed_;
  SegmentImage halves_[2];
  std::vector<SegmentEntry> entries_;
};

}  // namespace osprey::index

#endif  // OSPREY_INDEX_SEGMENTS_SEGMENT_SPLIT_H_
