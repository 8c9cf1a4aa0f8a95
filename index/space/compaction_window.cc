#include "index/space/compaction_window.h"

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include "index/space/slabs.h"

namespace osprey::index {
namespace {

// The most extents examined to choose a window: some tens of microseconds.
constexpr uint64_t kExtentsSeenMax = 1024;

// Free runs considered as destinations of moved items.
constexpr size_t kFreeRunsSeenMax = 16;

// Neighbouring extents, and the cost of emptying them.
class Candidate {
 public:
  explicit Candidate(const ItemSpace& space) : space_(space) {}

  void Add(const ItemSpace::Extent& extent) {
    extents_.push_back(extent);
    Count(extent, +1);
  }
  void RemoveFirst() { Count(extents_[first_++], -1); }
  uint64_t begin() const { return extents_[first_].begin; }
  uint64_t end() const { return extents_.back().end(); }
  uint64_t pages() const { return pages_; }
  uint64_t pages_without_first() const { return pages_ - extents_[first_].pages; }
  uint64_t cost_bytes() const { return cost_bytes_; }
  // Whether its items fit into slabs of their classes and into free runs elsewhere, and its units
  // into free units.
  bool FitsElsewhere(const std::vector<std::pair<uint64_t, uint64_t>>& free_runs) const {
    uint64_t longest = 0, sum = 0;
    for (const auto& [offset, run_pages] : free_runs) {
      if (offset >= begin() && offset < end()) continue;
      longest = std::max(longest, run_pages);
      sum += run_pages;
    }
    return run_pages_ + slab_pages_ <= sum && LongestNeeded() <= longest &&
           units_ + free_pages_ / kPagesPerUnit <= space_.units_left();
  }

 private:
  struct OfClass {
    uint64_t used = 0;
    uint64_t free = 0;
    uint64_t pages = 0;
  };

  void Count(const ItemSpace::Extent& extent, int64_t sign) {
    pages_ += sign * extent.pages;
    cost_bytes_ += sign * extent.used_bytes;
    if (extent.kind == ItemSpace::Extent::Kind::kFree) free_pages_ += sign * extent.pages;
    if (extent.kind == ItemSpace::Extent::Kind::kRun) run_pages_ += sign * extent.pages;
    if (extent.kind == ItemSpace::Extent::Kind::kUnit) units_ += sign;
    if (extent.kind != ItemSpace::Extent::Kind::kSlab) return;
    OfClass& of = classes_[extent.length_class];
    of.used += sign * extent.used_chunks;
    of.free += sign * extent.free_chunks;
    const uint64_t free_elsewhere = space_.FreeChunks(extent.length_class) - of.free;
    const uint64_t lacking = of.used > free_elsewhere ? of.used - free_elsewhere : 0;
    slab_pages_ -= of.pages;
    of.pages = (lacking * ReadLengthOf(extent.length_class) + kPageBytes - 1) / kPageBytes;
    if (lacking > 0) of.pages = std::max(of.pages, Slabs::FewestPages(extent.length_class));
    slab_pages_ += of.pages;
  }
  // The longest free run that it needs.
  uint64_t LongestNeeded() const {
    uint64_t longest = 0;
    for (size_t i = first_; i < extents_.size(); ++i) {
      const ItemSpace::Extent& extent = extents_[i];
      if (extent.kind == ItemSpace::Extent::Kind::kRun) longest = std::max(longest, extent.pages);
      if (extent.kind == ItemSpace::Extent::Kind::kSlab &&
          classes_[extent.length_class].pages > 0) {
        longest = std::max(longest, Slabs::FewestPages(extent.length_class));
      }
    }
    return longest;
  }

  const ItemSpace& space_;
  std::vector<ItemSpace::Extent> extents_;
  size_t first_ = 0;  // extents before this were removed
  uint64_t pages_ = 0;
  uint64_t cost_bytes_ = 0;
  uint64_t free_pages_ = 0;
  uint64_t units_ = 0;
  uint64_t run_pages_ = 0;   // free runs that its runs need
  uint64_t slab_pages_ = 0;  // likewise, new slabs for its chunks
  std::array<OfClass, Slabs::kClasses> classes_{};
};

bool LeavesNoGap(const ItemSpace& space, const CompactionWindow& window) {
  const auto is_long = [&](uint64_t offset) {
    const ItemSpace::Extent extent = space.ExtentAt(offset);
    return extent.kind == ItemSpace::Extent::Kind::kRun && 2 * extent.pages >= window.pages();
  };
  return window.begin == space.begin() || window.end == space.end() ||
         is_long(window.begin - kPageBytes) || is_long(window.end);
}

// REQUIRES: a window exists, and extents begin and end there. The first window is found for any
// `extents_left`.
CompactionWindow CheapestIn(const ItemSpace& space, uint64_t begin, uint64_t end, uint64_t pages,
                            uint64_t& extents_left) {
  absl::optional<CompactionWindow> best;
  uint64_t first = begin;
  uint64_t used_bytes = 0;
  for (uint64_t at = begin; at < end && (extents_left > 0 || !best.has_value());) {
    const ItemSpace::Extent extent = space.ExtentAt(at);
    extents_left -= std::min<uint64_t>(extents_left, 1);
    at = extent.end();
    used_bytes += extent.used_bytes;
    for (;;) {
      const ItemSpace::Extent lowest = space.ExtentAt(first);
      if (at - lowest.end() < pages * kPageBytes) break;
      used_bytes -= lowest.used_bytes;
      first = lowest.end();
    }
    if (at - first < pages * kPageBytes) continue;
    if (!best.has_value() || used_bytes < best->cost_bytes)
      best = CompactionWindow{first, at, used_bytes};
  }
  return *best;
}

}  // namespace

FoundWindow CheapestWindow(const ItemSpace& space, uint64_t from, const WindowQuery& query) {
  const std::vector<std::pair<uint64_t, uint64_t>> free_runs =
      space.LongestFreeRuns(kFreeRunsSeenMax);
  absl::optional<Candidate> candidate(absl::in_place, space);
  FoundWindow best;
  uint64_t best_weight = 0;
  // A long window has more extents: up to 128 Ki, some milliseconds, for a GiB.
  const uint64_t extents_max = kExtentsSeenMax + query.pages / 2;
  uint64_t at = space.ExtentAt(from).begin;
  for (uint64_t i = 0; i < extents_max && at < space.end(); ++i) {
    const ItemSpace::Extent extent = space.ExtentAt(at);
    at = extent.end();
    if (extent.kind == ItemSpace::Extent::Kind::kUnit && !query.units) {
      candidate.emplace(space);
      continue;
    }
    candidate->Add(extent);
    while (candidate->pages_without_first() >= query.pages) candidate->RemoveFirst();
    const uint64_t cost_bytes = candidate->cost_bytes();
    if (candidate->pages() < query.pages || cost_bytes == 0) continue;
    if (cost_bytes * 100 > candidate->pages() * kPageBytes * query.cost_percent_max) continue;
    const CompactionWindow window{candidate->begin(), at, cost_bytes};
    const bool leaves_no_gap = window.pages() > query.short_pages_max && LeavesNoGap(space, window);
    const uint64_t weight = leaves_no_gap ? cost_bytes / 2 : cost_bytes;
    if (best.window.has_value() && weight >= best_weight) continue;
    if (!candidate->FitsElsewhere(free_runs)) continue;
    best.window = window;
    best_weight = weight;
  }
  best.searched_to = at;
  return best;
}

absl::optional<CompactionWindow> CheapestWindowBetween(const ItemSpace& space, uint64_t pages,
                                                       absl::Span<const uint64_t> pinned) {
  uint64_t extents_left = kExtentsSeenMax + pages;
  absl::optional<CompactionWindow> best;
  const auto look = [&](uint64_t begin, uint64_t end) {
    if (end < begin + pages * kPageBytes) return;
    const CompactionWindow window = CheapestIn(space, begin, end, pages, extents_left);
    if (!best.has_value() || window.cost_bytes < best->cost_bytes) best = window;
  };
  uint64_t begin = space.begin();
  for (const uint64_t item : pinned) {
    const ItemSpace::Extent extent = space.ExtentAt(item);
    look(begin, extent.begin);
    begin = extent.end();
  }
  look(begin, space.end());
  return best;
}

}  // namespace osprey::index
