#include "index/space/region_space.h"

#include <algorithm>
#include <cassert>
#include <iterator>
#include <utility>

#include "index/layout/test_hooks.h"

namespace osprey::index {
namespace {

constexpr uint64_t RoundUpToUnits(uint64_t bytes) {
  return (bytes + kUnitBytes - 1) / kUnitBytes * kUnitBytes;
}

constexpr uint64_t kSparesShareInverse = 16;

}  // namespace

RegionSpace::RegionSpace(uint64_t units_offset, uint64_t region_bytes, uint64_t index_room,
                         Sharing sharing)
    : units_offset_(units_offset),
      end_(std::max(region_bytes / kPageBytes * kPageBytes, units_offset)),
      items_begin_(std::min(units_offset + RoundUpToUnits(index_room), end_)),
      owners_((end_ - units_offset) / kPageBytes),
      sharing_(sharing) {
  if (items_begin_ > units_offset_)
    AddFree(units_offset_, (items_begin_ - units_offset_) / kPageBytes);
  if (end_ > items_begin_) AddFree(items_begin_, (end_ - items_begin_) / kPageBytes);
  if (units_left_ < 2 || index_room < 2 * kUnitBytes) return;
  keeps_spare_ = true;
  const uint64_t spare = UnitAt(items_begin_ - kUnitBytes);
  const auto [run_offset, run_pages] = FreeRunAt(spare);
  TakeFrom(run_offset, run_pages, spare, kPagesPerUnit, kUnitOwner);
  spares_.insert(spare);
}

// --- Units -----------------------------------------------------------------

uint64_t RegionSpace::UnitsInRuns() const {
  if (sharing_ == Sharing::kAllRuns) return units_left_;
  const auto lowest = with_units_.lower_bound(items_begin_);
  if (lowest == with_units_.end()) return room_units_left_;
  const bool borders = *lowest == items_begin_ || OwnerOf(*lowest - kPageBytes) == kUnitOwner;
  return room_units_left_ + (borders ? UnitsIn(*lowest, by_offset_.find(*lowest)->second) : 0);
}

uint64_t RegionSpace::SparesOutside() const {
  return spares_.size() - static_cast<uint64_t>(std::distance(spares_.lower_bound(closed_begin_),
                                                              spares_.lower_bound(closed_end_)));
}

absl::optional<uint64_t> RegionSpace::TakeUnit() {
  if (units_left() == 0) return absl::nullopt;
  if (spares_.size() > 1 && SparesOutside() > 0) return TakeSpare();
  const auto [run_offset, run_pages] = *by_offset_.find(*with_units_.begin());
  const uint64_t unit = UnitFrom(run_offset);
  TakeFrom(run_offset, run_pages, unit, kPagesPerUnit, kUnitOwner);
  if (IsForItems(unit)) unit_pages_ += kPagesPerUnit;
  ++units_used_;
  return unit;
}

// REQUIRES: SparesOutside() > 0.
uint64_t RegionSpace::TakeSpare() {
  const auto lowest = spares_.begin();
  const auto spare = IsClosed(*lowest) ? spares_.lower_bound(closed_end_) : lowest;
  const uint64_t unit = *spare;
  spares_.erase(spare);
  ++units_used_;
  return unit;
}

absl::optional<uint64_t> RegionSpace::TakeReplacement() {
  const absl::optional<uint64_t> unit = TakeUnit();
  if (unit.has_value() || SparesOutside() == 0) return unit;
  return TakeSpare();
}

// A unit in a closed range becomes a spare one only if there is no other.
void RegionSpace::FreeUnit(uint64_t offset) {
  assert(IsUnit(offset) && UnitAt(offset) == offset && !IsSpare(offset));
  --units_used_;
  const bool keeps = sharing_ == Sharing::kBorder && !IsClosed(offset);
  if (keeps || (keeps_spare_ && spares_.empty())) {
    spares_.insert(offset);
  } else {
    FreePagesOf(offset);
  }
}

bool RegionSpace::VacateSpare(uint64_t offset) {
  if (spares_.size() == 1) {
    const absl::optional<uint64_t> unit = TakeUnit();
    if (!unit.has_value()) return false;
    --units_used_;
    spares_.insert(*unit);
  }
  spares_.erase(offset);
  FreePagesOf(offset);
  return true;
}

// The highest first: the index stays low.
void RegionSpace::GiveBackSpares() {
  while (spares_.size() > 1 + units_used_ / kSparesShareInverse) {
    const uint64_t unit = *spares_.rbegin();
    spares_.erase(unit);
    FreePagesOf(unit);
  }
}

void RegionSpace::FreePagesOf(uint64_t unit) {
  if (IsForItems(unit)) unit_pages_ -= kPagesPerUnit;
  Free(unit, kPagesPerUnit);
}

// --- Runs ------------------------------------------------------------------

// Of the shortest runs that are long enough, the lowest. Takes its upper end, so that the rest stays
// nearest to the index.
absl::optional<uint64_t> RegionSpace::Take(uint64_t pages, uint32_t owner) {
  assert(pages > 0 && owner != 0 && owner != kUnitOwner);
  auto found = by_size_.lower_bound({pages, 0});
  if (found == by_size_.end()) return absl::nullopt;
  if (LowRunsForced()) {
    found = std::min_element(found, by_size_.end(),
                             [](const auto& a, const auto& b) { return a.second < b.second; });
  }
  const auto [run_pages, run_offset] = *found;
  const uint64_t offset =
      LowRunsForced() ? run_offset : run_offset + (run_pages - pages) * kPageBytes;
  TakeFrom(run_offset, run_pages, offset, pages, owner);
  return offset;
}

std::vector<std::pair<uint64_t, uint64_t>> RegionSpace::LongestRuns(size_t count) const {
  std::vector<std::pair<uint64_t, uint64_t>> runs;
  for (auto run = by_size_.rbegin(); run != by_size_.rend() && runs.size() < count; ++run) {
    runs.emplace_back(run->second, run->first);
  }
  return runs;
}

void RegionSpace::Close(uint64_t begin, uint64_t end) {
  assert(closed_end_ == 0 && begin < end && begin >= items_begin_ && end <= end_);
  for (auto run = by_offset_.lower_bound(begin); run != by_offset_.end() && run->first < end;
       ++run) {
    assert(run->first + run->second * kPageBytes <= end);
    Withdraw(run->first, run->second);
  }
  closed_begin_ = begin;
  closed_end_ = end;
}

void RegionSpace::Open() {
  const uint64_t begin = std::exchange(closed_begin_, 0);
  const uint64_t end = std::exchange(closed_end_, 0);
  for (auto run = by_offset_.lower_bound(begin); run != by_offset_.end() && run->first < end;
       ++run) {
    Offer(run->first, run->second);
  }
  JoinAt(end);
  JoinAt(begin);
}

// --- Free runs -------------------------------------------------------------

void RegionSpace::TakeFrom(uint64_t run_offset, uint64_t run_pages, uint64_t offset, uint64_t pages,
                           uint32_t owner) {
  RemoveFree(run_offset, run_pages);
  const uint64_t before = (offset - run_offset) / kPageBytes;
  const uint64_t after = run_pages - before - pages;
  if (before > 0) AddFree(run_offset, before);
  if (after > 0) AddFree(offset + pages * kPageBytes, after);
  SetOwner(offset, pages, owner);
}

void RegionSpace::Free(uint64_t offset, uint64_t pages) {
  SetOwner(offset, pages, 0);
  AddFree(offset, pages);
  JoinAt(offset + pages * kPageBytes);
  JoinAt(offset);
}

// Joins the free runs before and after `border`, if both exist. They must lie on the same side of the
// closed range and of items_begin_.
void RegionSpace::JoinAt(uint64_t border) {
  const auto after = by_offset_.find(border);
  if (after == by_offset_.end() || after == by_offset_.begin()) return;
  const auto [offset, pages] = *std::prev(after);
  const uint64_t after_pages = after->second;
  assert(offset + pages * kPageBytes <= border);
  if (offset + pages * kPageBytes != border || IsClosed(offset) != IsClosed(border) ||
      IsForItems(offset) != IsForItems(border)) {
    return;
  }
  RemoveFree(border, after_pages);
  RemoveFree(offset, pages);
  AddFree(offset, pages + after_pages);
}

void RegionSpace::SetOwner(uint64_t offset, uint64_t pages, uint32_t owner) {
  const uint64_t first = PageOf(offset);
  for (uint64_t i = first; i < first + pages; ++i) {
    assert((owners_[i] == 0) != (owner == 0));  // taken twice, or released twice
    owners_[i] = owner;
  }
}

void RegionSpace::AddFree(uint64_t offset, uint64_t pages) {
  by_offset_.emplace(offset, pages);
  if (!IsClosed(offset)) Offer(offset, pages);
  if (!IsForItems(offset)) return;
  free_pages_ += pages;
  ++free_runs_;
}

void RegionSpace::RemoveFree(uint64_t offset, uint64_t pages) {
  by_offset_.erase(offset);
  if (!IsClosed(offset)) Withdraw(offset, pages);
  if (!IsForItems(offset)) return;
  free_pages_ -= pages;
  --free_runs_;
}

void RegionSpace::Offer(uint64_t offset, uint64_t pages) {
  if (IsForItems(offset)) {
    by_size_.emplace(pages, offset);
    largest_run_ = std::max(largest_run_, pages);
  }
  const uint64_t units = UnitsIn(offset, pages);
  if (units > 0) with_units_.insert(offset);
  units_left_ += units;
  if (!IsForItems(offset)) room_units_left_ += units;
}

void RegionSpace::Withdraw(uint64_t offset, uint64_t pages) {
  if (IsForItems(offset)) {
    by_size_.erase({pages, offset});
    if (pages == largest_run_) largest_run_ = by_size_.empty() ? 0 : by_size_.rbegin()->first;
  }
  const uint64_t units = UnitsIn(offset, pages);
  if (units > 0) with_units_.erase(offset);
  units_left_ -= units;
  if (!IsForItems(offset)) room_units_left_ -= units;
}

}  // namespace osprey::index
