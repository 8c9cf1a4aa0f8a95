// Free and used runs of item pages: best fit, with free neighbours joined. Its state is in private
// memory, 4 bytes a page; it never touches the region.
//
//   owner of a page   0            free
//                     n > 0        part of a used run of owner n (0 < n < 2^32)
//
// One range at a time may be closed: nothing in it is allocated until it is opened again. So free
// space in it stays together.

#ifndef OSPREY_INDEX_SPACE_PAGE_RUNS_H_
#define OSPREY_INDEX_SPACE_PAGE_RUNS_H_

#include <cstdint>
#include <iterator>
#include <utility>
#include <vector>

#include "absl/container/btree_map.h"
#include "absl/container/btree_set.h"
#include "absl/types/optional.h"
#include "index/space/region_space.h"

namespace osprey::index {

// Not thread-safe.
class PageRuns {
 public:
  // `space` must outlive this, and only this may take pages from it.
  explicit PageRuns(RegionSpace& space) : space_(space) {}

  // Allocates a run of `pages` free pages to `owner` and returns its offset; nullopt if there is no
  // such run.
  absl::optional<uint64_t> Take(uint64_t pages, uint32_t owner);
  // REQUIRES: a whole run that Take returned.
  void Release(uint64_t offset, uint64_t pages);

  // REQUIRES: none is closed; no run, used or free, crosses either end.
  void Close(uint64_t begin, uint64_t end);
  // Nothing is closed afterwards.
  void Open();
  bool IsClosed(uint64_t offset) const { return offset >= closed_begin_ && offset < closed_end_; }
  bool closed() const { return closed_end_ != 0; }

  // REQUIRES: within pages_begin() and pages_end() of the space.
  uint32_t OwnerOf(uint64_t offset) const { return owners_[PageOf(offset)]; }
  bool IsTaken(uint64_t offset) const {
    return offset >= space_.pages_begin() && offset < space_.pages_end() && OwnerOf(offset) != 0;
  }

  // The free run that contains `offset`, as (offset, pages). REQUIRES: its page is free.
  std::pair<uint64_t, uint64_t> FreeRunAt(uint64_t offset) const {
    return *std::prev(by_offset_.upper_bound(offset));
  }

  uint64_t free_pages() const { return free_pages_; }  // closed ones included
  uint64_t pages() const { return owners_.size(); }
  uint64_t free_runs() const { return by_offset_.size(); }
  // Of the free runs that are not closed: the pages of the longest; and the longest ones, as
  // (offset, pages).
  uint64_t largest_run() const { return by_size_.empty() ? 0 : by_size_.rbegin()->first; }
  std::vector<std::pair<uint64_t, uint64_t>> LongestRuns(size_t count) const;
  uint64_t begin() const { return space_.pages_begin(); }
  uint64_t end() const { return space_.pages_end(); }
  uint64_t pages_left() const { return space_.pages_left(); }  // in the middle of the region
  // The pages left in the middle, and the free run next to them.
  uint64_t border_run() const { return pages_left() + FreeAtBorder(); }

 private:
  // Pages are counted from the top, which does not move.
  uint64_t PageOf(uint64_t offset) const { return (space_.pages_end() - 1 - offset) / kPageBytes; }
  void SetOwner(uint64_t offset, uint64_t pages, uint32_t owner);
  uint64_t FreeAtBorder() const;
  absl::optional<uint64_t> FromFreeRun(uint64_t pages);
  absl::optional<uint64_t> FromRegion(uint64_t pages);
  void JoinAt(uint64_t border);
  void AddFree(uint64_t offset, uint64_t pages);
  void RemoveFree(uint64_t offset, uint64_t pages);

  RegionSpace& space_;
  std::vector<uint32_t> owners_;                            // by PageOf
  absl::btree_map<uint64_t, uint64_t> by_offset_;           // free runs: pages
  absl::btree_set<std::pair<uint64_t, uint64_t>> by_size_;  // (pages, offset); without closed runs
  uint64_t free_pages_ = 0;
  uint64_t closed_begin_ = 0;
  uint64_t closed_end_ = 0;  // 0: nothing is closed
};

}  // namespace osprey::index

#endif  // OSPREY_INDEX_SPACE_PAGE_RUNS_H_
