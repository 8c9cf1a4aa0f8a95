#include "index/space/page_runs.h"

#include <cassert>
#include <iterator>
#include <utility>

namespace osprey::index {

absl::optional<uint64_t> PageRuns::Take(uint64_t pages, uint32_t owner) {
  assert(pages > 0 && owner != 0);
  absl::optional<uint64_t> offset = FromFreeRun(pages);
  if (!offset.has_value()) offset = FromRegion(pages);
  if (offset.has_value()) SetOwner(*offset, pages, owner);
  return offset;
}

// The smallest run that is large enough, and of those the one nearest to the index. Takes its upper
// end, so that the rest stays nearest to the free middle of the region.
absl::optional<uint64_t> PageRuns::FromFreeRun(uint64_t pages) {
  const auto found = by_size_.lower_bound({pages, 0});
  if (found == by_size_.end()) return absl::nullopt;
  const auto [run_pages, run_offset] = *found;
  RemoveFree(run_offset, run_pages);
  const uint64_t rest = run_pages - pages;
  if (rest > 0) AddFree(run_offset, rest);
  return run_offset + rest * kPageBytes;
}

uint64_t PageRuns::FreeAtBorder() const {
  const auto lowest = by_offset_.begin();
  if (lowest == by_offset_.end() || lowest->first != space_.pages_begin()) return 0;
  return IsClosed(lowest->first) ? 0 : lowest->second;
}

// New pages join the free run at the border, if there is one. So only the missing pages are taken.
absl::optional<uint64_t> PageRuns::FromRegion(uint64_t pages) {
  const uint64_t at_border = FreeAtBorder();
  const auto lowest = by_offset_.begin();
  const absl::optional<uint64_t> offset = space_.TakePages(pages - at_border);
  if (!offset.has_value()) return absl::nullopt;
  owners_.resize(PageOf(*offset) + 1, 0);
  if (at_border > 0) RemoveFree(lowest->first, at_border);
  return offset;
}

void PageRuns::Release(uint64_t offset, uint64_t pages) {
  SetOwner(offset, pages, 0);
  AddFree(offset, pages);
  JoinAt(offset + pages * kPageBytes);
  JoinAt(offset);
}

// Joins the free runs before and after `border`, if both exist and lie on the same side of the
// closed range.
void PageRuns::JoinAt(uint64_t border) {
  const auto after = by_offset_.find(border);
  if (after == by_offset_.end() || after == by_offset_.begin()) return;
  const auto [offset, pages] = *std::prev(after);
  const uint64_t after_pages = after->second;
  assert(offset + pages * kPageBytes <= border);
  if (offset + pages * kPageBytes != border || IsClosed(offset) != IsClosed(border)) return;
  RemoveFree(border, after_pages);
  RemoveFree(offset, pages);
  AddFree(offset, pages + after_pages);
}

void PageRuns::Close(uint64_t begin, uint64_t end) {
  assert(!closed() && begin < end);
  for (auto run = by_offset_.lower_bound(begin); run != by_offset_.end() && run->first < end;
       ++run) {
    assert(run->first + run->second * kPageBytes <= end);
    by_size_.erase({run->second, run->first});
  }
  closed_begin_ = begin;
  closed_end_ = end;
}

void PageRuns::Open() {
  const uint64_t begin = std::exchange(closed_begin_, 0);
  const uint64_t end = std::exchange(closed_end_, 0);
  for (auto run = by_offset_.lower_bound(begin); run != by_offset_.end() && run->first < end;
       ++run) {
    by_size_.emplace(run->second, run->first);
  }
  JoinAt(end);
  JoinAt(begin);
}

std::vector<std::pair<uint64_t, uint64_t>> PageRuns::LongestRuns(size_t count) const {
  std::vector<std::pair<uint64_t, uint64_t>> runs;
  for (auto run = by_size_.rbegin(); run != by_size_.rend() && runs.size() < count; ++run) {
    runs.emplace_back(run->second, run->first);
  }
  return runs;
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
  if (!IsClosed(offset)) by_size_.emplace(pages, offset);
  free_pages_ += pages;
}

void PageRuns::RemoveFree(uint64_t offset, uint64_t pages) {
  by_offset_.erase(offset);
  by_size_.erase({pages, offset});
  free_pages_ -= pages;
}

}  // namespace osprey::index
