// The border between index space and item space. Index units are taken from the bottom upwards,
// item pages from the top downwards. Neither ever becomes the other (W4). A unit whose segment has
// split is free for the index again.
//
//   units_offset                                                          region_bytes
//   +--------+--------+--------+------------- free -------------+--------+--------+
//   | unit 0 | unit 1 | …      |-> units_end()      pages_begin() <-|  …  | page   |
//   +--------+--------+--------+--------------------------------+--------+--------+
//   |<---------- index_room: items stay out of it ---------->|

#ifndef OSPREY_INDEX_SPACE_REGION_SPACE_H_
#define OSPREY_INDEX_SPACE_REGION_SPACE_H_

#include <algorithm>
#include <cstdint>
#include <vector>

#include "absl/types/optional.h"
#include "index/layout/layout.h"

namespace osprey::index {

// The granularity of item space, for slabs and large items. It is a page of memory, and small
// relative to a large item.
inline constexpr uint64_t kPageBytes = 4096;

// Not thread-safe.
class RegionSpace {
 public:
  // The first `index_room` bytes from units_offset are never allocated to items.
  RegionSpace(uint64_t units_offset, uint64_t region_bytes, uint64_t index_room = 0)
      : units_offset_(units_offset),
        region_bytes_(region_bytes / kPageBytes * kPageBytes),
        pages_begin_min_(std::min(units_offset + index_room, region_bytes_)),
        units_end_(units_offset),
        pages_begin_(region_bytes_) {}

  // Allocates a unit and returns its offset. Its bytes are arbitrary.
  absl::optional<uint64_t> TakeUnit() {
    if (!units_free_.empty()) {
      const uint64_t offset = units_free_.back();
      units_free_.pop_back();
      return offset;
    }
    if (pages_begin_ - units_end_ < kUnitBytes) return absl::nullopt;
    units_end_ += kUnitBytes;
    return units_end_ - kUnitBytes;
  }
  // REQUIRES: a unit that TakeUnit returned.
  void FreeUnit(uint64_t offset) { units_free_.push_back(offset); }
  // The number of units that can still be taken.
  uint64_t units_left() const {
    return units_free_.size() + (pages_begin_ - units_end_) / kUnitBytes;
  }
  uint64_t units_used() const {
    return (units_end_ - units_offset_) / kUnitBytes - units_free_.size();
  }

  // The number of pages that can still be taken.
  uint64_t pages_left() const {
    const uint64_t floor = std::max(units_end_, pages_begin_min_);
    return pages_begin_ < floor ? 0 : (pages_begin_ - floor) / kPageBytes;
  }
  // Lowers pages_begin() by `pages` pages and returns it.
  absl::optional<uint64_t> TakePages(uint64_t pages) {
    if (pages_left() < pages) return absl::nullopt;
    pages_begin_ -= pages * kPageBytes;
    return pages_begin_;
  }

  uint64_t units_offset() const { return units_offset_; }
  uint64_t units_end() const { return units_end_; }
  uint64_t pages_begin() const { return pages_begin_; }
  uint64_t pages_end() const { return region_bytes_; }

 private:
  uint64_t units_offset_;
  uint64_t region_bytes_;
  uint64_t pages_begin_min_;
  uint64_t units_end_;
  uint64_t pages_begin_;
  std::vector<uint64_t> units_free_;  // offsets
};

}  // namespace osprey::index

#endif  // OSPREY_INDEX_SPACE_REGION_SPACE_H_
