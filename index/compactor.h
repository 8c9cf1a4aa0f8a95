// Makes free space contiguous again, by moving items out of its way.
//
// When sizes change, what is free comes to lie in pieces: chunks of slabs that are half empty, runs
// between large items that outlive their neighbours. A window of pages is chosen that holds few
// bytes, closed to new items, and its items are moved, one by one, to where there is room outside.
// Then it is one free run.
//
//              | slab: 3 of 36 | free | run of 5 pages | slab: 7 of 36 |
//              |<----------------- window, closed -------------------->|
//     moved:       |                        |                |
//                  v                        v                v
//              other slabs of the class   a free run    other slabs of the class
//
//   idle --Choose--> moving --all moved--> waiting for the grace of what was left --> open, idle
//                      '--an item cannot be moved, no room for it--> open, idle
//
// A move is W2's update out of place with the value and the cas version that the item has: readers
// see it as any update; hints that lead to the old place find a dead item. Not moved: what a
// reader has a lease of, and reservations under way. Large items are copied in pieces, over several
// steps; one that is written meanwhile is left alone.
//
// A write that may evict has a window cleared: items that find no room elsewhere are evicted.
//
// Everything is bounded: items, bytes and extents looked at in one step, and what a write that
// found no room does itself. When a whole pass over item space gains nothing, it rests until more
// has become free.

#ifndef OSPREY_INDEX_COMPACTOR_H_
#define OSPREY_INDEX_COMPACTOR_H_

#include <cstdint>
#include <functional>

#include "absl/functional/function_ref.h"
#include "absl/time/time.h"
#include "absl/types/optional.h"
#include "absl/types/span.h"
#include "index/item_copy.h"
#include "index/item_store.h"
#include "index/layout.h"
#include "index/writer.h"

namespace osprey::index {

// Of one step: a few hundred microseconds.
struct CompactionBound {
  uint64_t items = 128;
  uint64_t bytes = 256 << 10;
};

// Not thread-safe.
class Compactor {
 public:
  // Makes the copy at `sealing.offset` the item in place of that at `from`.
  using Replace = std::function<void(uint64_t from, const Sealing& sealing, absl::Time now)>;

  // Both must outlive this.
  Compactor(RegionWriter& writer, ItemStore& items, Replace replace);

  // Whether Step may have something to do now.
  bool StepWanted(absl::Time now);
  // One step, if large runs have become rare. True when there is more to do now.
  bool Step(absl::Time now, const CompactionBound& bound);

  // For a write that found no room for an item of `bytes`: up to kHelpBytesMax and kHelpItemsMax
  // are moved. True when there is room now. If not, later Steps go on with it.
  bool MakeRoom(uint64_t bytes, absl::Time now);
  // For a write of at most kChunkBytesMax that found no room though enough is free, in chunks that
  // are too short: moves up to a few dozen items out of the way. The place that is allocated for it
  // then.
  absl::optional<uint64_t> MakeSpan(uint64_t bytes, absl::Time now);

  // What makes way in a window that is cleared.
  struct Evictor {
    absl::FunctionRef<void(uint64_t bytes)> some;  // evicts about so much, wherever it lies
    absl::FunctionRef<bool(uint64_t item)> one;    // evicts this item; false: it must stay
  };
  // For a long write that may evict: goes on to empty a window for it, a bounded part in each call.
  // Items move to where there is room. For each that finds none, about as many bytes are evicted,
  // or else the item itself. So at most twice the window's bytes are evicted, and the last item's.
  // Nothing is when there is no window without one of the `pinned` items (their offsets, in
  // order). True when there is room now.
  bool Clear(uint64_t bytes, absl::Span<const uint64_t> pinned, const Evictor& evictor,
             absl::Time now);
  // Whether there is such a window.
  bool CanClear(uint64_t bytes, absl::Span<const uint64_t> pinned) const;

  // Nothing is being moved. After a MakeRoom in vain: there is nothing to gain by it.
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
  struct Window {
    uint64_t begin = 0;
    uint64_t end = 0;
    uint64_t cost_bytes = 0;
    uint64_t pages() const { return (end - begin) / kPageBytes; }
  };

  uint64_t PagesWanted(absl::Time now);
  bool WorthTrying(absl::Time now);
  void Rest(absl::Time now);
  absl::optional<Window> Choose(uint64_t pages, uint64_t cost_percent_max, absl::Time now);
  absl::optional<Window> ChooseToClear(uint64_t pages, absl::Span<const uint64_t> pinned) const;
  Window ChooseIn(uint64_t begin, uint64_t end, uint64_t pages, uint64_t& extents_left) const;
  void Enter(const Window& window);
  // Moves what it may; true when the window's items have all been moved, or it was given up.
  bool Move(CompactionBound& left, absl::Time now);
  bool MoveOne(uint64_t from, CompactionBound& left, absl::Time now);
  bool IsDead(uint64_t item) const;
  bool Copy(CompactionBound& left, absl::Time now);
  void Leave(bool emptied, absl::Time now);
  bool WindowIsFree() const;

  RegionWriter& writer_;
  ItemStore& items_;
  ItemSpace& space_;
  const Replace replace_;

  State state_ = State::kIdle;
  Window window_;
  uint64_t next_ = 0;                                // in window_: items below have been seen to
  const Evictor* evictor_ = nullptr;                 // within Clear
  absl::Time cleared_until_ = absl::InfinitePast();  // until then the window is Clear's
  absl::optional<ItemCopy> copy_;
  absl::Time waiting_until_ = absl::InfiniteFuture();
  uint64_t cursor_ = 0;           // where the next window is looked for
  uint64_t fruitless_pages_ = 0;  // seen since a window was found
  int given_up_in_a_row_ = 0;
  // Nothing was to be gained any more; the least that has been free since.
  bool resting_ = false;
  uint64_t resting_at_ = 0;
  absl::Time resting_until_ = absl::InfinitePast();
  uint64_t wanted_pages_ = 0;  // of the largest item that found no room lately
  absl::Time wanted_until_ = absl::InfinitePast();
  Stats stats_;
};

}  // namespace osprey::index

#endif  // OSPREY_INDEX_COMPACTOR_H_
