// The pages of the region behind the directory, shared by the index and the items. Both take free
// pages and give them back. Its state is in private memory, 4 bytes a page; it never touches the
// region.
//
//   units_offset         items_begin                                          end
//   +------+------+------+------+------+----------- free -----------+----+----+
//   | unit | unit | …    | unit | unit |->                        <-|run |run |
//   +------+------+------+------+------+----------------------------+----+----+
//   |<--- index only --->|
//
// The index takes units: aligned runs of 32 KiB, the lowest that is free. Items take runs of pages:
// the shortest free run that is long enough, and of it the upper end. So both stay apart while there
// is space, and neither keeps space from the other that it does not use.
//
//   owner of a page   0                free
//                     1 … kUnitOwner-1 part of a run that items use
//                     kUnitOwner       part of a unit of the index
//
// If the index has room for two units, at least one is kept as a spare. So segments can merge or move
// in a region without a free page.
//
// One range at a time may be closed: nothing in it is allocated until it is opened again. So free
// space in it stays together.

#ifndef OSPREY_INDEX_SPACE_REGION_SPACE_H_
#define OSPREY_INDEX_SPACE_REGION_SPACE_H_

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <utility>
#include <vector>

#include "absl/container/btree_map.h"
#include "absl/container/btree_set.h"
#include "absl/types/optional.h"
#include "index/layout/layout.h"

namespace osprey::index {

// The granularity of item space, for slabs and large items. It is a page of memory, and small
// relative to a large item.
inline constexpr uint64_t kPageBytes = 4096;
inline constexpr uint64_t kPagesPerUnit = kUnitBytes / kPageBytes;

// It has many methods: those of units, of runs and of a closed range. All work on the one map of pages.
//
// Not thread-safe. Offsets are from the start of the region, and multiples of kPageBytes.
class RegionSpace {
 public:
  static constexpr uint32_t kUnitOwner = UINT32_MAX;

  // How the index and the items share the pages behind the index's own room. With kBorder the index
  // takes units only from the lowest free run that has some, and that only if it borders the index;
  // and it keeps freed units until GiveBackSpares. So in a full region that evicts, neither takes what
  // was freed for the other.
  enum class Sharing { kAllRuns, kBorder };

  // The first `index_room` bytes from units_offset, rounded up to units, are never given to items.
  RegionSpace(uint64_t units_offset, uint64_t region_bytes, uint64_t index_room = 0,
              Sharing sharing = Sharing::kAllRuns);
  RegionSpace(const RegionSpace&) = delete;
  RegionSpace& operator=(const RegionSpace&) = delete;

  // --- Units.
  // Allocates a unit and returns its offset; nullopt if there is none. Its bytes are arbitrary.
  absl::optional<uint64_t> TakeUnit();
  // As TakeUnit, for one that replaces others: it takes the last spare one if no other is free. The
  // next FreeUnit restores it.
  absl::optional<uint64_t> TakeReplacement();
  // REQUIRES: a unit that TakeUnit or TakeReplacement returned.
  void FreeUnit(uint64_t offset);
  // --- Spare units, which are neither used nor free. Their bytes are arbitrary.
  bool IsSpare(uint64_t offset) const { return spares_.contains(offset); }
  // Frees the spare unit at `offset`. If it is the last, another becomes one. False: none is free.
  bool VacateSpare(uint64_t offset);
  // Frees the spare units that are more than a sixteenth of those in use, and one.
  void GiveBackSpares();
  // The number of units that TakeUnit, and that TakeReplacement, can still take.
  uint64_t units_left() const {
    return UnitsInRuns() + std::min(SparesOutside(), spares_.size() - !spares_.empty());
  }
  uint64_t replacements_left() const { return UnitsInRuns() + SparesOutside(); }
  uint64_t units_used() const { return units_used_; }
  // Whether `offset`, any offset, lies in a unit that is in use, or spare.
  bool IsUnit(uint64_t offset) const {
    return offset >= units_offset_ && offset < end_ && OwnerOf(offset) == kUnitOwner;
  }
  // The offset of the unit that contains `offset`, if one does.
  uint64_t UnitAt(uint64_t offset) const { return offset - (offset - units_offset_) % kUnitBytes; }
  uint64_t units_offset() const { return units_offset_; }

  // --- Runs of pages.
  // Allocates a run of `pages` free pages to `owner` (not 0, below kUnitOwner) and returns its
  // offset; nullopt if there is no such run.
  absl::optional<uint64_t> Take(uint64_t pages, uint32_t owner);
  // REQUIRES: a whole run that Take returned.
  void Free(uint64_t offset, uint64_t pages);
  // Where runs may be.
  uint64_t items_begin() const { return items_begin_; }
  uint64_t end() const { return end_; }
  // REQUIRES: units_offset() <= offset < end().
  uint32_t OwnerOf(uint64_t offset) const { return owners_[PageOf(offset)]; }
  // Whether `offset`, any offset, lies in a run that is in use.
  bool IsTaken(uint64_t offset) const {
    return offset >= items_begin_ && offset < end_ && OwnerOf(offset) != 0 &&
           OwnerOf(offset) != kUnitOwner;
  }
  // The free run that contains `offset`, as (offset, pages). REQUIRES: its page is free.
  std::pair<uint64_t, uint64_t> FreeRunAt(uint64_t offset) const {
    return *std::prev(by_offset_.upper_bound(offset));
  }

  // REQUIRES: none is closed; the range is between items_begin() and end(); no run, used or free,
  // and no unit crosses either end.
  void Close(uint64_t begin, uint64_t end);
  // Nothing is closed afterwards.
  void Open();
  bool IsClosed(uint64_t offset) const { return offset >= closed_begin_ && offset < closed_end_; }

  // --- Counts of pages that items may take, those in a closed range included.
  uint64_t pages() const { return (end_ - items_begin_) / kPageBytes - unit_pages_; }
  uint64_t free_pages() const { return free_pages_; }
  // Of the free runs that are not closed: the pages of the longest; and the longest ones, as
  // (offset, pages).
  uint64_t largest_run() const { return largest_run_; }
  std::vector<std::pair<uint64_t, uint64_t>> LongestRuns(size_t count) const;
  uint64_t free_runs() const { return free_runs_; }

 private:
  bool IsForItems(uint64_t offset) const { return offset >= items_begin_; }
  uint64_t PageOf(uint64_t offset) const { return (offset - units_offset_) / kPageBytes; }
  // The first unit that starts at or above `offset`.
  uint64_t UnitFrom(uint64_t offset) const {
    return units_offset_ + (offset - units_offset_ + kUnitBytes - 1) / kUnitBytes * kUnitBytes;
  }
  // The units that lie within a free run.
  uint64_t UnitsIn(uint64_t offset, uint64_t pages) const {
    const uint64_t first = UnitFrom(offset);
    const uint64_t end = offset + pages * kPageBytes;
    return end <= first ? 0 : (end - first) / kUnitBytes;
  }
  uint64_t UnitsInRuns() const;
  uint64_t SparesOutside() const;  // the closed range
  uint64_t TakeSpare();
  void FreePagesOf(uint64_t unit);
  void SetOwner(uint64_t offset, uint64_t pages, uint32_t owner);
  // Allocates a part of a free run.
  void TakeFrom(uint64_t run_offset, uint64_t run_pages, uint64_t offset, uint64_t pages,
                uint32_t owner);
  void JoinAt(uint64_t border);
  void AddFree(uint64_t offset, uint64_t pages);
  void RemoveFree(uint64_t offset, uint64_t pages);
  void Offer(uint64_t offset, uint64_t pages);
  void Withdraw(uint64_t offset, uint64_t pages);

  const uint64_t units_offset_;
  const uint64_t end_;
  const uint64_t items_begin_;
  std::vector<uint32_t> owners_;                   // by PageOf
  absl::btree_map<uint64_t, uint64_t> by_offset_;  // free runs: pages
  // Of those that are not closed: for items, as (pages, offset); and those that contain units.
  absl::btree_set<std::pair<uint64_t, uint64_t>> by_size_;
  absl::btree_set<uint64_t> with_units_;
  bool keeps_spare_ = false;
  absl::btree_set<uint64_t> spares_;
  uint64_t largest_run_ = 0;  // of by_size_, in pages
  uint64_t free_pages_ = 0;   // for items
  uint64_t free_runs_ = 0;    // likewise
  uint64_t unit_pages_ = 0;   // of units and spares, above items_begin_
  const Sharing sharing_;
  uint64_t units_left_ = 0;       // in free runs that are not closed
  uint64_t room_units_left_ = 0;  // of them, before items_begin_
  uint64_t units_used_ = 0;
  uint64_t closed_begin_ = 0;
  uint64_t closed_end_ = 0;  // 0: nothing is closed
};

}  // namespace osprey::index

#endif  // OSPREY_INDEX_SPACE_REGION_SPACE_H_
