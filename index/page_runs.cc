#include "index/page_runs.h"

#include <cassert>
#include <iterator>

namespace osprey::index {

absl::optional<uint64_t> PageRuns::Take(uint64_t pages, uint32_t owner) {
  assert(pages > 0 && owner != 0);
  absl::optional<uint64_t> offset = FromFreeRun(pages);
  if (!offset.has_value()) offset = FromRegion(pages);
  if (offset.has_value()) SetOwner(*offset, pages, owner);
  return offset;
}

// The smallest run that is large enough, and of those the one nearest to the index; its upper end,
// so that what is left stays nearest to the free middle of the region.
absl::optional<uint64_t> PageRuns::FromFreeRun(uint64_t pages) {
  const auto found = by_size_.lower_bound({pages, 0});
  if (found == by_size_.end()) return absl::nullopt;
  const auto [run_pages, run_offset] = *found;
  RemoveFree(run_offset, run_pages);
  const uint64_t rest = run_pages - pages;
  if (rest > 0) AddFree(run_offset, rest);
  return run_offset + rest * kPageBytes;
}

// New pages join the free run at the border, if there is one, so that only what is missing is
// taken.
absl::optional<uint64_t> PageRuns::FromRegion(uint64_t pages) {
  uint64_t at_border = 0;
  const auto lowest = by_offset_.begin();
  if (lowest != by_offset_.end() && lowest->first == space_.pages_begin())
    at_border = lowest->second;
  const absl::optional<uint64_t> offset = space_.TakePages(pages - at_border);
  if (!offset.has_value()) return absl::nullopt;
  owners_.resize(PageOf(*offset) + 1, 0);
  if (at_border > 0) RemoveFree(lowest->first, at_border);
  return offset;
}

void PageRuns::Release(uint64_t offset, uint64_t pages) {
  SetOwner(offset, pages, 0);
  const auto next = by_offset_.lower_bound(offset);
  if (next != by_offset_.begin()) {
    const auto [before, before_pages] = *std::prev(next);
    assert(before + before_pages * kPageBytes <= offset);
    if (before + before_pages * kPageBytes == offset) {
      RemoveFree(before, before_pages);
      offset = before;
      pages += before_pages;
    }
  }
  const auto after = by_offset_.find(offset + pages * kPageBytes);
  if (after != by_offset_.end()) {
    const auto [after_offset, after_pages] = *after;
    RemoveFree(after_offset, after_pages);
    pages += after_pages;
  }
  AddFree(offset, pages);
}

void PageRuns::SetOwner(uint64_t offset, uint64_t pages, uint32_t owner) {
  const uint64_t last = PageOf(offset);  // the lowest address has the highest number
  for (uint64_t i = 0; i < pages; ++i) {
    assert((owners_[last - i] == 0) != (owner == 0));  // taken twice, or released twice
    owners_[last - i] = owner;
  }
}

void PageRuns::AddFree(uint64_t offset, uint64_t pages) {
  by_offset_.emplace(offset, pages);
  by_size_.emplace(pages, offset);
  free_pages_ += pages;
}

void PageRuns::RemoveFree(uint64_t offset, uint64_t pages) {
  by_offset_.erase(offset);
  by_size_.erase({pages, offset});
  free_pages_ -= pages;
}

}  // namespace osprey::index
