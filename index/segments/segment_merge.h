// Lays out the segment that replaces two halves with few keys, or one that moves.
//
// When two merge, each key gets a line of its window, or its home's chain, as if it were new: homes
// in order, the longest keys of each first. When one moves, each key keeps its line, or its chain.
//
//   low half     line 7: A C      line 8: F           chain of 7: h
//   high half    line 7: b d      line 8: e
//   segment      line 7: A C b    line 8: d h F e                      (A b C d h have home 7)

#ifndef OSPREY_INDEX_SEGMENTS_SEGMENT_MERGE_H_
#define OSPREY_INDEX_SEGMENTS_SEGMENT_MERGE_H_

#include <cstdint>
#include <vector>

#include "absl/strings/string_view.h"
#include "index/layout/layout.h"
#include "index/segments/clock_counters.h"
#include "index/segments/segment_image.h"
#include "index/space/item_store.h"
#include "index/space/region_writer.h"

namespace osprey::index {

// Not thread-safe. It is reused from merge to merge, for its memory.
class SegmentMerge {
 public:
  // All must outlive this.
  SegmentMerge(const RegionWriter& writer, const ItemStore& items, const ClockCounters& clocks,
               uint64_t hash_seed)
      : writer_(writer), items_(items), clocks_(clocks), hash_seed_(hash_seed) {}

  // Lays out the keys of both segments. False: some do not fit, and there is no image. It would fit if
  // the keys in too_long() were items. The counts of keys in the image are the caller's, here and
  // below.
  bool Merge(uint64_t low_segment, uint64_t high_segment);
  // Inline keys. Valid until the next write.
  const std::vector<absl::string_view>& too_long() const { return too_long_; }
  // Lays out the keys of the segment as they are.
  void Copy(uint64_t segment);

  SegmentImage& image() { return image_; }

 private:
  void Collect(uint64_t segment);
  void Place(uint32_t home);
  uint32_t HomeOf(const SegmentEntry& entry) const;

  const RegionWriter& writer_;
  const ItemStore& items_;
  const ClockCounters& clocks_;
  uint64_t hash_seed_;
  SegmentImage image_;
  std::vector<SegmentEntry> entries_;
  std::vector<std::vector<SegmentEntry>> by_home_;
  std::vector<absl::string_view> too_long_;
};

}  // namespace osprey::index

#endif  // OSPREY_INDEX_SEGMENTS_SEGMENT_MERGE_H_
