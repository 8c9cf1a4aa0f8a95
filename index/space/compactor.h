// Makes free space contiguous again by moving items.
//
// When value sizes change, free space fragments: chunks of half-empty slabs, and runs between large
// items that outlive their neighbours. The compactor chooses a window of pages that holds few bytes
// and closes it to new items. It moves the window's items, one by one, to free space outside, and the
// index its units. Then the window is one free run.
//
//              | slab: 3 of 36 | free | run of 5 pages | slab: 7 of 36 |
//              |<----------------- window, closed -------------------->|
//     moved:       |                        |                |
//                  v                        v                v
//              other slabs of the class   a free run    other slabs of the class
//
//   idle --Choose--> moving --all moved--> waiting for the grace periods in it --> open, idle
//                      '--an item cannot be moved, no space for it--> open, idle
//
// A move is W2's update out of place, with the value and the cas version that the item has. Readers
// see it as any update; hints to the old place find a dead item. Leased items and reservations
// under way are not moved. Large items are copied in pieces, over several steps. An item that is
// written meanwhile is skipped.
//
// A write that may evict clears a window: items that fit in no other place are evicted.
//
// Everything is bounded: the items, bytes and extents examined in one step, and the work of a write
// that found no space. If a whole pass over item space gains nothing, compaction rests until more
// has become free.

#ifndef OSPREY_INDEX_SPACE_COMPACTOR_H_
#define OSPREY_INDEX_SPACE_COMPACTOR_H_

#include <cstdint>
#include <functional>

#include "absl/functional/function_ref.h"
#include "absl/time/time.h"
#include "absl/types/optional.h"
#include "absl/types/span.h"
#include "index/layout/layout.h"
#include "index/space/compaction_window.h"
#include "index/space/item_copy.h"
#include "index/space/item_store.h"
#include "index/space/region_writer.h"

namespace osprey::index {

// The items in the space of a long value must move: so many bytes must be free for it.
constexpr uint64_t WithRoomToMove(uint64_t bytes) { return bytes + bytes / 8; }

// The bound of one step: a few hundred microseconds.
struct CompactionBound {
  uint64_t items = 128;
  uint64_t bytes = 256 << 10;
};

// Not thread-safe.
class Compactor {
 public:
  // Makes the copy at `sealing.offset` the item in place of that at `from`.
  using Replace = std::function<void(uint64_t from, const Sealing& sealing, absl::Time now)>;

  // Moves some of what the unit at that offset holds to other units, and frees it in the end. False:
  // it stays. Only Step calls this.
  using MoveUnit = std::function<bool(uint64_t unit)>;

  // `writer` and `items` must outlive this.
  Compactor(RegionWriter& writer, ItemStore& items, Replace replace, MoveUnit move_unit);

  // Whether Step may have something to do now.
  bool StepWanted(absl::Time now);
  // Does one step, if large free runs have become rare. True if there is more to do now.
  bool Step(absl::Time now, const CompactionBound& bound);

  // For a write that found no space for an item of `bytes`: moves up to kHelpBytesMax and
  // kHelpItemsMax. True if there is space now. If not, later Steps continue.
  bool MakeRoom(uint64_t bytes, absl::Time now);
  // For a write of at most kChunkBytesMax that found no space although enough is free, in chunks
  // that are too short. Moves up to a few dozen items out of the way, and returns the place
  // allocated for the write.
  absl::optional<uint64_t> MakeSpan(uint64_t bytes, absl::Time now);

  // How Clear evicts items.
  struct Evictor {
    absl::FunctionRef<void(uint64_t bytes)> some;  // evicts about so many bytes, anywhere
    absl::FunctionRef<bool(uint64_t item)> one;    // evicts this item; false: it must stay
  };
  // For a long write that may evict: continues to empty a window for it, a bounded part in each
  // call. Items move to free space. For each item that finds none, Clear evicts about as many bytes
  // elsewhere, or else the item itself. So at most twice the window's bytes are evicted, plus one
  // item. If every window contains one of the `pinned` items (offsets in order), nothing is
  // evicted. True if there is space now.
  bool Clear(uint64_t bytes, absl::Span<const uint64_t> pinned, const Evictor& evictor,
             absl::Time now);
  // Whether a window without pinned items exists. Units are no obstacle.
  bool CanClear(uint64_t bytes, absl::Span<const uint64_t> pinned) const;

  // True if nothing is being moved. After a failed MakeRoom: compaction can gain nothing.
  bool idle() const { return state_ == State::kIdle; }

  struct Stats {
    uint64_t moved_items = 0;
    uint64_t moved_bytes = 0;
    uint64_t windows_emptied = 0;
    uint64_t windows_given_up = 0;
  };
  const Stats& stats() const { return stats_; }

 private:
  enum class State { kIdle, kMoving, kWaiting };

  uint64_t StockPages() const;
  uint64_t PagesWanted(absl::Time now);
  bool WorthTrying(absl::Time now);
  void Rest(absl::Time now);
  absl::optional<CompactionWindow> Choose(uint64_t pages, uint64_t cost_percent_max, bool units,
                                          absl::Time now);
  void Enter(const CompactionWindow& window);
  // Moves items within the bound. True if the window's items have all been moved, or the window was
  // abandoned.
  bool Move(CompactionBound& left, absl::Time now);
  bool MoveTheUnit(uint64_t unit, CompactionBound& left, absl::Time now);
  bool MoveOne(uint64_t from, CompactionBound& left, absl::Time now);
  bool IsDead(uint64_t item) const;
  bool Copy(CompactionBound& left, absl::Time now);
  void Leave(bool emptied, absl::Time now);
  bool WindowIsFree() const;

  RegionWriter& writer_;
  ItemStore& items_;
  ItemSpace& space_;
  const Replace replace_;
  const MoveUnit move_unit_;
  bool in_step_ = false;     // within Step, so units may move
  bool units_wait_ = false;  // the window's items have been moved, and its units wait for a Step

  State state_ = State::kIdle;
  CompactionWindow window_;
  uint64_t next_ = 0;                                // in window_: items below this are done
  const Evictor* evictor_ = nullptr;                 // within Clear
  absl::Time cleared_until_ = absl::InfinitePast();  // until then the window belongs to Clear
  absl::optional<ItemCopy> copy_;
  absl::Time waiting_until_ = absl::InfiniteFuture();
  uint64_t cursor_ = 0;           // where the next search for a window starts
  uint64_t fruitless_pages_ = 0;  // passed since a window was found
  int given_up_in_a_row_ = 0;
  // While compaction rests, since it can gain nothing.
  struct Resting {
    bool now = false;
    uint64_t free_bytes = 0;  // the least that has been free since
    absl::Time until = absl::InfinitePast();
  };
  Resting resting_;
  // The largest item that found no space lately.
  struct Wanted {
    uint64_t pages = 0;
    absl::Time until = absl::InfinitePast();
  };
  Wanted wanted_;
  Stats stats_;
};

}  // namespace osprey::index

#endif  // OSPREY_INDEX_SPACE_COMPACTOR_H_
