// Where items live: an allocator over the upper part of the region whose book-keeping is in private
// memory. It never writes to the region, so free and dead space keeps its last bytes until an item
// is written there (W1: versions never restart, whatever the space was).
//
//   up to 8 KiB    chunks of a size class (the READ-length classes of layout.h) in slabs of 16 to
//                  64 KiB with a bitmap, or smaller where no run is as long; an empty slab's pages
//                  are free for anything
//   above          runs of 4 KiB pages, best fit, free neighbours joined
//
// A dead item's space waits before it is used again (W4), so that readers who were just told of it
// find it dead, not torn. Safety does not depend on it: under want of memory the oldest waits
// less. Only a lease makes space wait for certain.
//
//   Allocate --> in use --Retire--> waiting --grace, or want of memory--> free
//                  |                   +------ leased: until the lease ends ---^
//                  +--Release (no reader was ever sent there)------------------^
//
// It does not move anything, but it helps who does (compactor.h): it says what is where, page by
// page, and closes a range, so that nothing new comes into it while what is there moves out.

#ifndef OSPREY_INDEX_ITEM_SPACE_H_
#define OSPREY_INDEX_ITEM_SPACE_H_

#include <algorithm>
#include <array>
#include <cstdint>
#include <deque>
#include <utility>
#include <vector>

#include "absl/container/btree_map.h"
#include "absl/container/btree_set.h"
#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/time/time.h"
#include "absl/types/optional.h"
#include "index/layout.h"
#include "index/page_runs.h"
#include "index/region_space.h"

namespace osprey::index {

// The largest chunk of a slab. Above, rounding up to pages costs no more than a slab of few chunks.
inline constexpr uint64_t kChunkBytesMax = 8192;

// How much larger than needed a chunk may be when none of the right class is to be had: not at all;
// twice; any chunk, or pages of its own.
enum class Fit { kTight, kLoose, kAny };

// Not thread-safe. All offsets are from the start of the region, multiples of 16.
class ItemSpace {
 public:
  // `space` must outlive this; only this may take pages from it.
  ItemSpace(RegionSpace& space, absl::Duration grace);
  ItemSpace(const ItemSpace&) = delete;
  ItemSpace& operator=(const ItemSpace&) = delete;

  // Space for `bytes` (1 … kItemBytesMax); nullopt when there is none, even with all that waits.
  absl::optional<uint64_t> Allocate(uint64_t bytes, absl::Time now, Fit fit = Fit::kLoose);
  // Space that is free as it is, for an item that moves: nothing that waits is freed for it.
  absl::optional<uint64_t> AllocateForMove(uint64_t bytes, Fit fit = Fit::kTight);
  // Free pages that lie together, whatever is to be stored there.
  absl::optional<uint64_t> TakeRun(uint64_t pages);
  // How much may be used there. REQUIRES, as all below: `offset` is in use.
  uint64_t CapacityOf(uint64_t offset) const;
  // Frees what no reader was ever sent to.
  void Release(uint64_t offset);
  // Frees the space of a dead item, later.
  void Retire(uint64_t offset, absl::Time now);

  // Not before `until` will the space at `offset` be used again, even if it is retired.
  void Lease(uint64_t offset, absl::Time until);

  bool IsLeased(uint64_t offset, absl::Time now) const;
  // All that are, in any order.
  std::vector<uint64_t> Leased(absl::Time now) const;
  // What is remembered of leases: at most one a place, however often it is renewed.
  size_t leases() const { return lease_order_.size(); }
  // Frees what waits and is not leased, as want of memory does.
  void EndGrace(absl::Time now);
  // Whether FreeDue has something to do.
  bool IsDue(absl::Time now) const {
    return (!waiting_.empty() && waiting_.front().until <= now) ||
           (!lease_order_.empty() && lease_order_.front().until <= now);
  }
  // Frees a few items whose time has come, as each Allocate does. True when there was one.
  bool FreeDue(absl::Time now);

  // --- For the compactor.

  static constexpr uint32_t kClasses = LengthClassOf(kChunkBytesMax) + 1;

  // A slab, a run of a large item, or a free run.
  struct Extent {
    enum class Kind { kFree, kSlab, kRun };
    Kind kind = Kind::kFree;
    uint64_t begin = 0;
    uint64_t pages = 0;
    uint64_t used_bytes = 0;  // what is in use or waits
    // Of slabs.
    uint32_t length_class = 0;
    uint32_t used_chunks = 0;
    uint32_t free_chunks = 0;  // that may be used
    uint64_t end() const { return begin + pages * kPageBytes; }
  };
  // The extent that `offset` is in. REQUIRES: pages_begin() <= offset < pages_end().
  Extent ExtentAt(uint64_t offset) const;
  // The first item (in use or waiting) that starts at `from` or above, and below `end`.
  absl::optional<uint64_t> NextItem(uint64_t from, uint64_t end) const;

  // Neighbouring chunks of one slab that together are long enough for an item of up to
  // kChunkBytesMax: the place of last resort, when what is free lies in chunks that are too short.
  struct Span {
    uint64_t begin = 0;
    uint64_t chunk_bytes = 0;
    std::vector<uint64_t> free;  // offsets of its chunks
    std::vector<uint64_t> used;
  };
  // Of the spans in some slabs one with the fewest used chunks, whose items find room elsewhere.
  absl::optional<Span> FindSpan(uint64_t bytes, absl::Time now) const;
  // Nothing is allocated in its free chunks any more, until it is taken or dropped.
  void HoldSpan(const Span& span);
  // One item's space. REQUIRES: it is held. Nullopt, and it is dropped: some chunk is still in use.
  absl::optional<uint64_t> TakeSpan(const Span& span);
  void DropSpan(const Span& span);

  // From now on nothing is allocated between `begin` and `end`, where extents must begin and end.
  // One range at a time.
  void Close(uint64_t begin, uint64_t end);
  void Open();
  bool IsClosed(uint64_t offset) const { return pages_.IsClosed(offset); }

  uint64_t pages_begin() const { return pages_.begin(); }
  uint64_t pages_end() const { return pages_.end(); }
  // Pages that one more slab or run for `bytes` takes.
  static uint64_t PagesFor(uint64_t bytes);
  // The fewest pages of a slab.
  static uint64_t FewestSlabPages(uint32_t length_class);
  // In all slabs of the class, without closed ones.
  uint64_t FreeChunks(uint32_t length_class) const { return free_chunks_[length_class]; }
  // The longest free runs, longest first: where they start, and their pages. At most `count`.
  std::vector<std::pair<uint64_t, uint64_t>> LongestFreeRuns(size_t count) const {
    return pages_.LongestRuns(count);
  }
  // Of free pages that lie together and may be used; or the free middle of the region.
  uint64_t LargestFreeRun() const { return std::max(pages_.largest_run(), pages_.border_run()); }
  uint64_t PagesLeft() const { return pages_.pages_left(); }  // in the middle of the region
  uint64_t FreePages() const { return pages_.free_pages() + pages_.pages_left(); }
  // All that is free, wherever it is: in slabs, in runs, in the middle of the region.
  uint64_t FreeBytes() const;

  // Whether an item may be at `offset`: the start of a chunk or a run, in use or waiting.
  bool IsAllocated(uint64_t offset) const;

  struct Stats {
    uint64_t used_bytes = 0;     // in use, rounding included
    uint64_t waiting_bytes = 0;  // retired, not yet free
    uint64_t page_bytes = 0;     // taken from the region, free parts included
    uint64_t slabs = 0;
    uint64_t free_page_bytes = 0;  // in free runs
    uint64_t free_runs = 0;
  };
  Stats stats() const;

 private:
  // 48-byte chunks, the smallest, in 16 KiB.
  static constexpr uint32_t kSlabChunksMax = 384;
  static constexpr uint32_t kSlabWords = kSlabChunksMax / 64;
  static constexpr uint32_t kLargeOwner = uint32_t{1} << 31;  // others are 1 + number of a slab

  struct Slab {
    uint64_t offset = 0;
    uint16_t length_class = 0;
    uint16_t pages = 0;
    uint16_t chunks = 0;
    uint16_t free_chunks = 0;
    bool closed = false;             // not in partial_
    uint64_t free[kSlabWords] = {};  // a bit per chunk
  };
  struct Waiting {
    uint64_t offset;
    absl::Time until;
  };

  absl::optional<uint64_t> TryAllocate(uint64_t bytes, Fit fit);
  absl::optional<uint64_t> TakeFree(uint64_t bytes, Fit fit);
  absl::optional<uint64_t> TryChunk(uint32_t length_class);
  absl::optional<uint64_t> TryLargerChunk(uint32_t length_class, uint64_t bytes_max);
  absl::optional<uint64_t> TryRun(uint64_t bytes);
  bool AddSlab(uint32_t length_class);
  uint64_t TakeChunk(uint32_t slab_number);
  void TakeChunkAt(uint64_t offset);
  bool IsFreeChunk(uint64_t offset) const;
  absl::optional<Span> FindSpanIn(const Slab& slab, uint64_t chunks, absl::Time now) const;
  // Where the item ends that takes several chunks from `offset` or from a chunk before it; 0: none.
  uint64_t EndOfSpanAt(uint64_t offset) const;
  void FreeChunk(uint64_t offset, uint32_t slab_number);
  void SetSlabClosed(uint32_t slab_number, bool closed);
  template <typename Function>
  void ForEachSlabIn(uint64_t begin, uint64_t end, Function&& function);

  void Free(uint64_t offset);
  void FreeSpan(uint64_t offset, uint32_t slab_number);
  bool FreeOldest(absl::Time now);

  PageRuns pages_;
  absl::Duration grace_;
  std::vector<Slab> slabs_;
  std::vector<uint32_t> unused_slabs_;  // numbers
  // Slabs with a free chunk, as offsets. The highest is used first: the slabs next to the free
  // middle of the region empty.
  std::array<absl::btree_set<uint64_t>, kClasses> partial_;
  std::array<uint64_t, kClasses> free_chunks_{};  // in the slabs of partial_
  uint64_t free_chunk_bytes_ = 0;                 // likewise, of all classes
  absl::btree_map<uint64_t, uint64_t> runs_;      // large items: pages
  absl::btree_map<uint64_t, uint64_t> spans_;     // items of several chunks: bytes
  uint64_t closed_begin_ = 0;
  uint64_t closed_end_ = 0;

  std::deque<Waiting> waiting_;  // oldest first
  absl::flat_hash_map<uint64_t, absl::Time> leases_;
  std::deque<Waiting> lease_order_;            // each of them once, as given or seen to be renewed
  absl::flat_hash_set<uint64_t> leased_dead_;  // waited long enough, but leased

  uint64_t allocated_bytes_ = 0;  // in use and waiting
  uint64_t waiting_bytes_ = 0;
};

}  // namespace osprey::index

#endif  // OSPREY_INDEX_ITEM_SPACE_H_
