// Where index space and item space meet. Index units are taken from the bottom upwards, item pages
// from the top downwards; what was taken is never given back, so that neither ever becomes the
// other (W4).
//
//   units_offset                                                          region_bytes
//   +--------+--------+--------+------------- free -------------+--------+--------+
//   | unit 0 | unit 1 | …      |-> units_end()      pages_begin() <-|  …  | page   |
//   +--------+--------+--------+--------------------------------+--------+--------+

#ifndef OSPREY_INDEX_REGION_SPACE_H_
#define OSPREY_INDEX_REGION_SPACE_H_

#include <cstdint>

#include "absl/types/optional.h"
#include "index/layout.h"

namespace osprey::index {

// The grain of item space: of slabs and of large items. A page of memory, and small beside a large
// item.
inline constexpr uint64_t kPageBytes = 4096;

// Not thread-safe.
class RegionSpace {
 public:
  RegionSpace(uint64_t units_offset, uint64_t region_bytes)
      : units_offset_(units_offset),
        region_bytes_(region_bytes / kPageBytes * kPageBytes),
        units_end_(units_offset),
        pages_begin_(region_bytes_) {}

  // The offset of a new unit.
  absl::optional<uint64_t> TakeUnit() {
    if (pages_begin_ - units_end_ < kUnitBytes) return absl::nullopt;
    units_end_ += kUnitBytes;
    return units_end_ - kUnitBytes;
  }

  // Lowers pages_begin() by `pages` pages and returns it.
  absl::optional<uint64_t> TakePages(uint64_t pages) {
    if ((pages_begin_ - units_end_) / kPageBytes < pages) return absl::nullopt;
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
  uint64_t units_end_;
  uint64_t pages_begin_;
};

}  // namespace osprey::index

#endif  // OSPREY_INDEX_REGION_SPACE_H_
