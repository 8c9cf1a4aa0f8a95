// Overflow lines: where keys go that find no room in their window.
//
//   home line h --link--> overflow line --link--> overflow line        at most kChainLinesMax
//
// What keeps a reader that walks a chain from missing a key (W3):
//   1. A line is complete before a link leads to it.
//   2. A line is unlinked only when it is empty and the last of its chain; so every line that holds
//      a key stays linked, and so do all lines before it.
//   3. A key leaves a chain by being deleted or by being pulled back into h, whose version a reader
//      compares after its last READ; and it is in h before it leaves the chain.
// So a line may be used for another chain at once. A free line of a unit is an empty line of no
// generation, or an unlinked one: the CLOCK hand and hints may visit it.
//
// Overflow lines hold slots only: one word each, so that whatever room appears in h is of use.

#ifndef OSPREY_INDEX_SEGMENTS_CHAINS_H_
#define OSPREY_INDEX_SEGMENTS_CHAINS_H_

#include <algorithm>
#include <cassert>
#include <cstdint>

#include "absl/container/btree_map.h"
#include "absl/container/btree_set.h"
#include "absl/types/optional.h"
#include "absl/types/span.h"
#include "index/layout/layout.h"
#include "index/segments/clock_counters.h"
#include "index/segments/line_editor.h"
#include "index/space/region_space.h"
#include "index/space/region_writer.h"

namespace osprey::index {

// Not thread-safe.
class Chains {
 public:
  // All must outlive this.
  Chains(RegionWriter& writer, RegionSpace& space, ClockCounters& clocks)
      : writer_(writer), space_(space), clocks_(clocks) {}

  // Puts `slot` into the chain of `home`. False when the chain is at its longest and full, or there
  // is no room for another line; nothing has changed then.
  bool Add(uint64_t home, uint64_t slot, uint32_t clock = kClockNew);

  // Moves slots from the chain of `home` into it while it has room. Returns how many.
  uint32_t MoveFromOverflow(uint64_t home);

  // After a slot was removed from the chain of `home`: frees the empty lines at its end.
  void Trim(uint64_t home);

  // Whether the chain of `home` is at its longest, without a free word.
  bool IsFull(uint64_t home) const;

  // Lines of the chain of `home`.
  uint32_t LengthOf(uint64_t home) const;
  // The most slots that the chain of `home` can still take, if there are lines.
  uint64_t RoomAt(uint64_t home) const;

  // --- For keys that will be added later.
  // Keeps a free line that only Add after Unkeep takes. False if there is none.
  bool Keep();
  // REQUIRES: one is kept.
  void Unkeep() {
    assert(kept_ > 0);
    --kept_;
  }

  // --- For a segment that splits.
  // Makes sure of room for `lines` more lines. False when there is none.
  bool Reserve(uint64_t lines);
  // A key of a chain: its slot, and its counter.
  struct Key {
    uint64_t slot = 0;
    uint32_t clock = kClockNew;
  };
  // Writes a chain of `keys` and returns where it begins, for the link of a home of `generation`.
  // REQUIRES: Reserve made sure of it; 1 to kChainLinesMax lines.
  uint64_t Build(absl::Span<const Key> keys, uint32_t generation);
  // Ends the life of the chain's lines: rewrites them as lines of no generation, and frees them.
  // The home's own line is the caller's to rewrite.
  void Poison(uint64_t home);

  // --- For a unit that becomes free.
  bool IsUnit(uint64_t offset) const { return units_.contains(offset); }
  // Takes no more lines from the unit, while its pages are closed (region_space.h). Returns the slot
  // of a key in it; nullopt: no line in use has one, or its free lines are kept.
  absl::optional<uint64_t> Vacate(uint64_t unit);

  uint64_t lines() const { return lines_; }  // in use

 private:
  // A unit of overflow lines, of which some are free.
  struct Unit {
    uint32_t free_lines = 0;
    uint64_t free[kLinesPerUnit / 64] = {};  // a bit per line
  };

  bool AddUnit();
  void EndVacating();
  void Offer(uint64_t offset, const Unit& unit);
  // Whether so many free lines are enough for those that are kept. Once some were, a line stays free,
  // so that Keep need not begin a unit each time.
  bool IsEnough(uint64_t free_lines) const {
    return free_lines >= std::max<uint64_t>(kept_, keeps_ ? 1 : 0);
  }
  absl::optional<uint64_t> TakeLine();
  void FreeLine(uint64_t offset);
  // The chain's last line; `home` itself when there is no chain.
  uint64_t LastOf(uint64_t home) const;
  void UnlinkFirstEmpty(const uint64_t* chain, uint32_t length);

  RegionWriter& writer_;
  RegionSpace& space_;
  ClockCounters& clocks_;
  // By offset. The first with a free line is used first, so that others become empty, which makes
  // them free for segments: most chains live only shortly before their segments split.
  absl::btree_map<uint64_t, Unit> units_;
  absl::btree_set<uint64_t> units_with_room_;
  // The unit whose free lines do not count, if there is one.
  absl::optional<uint64_t> vacated_;
  uint64_t free_lines_ = 0;
  uint64_t kept_ = 0;   // of free_lines_
  bool keeps_ = false;  // Keep was called
  uint64_t lines_ = 0;
};

}  // namespace osprey::index

#endif  // OSPREY_INDEX_SEGMENTS_CHAINS_H_
