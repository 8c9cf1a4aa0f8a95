// Space reserved for updates of long values if nothing is evicted. When all else is full, a value
// that arrives slowly still has a place beside the one that it replaces (W6).
//
//   free pages --TakeBack--> held --Lend--> free, for the one allocation before the next TakeBack
//
// It is held as runs of pages that look like items being written, so nothing else is allocated
// there. An update that was lent this space returns that of its old value.

#ifndef OSPREY_INDEX_SPACE_UPDATE_ROOM_H_
#define OSPREY_INDEX_SPACE_UPDATE_ROOM_H_

#include <cstdint>
#include <utility>
#include <vector>

#include "index/space/item_space.h"
#include "index/space/region_writer.h"

namespace osprey::index {

// Not thread-safe.
class UpdateRoom {
 public:
  // Both must outlive this.
  UpdateRoom(RegionWriter& writer, ItemSpace& space, uint64_t bytes)
      : writer_(writer), space_(space), pages_max_(bytes / kPageBytes) {}

  uint64_t bytes_max() const { return pages_max_ * kPageBytes; }
  uint64_t bytes() const { return pages_ * kPageBytes; }
  bool full() const { return pages_ == pages_max_; }

  // Takes free pages, until it is full.
  void TakeBack();
  // Frees all of it.
  void Lend();

 private:
  RegionWriter& writer_;
  ItemSpace& space_;
  const uint64_t pages_max_;
  uint64_t pages_ = 0;
  std::vector<uint64_t> runs_;  // offsets
};

}  // namespace osprey::index

#endif  // OSPREY_INDEX_SPACE_UPDATE_ROOM_H_
