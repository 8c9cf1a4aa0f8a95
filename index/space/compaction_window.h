// Which window of pages compaction empties: one with few bytes to move, whose items fit elsewhere.
//
// Thread rule: as ItemSpace's.

#ifndef OSPREY_INDEX_SPACE_COMPACTION_WINDOW_H_
#define OSPREY_INDEX_SPACE_COMPACTION_WINDOW_H_

#include <cstdint>

#include "absl/types/optional.h"
#include "absl/types/span.h"
#include "index/layout/layout.h"
#include "index/space/item_space.h"

namespace osprey::index {

// From the begin of an extent to the end of another. Offsets and lengths are in bytes.
struct CompactionWindow {
  uint64_t begin = 0;
  uint64_t end = 0;
  uint64_t cost_bytes = 0;  // in use, so they must be moved
  uint64_t pages() const { return (end - begin) / kPageBytes; }
};

struct WindowQuery {
  uint64_t pages = 0;
  uint64_t cost_percent_max = 0;  // of a window's bytes
  bool units = false;             // units of the index may be in it
  // Longer windows are for long values. Those at an end of item space, or next to a long value, are
  // preferred: gaps between long values are too short for the next one.
  uint64_t short_pages_max = 0;
};
struct FoundWindow {
  absl::optional<CompactionWindow> window;  // the one with the fewest bytes to move
  uint64_t searched_to = 0;                 // where the next search begins
};
// Examines some thousand extents from `from` on. REQUIRES: `from` is within item space.
FoundWindow CheapestWindow(const ItemSpace& space, uint64_t from, const WindowQuery& query);

// Among the windows of `pages` pages between pinned items (offsets in order), the one with the
// fewest bytes in use; none if all contain one. Examines some thousand extents.
absl::optional<CompactionWindow> CheapestWindowBetween(const ItemSpace& space, uint64_t pages,
                                                       absl::Span<const uint64_t> pinned);

}  // namespace osprey::index

#endif  // OSPREY_INDEX_SPACE_COMPACTION_WINDOW_H_
