// The allocator of items, over the pages that the index leaves (region_space.h), with its state in
// private memory. It never writes to the region. So free and dead space keeps its last bytes until an item is written
// there (W1: versions never restart, whatever the space held).
//
//   up to 8 KiB    chunks of a size class (the READ-length classes of layout.h) in slabs of 16 to
//                  64 KiB with a bitmap, or smaller where no run is as long; an empty slab's pages
//                  are free for anything
//   above          runs of 4 KiB pages, best fit, free neighbours joined
//
// A dead item's space waits before it is used again (W4), so that readers that were just sent there
// find it dead, not torn. Correctness does not depend on the wait: if memory is short, or more than
// a sixteenth of the region waits, the oldest waits less. Only a lease guarantees the wait.
//
//   Allocate --> in use --Retire--> waiting --grace, or lack of memory--> free
//                  |                   +------ leased: until the lease ends ---^
//                  +--Release (no reader was ever sent there)------------------^
//
// It does not move items, but it supports the compactor (compactor.h). It lists what each page
// holds. It closes a range, so that nothing new is allocated there while its items move out.

#ifndef OSPREY_INDEX_SPACE_ITEM_SPACE_H_
#define OSPREY_INDEX_SPACE_ITEM_SPACE_H_

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "absl/container/btree_map.h"
#include "absl/time/time.h"
#include "absl/types/optional.h"
#include "index/layout/layout.h"
#include "index/space/quarantine.h"
#include "index/space/region_space.h"
#include "index/space/slabs.h"

namespace osprey::index {

// How much larger than needed a chunk may be if the right class has none: not at all; twice; any
// chunk, or pages of its own.
enum class Fit { kTight, kLoose, kAny };

// It has many methods, of three kinds: for writers, for the compactor and for statistics. All work on
// the same state, so parts of it would share all of theirs.
//
// Not thread-safe. Offsets are from the start of the region, and multiples of 16.
class ItemSpace {
 public:
  // `space` must outlive this, and only this may take runs from it.
  ItemSpace(RegionSpace& space, absl::Duration grace);
  ItemSpace(const ItemSpace&) = delete;
  ItemSpace& operator=(const ItemSpace&) = delete;

  // Allocates space for `bytes` (1 … kItemBytesMax); nullopt if there is none, even after freeing
  // all that waits.
  absl::optional<uint64_t> Allocate(uint64_t bytes, absl::Time now, Fit fit = Fit::kLoose);
  // Allocates space for an item that moves. Nothing that waits is freed for it.
  absl::optional<uint64_t> AllocateForMove(uint64_t bytes, Fit fit = Fit::kTight);
  // Allocates a run of free pages, for any use.
  absl::optional<uint64_t> TakeRun(uint64_t pages);
  // Bytes that may be used at `offset`. REQUIRES, as all below: `offset` is in use.
  uint64_t CapacityOf(uint64_t offset) const;
  // Frees space that no reader was ever sent to.
  void Release(uint64_t offset);
  // Frees the space of a dead item after its grace period.
  void Retire(uint64_t offset, absl::Time now);

  // The dead space that waits, and the leases. A lease keeps the space at an offset from reuse, even
  // if it is retired.
  Quarantine& quarantine() { return quarantine_; }
  const Quarantine& quarantine() const { return quarantine_; }
  // Frees all that waits and is not leased, as lack of memory does.
  void EndGrace(absl::Time now);
  // Frees up to `count` of them, the oldest first.
  void EndGraceOf(uint64_t count, absl::Time now);
  // Frees a few items whose grace period has ended, as each Allocate does. True if there was one.
  bool FreeDue(absl::Time now);

  // --- For the compactor.

  // A slab, a run of a large item, a unit of the index, or a free run.
  struct Extent {
    enum class Kind { kFree, kSlab, kRun, kUnit };
    Kind kind = Kind::kFree;
    uint64_t begin = 0;
    uint64_t pages = 0;
    uint64_t used_bytes = 0;  // in use or waiting; of a unit, all
    // Slabs only:
    uint32_t length_class = 0;
    uint32_t used_chunks = 0;
    uint32_t free_chunks = 0;  // that are usable
    uint64_t end() const { return begin + pages * kPageBytes; }
  };
  // The extent that contains `offset`. REQUIRES: begin() <= offset < end().
  Extent ExtentAt(uint64_t offset) const;
  // The first item (in use or waiting) that starts at or above `from`, and below `end`.
  absl::optional<uint64_t> NextItem(uint64_t from, uint64_t end) const;

  // The first unit of the index that starts at or above `from`, and below `end`.
  absl::optional<uint64_t> NextUnit(uint64_t from, uint64_t end) const;
  uint64_t units_left() const { return pages_.units_left(); }

  // Neighbouring chunks of one slab that together hold an item of up to kChunkBytesMax. This is the
  // last resort, when all free chunks are too short.
  struct Span {
    uint64_t begin = 0;
    uint64_t chunk_bytes = 0;
    std::vector<uint64_t> free;  // offsets of its chunks
    std::vector<uint64_t> used;
  };
  // Of the spans in some slabs, one with the fewest used chunks whose items fit elsewhere.
  absl::optional<Span> FindSpan(uint64_t bytes, absl::Time now) const;
  // Keeps the span's free chunks from being allocated until the span is taken or dropped.
  void HoldSpan(const Span& span);
  // Makes the span one item's space. Nullopt, and the span is dropped, if some chunk is still in
  // use. REQUIRES: it is held.
  absl::optional<uint64_t> TakeSpan(const Span& span);
  void DropSpan(const Span& span);

  // Closes the range from `begin` to `end`: nothing is allocated there until Open. Extents must
  // begin and end at both. One range at a time.
  void Close(uint64_t begin, uint64_t end);
  void Open();
  bool IsClosed(uint64_t offset) const { return pages_.IsClosed(offset); }

  // Where items may be.
  uint64_t begin() const { return pages_.items_begin(); }
  uint64_t end() const { return pages_.end(); }
  // Bytes of all pages that items use or may take.
  uint64_t bytes() const { return pages_.pages() * kPageBytes; }
  // Pages that one more slab or run for `bytes` takes.
  uint64_t PagesFor(uint64_t bytes) const;
  // Free chunks of the class in all slabs that are not closed.
  uint64_t FreeChunks(uint32_t length_class) const { return slabs_.free_chunks(length_class); }
  // The longest free runs, longest first, as (offset, pages). At most `count`.
  std::vector<std::pair<uint64_t, uint64_t>> LongestFreeRuns(size_t count) const {
    return pages_.LongestRuns(count);
  }
  // Pages of the longest usable free run.
  uint64_t LargestFreeRun() const { return pages_.largest_run(); }
  // All free bytes: in slabs and in runs.
  uint64_t FreeBytes() const;

  // Whether an item may be at `offset`: the start of a chunk or a run, in use or waiting.
  bool IsAllocated(uint64_t offset) const;

  struct Stats {
    uint64_t used_bytes = 0;     // in use, rounding included
    uint64_t waiting_bytes = 0;  // retired, not yet free
    uint64_t page_bytes = 0;     // of slabs and runs in use, free chunks included
    uint64_t slabs = 0;
    uint64_t free_page_bytes = 0;  // in free runs
    uint64_t free_runs = 0;
  };
  Stats stats() const;

 private:
  static constexpr uint32_t kLargeOwner = uint32_t{1}
                                          << 31;  // other owners are 1 + the slab's number

  absl::optional<uint64_t> TryAllocate(uint64_t bytes, Fit fit);
  absl::optional<uint64_t> TakeFree(uint64_t bytes, Fit fit);
  absl::optional<uint64_t> TryRun(uint64_t bytes);
  void TakeChunk(uint64_t offset);
  absl::optional<Span> FindSpanIn(const Slabs::Slab& slab, uint64_t chunks, absl::Time now) const;
  // The end of the item of several chunks that covers `offset`; 0 if there is none.
  uint64_t EndOfSpanAt(uint64_t offset) const;
  template <typename Function>
  void ForEachSlabIn(uint64_t begin, uint64_t end, Function&& function);

  void Free(uint64_t offset);
  void FreeSpan(uint64_t offset, uint32_t slab_number);
  bool FreeOldest(absl::Time now);

  RegionSpace& pages_;
  Slabs slabs_;
  absl::btree_map<uint64_t, uint64_t> runs_;   // large items: pages
  absl::btree_map<uint64_t, uint64_t> spans_;  // items of several chunks: bytes
  uint64_t closed_begin_ = 0;
  uint64_t closed_end_ = 0;

  Quarantine quarantine_;
  uint64_t allocated_bytes_ = 0;  // in use and waiting
};

}  // namespace osprey::index

#endif  // OSPREY_INDEX_SPACE_ITEM_SPACE_H_
