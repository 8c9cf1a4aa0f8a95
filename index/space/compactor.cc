#include "index/space/compactor.h"

#include <algorithm>
#include <cassert>
#include <utility>
#include <vector>

#include "index/layout/test_hooks.h"

namespace osprey::index {
namespace {

// The most bytes that a write without space moves: some milliseconds of work.
constexpr uint64_t kHelpBytesMax = 8 << 20;
constexpr uint64_t kHelpItemsMax = 8192;
constexpr int kHelpWindowsMax = 64;
constexpr int kHelpSearchesMax = 8;

// A unit of the index that moves takes as long as this many items.
constexpr uint64_t kItemsPerUnit = 64;

// Dead items past their grace period that one step frees. Others wait for an allocation or a later
// step.
constexpr int kFreeDuePerStep = 8;

// Once the region is full, compaction keeps a free run of this part of item space, within these
// bounds: a 128th.
constexpr uint64_t kStockShareInverse = 128;
constexpr uint64_t kStockPagesMin = 16;
constexpr uint64_t kStockPagesMax = 1024;

// Steps choose windows in which at most this part of the bytes, in percent, must be moved.
constexpr uint64_t kStepCostPercentMax = 85;
// A write takes any window: a full server's free space may be a few bytes in each slab.
constexpr uint64_t kHelpCostPercentMax = 100;

// The most items that one Clear moves or evicts: some milliseconds of work.
constexpr uint64_t kClearItemsMax = 2048;
// How long a window that is being cleared stays closed after the last Clear.
constexpr absl::Duration kClearAwaitedMax() { return absl::Milliseconds(100); }

// How long the compactor remembers the size of an item that found no space.
constexpr absl::Duration kWantRemembered() { return absl::Seconds(10); }

// After a pass without gain this part of item space must become free before the next one. So a full
// server refuses writes quickly.
constexpr uint64_t kRestShareInverse = 512;
constexpr absl::Duration kRestMax() { return absl::Seconds(1); }

// Windows in a row that could not be emptied, before compaction rests.
constexpr int kGivenUpMax = 16;

// A window whose last items are leased for longer is abandoned.
constexpr absl::Duration kWaitingMax() { return absl::Seconds(10); }

// Moves stop when no more cas versions than these are left, which the server's last writes may
// need.
constexpr uint64_t kVersionsKept = CasCounter::kLeftMax;

}  // namespace

Compactor::Compactor(RegionWriter& writer, ItemStore& items, Replace replace, MoveUnit move_unit)
    : writer_(writer),
      items_(items),
      space_(items.space()),
      replace_(std::move(replace)),
      move_unit_(std::move(move_unit)) {}

// --- When to compact -------------------------------------------------------

uint64_t Compactor::StockPages() const {
  return std::clamp(space_.bytes() / kPageBytes / kStockShareInverse, kStockPagesMin,
                    kStockPagesMax);
}

uint64_t Compactor::PagesWanted(absl::Time now) {
  if (wanted_.pages != 0 && now >= wanted_.until) wanted_.pages = 0;
  const uint64_t stock = StockPages();
  if (wanted_.pages <= stock) return stock;
  // More than the run must be free: moved items need destinations.
  const bool possible = space_.FreeBytes() >= wanted_.pages * kPageBytes * 9 / 8;
  return possible ? wanted_.pages : stock;
}

// Whether space has become free since compaction began to rest, or leases may have ended.
bool Compactor::WorthTrying(absl::Time now) {
  if (!resting_.now || now >= resting_.until) return true;
  const uint64_t more_bytes = space_.bytes() / kRestShareInverse;
  const uint64_t free_bytes = space_.FreeBytes();
  resting_.free_bytes = std::min(resting_.free_bytes, free_bytes);
  return free_bytes >= resting_.free_bytes + more_bytes;
}

void Compactor::Rest(absl::Time now) {
  resting_.now = true;
  resting_.until = now + kRestMax();
  resting_.free_bytes = space_.FreeBytes();
  fruitless_pages_ = 0;
  given_up_in_a_row_ = 0;
}

bool Compactor::StepWanted(absl::Time now) {
  if (state_ != State::kIdle || CompactionForced() || space_.quarantine().next_due() <= now)
    return true;
  return space_.LargestFreeRun() < PagesWanted(now);
}

bool Compactor::Step(absl::Time now, const CompactionBound& bound) {
  if (!writer_.CasVersionsLeft(kVersionsKept)) return false;
  CompactionBound left{bound.items, CompactionBytesMax(bound.bytes)};
  bool freed = false;
  for (int i = 0; i < kFreeDuePerStep; ++i) freed |= space_.FreeDue(now);
  if (state_ != State::kIdle && now < cleared_until_ && !units_wait_) return freed;
  switch (state_) {
    case State::kIdle: {
      const uint64_t pages = PagesWanted(now);
      if (!CompactionForced()) {
        if (space_.LargestFreeRun() >= pages) return freed;
        if (space_.FreeBytes() < pages * kPageBytes * 9 / 8 || !WorthTrying(now)) return freed;
      }
      const uint64_t searched_from = cursor_;
      absl::optional<CompactionWindow> window =
          CompactionForced() ? Choose(1, 100, /*units=*/true, now)
                             : Choose(pages, kStepCostPercentMax, /*units=*/false, now);
      // Moving the index takes long, so only a write that found no space is a reason.
      if (!window.has_value() && space_.LargestFreeRun() < wanted_.pages) {
        cursor_ = searched_from;
        window = Choose(wanted_.pages, kHelpCostPercentMax, /*units=*/true, now);
      }
      if (window.has_value()) Enter(*window);
      return freed || window.has_value() || !resting_.now;
    }
    case State::kMoving:
      in_step_ = true;
      Move(left, now);
      in_step_ = false;
      return true;
    case State::kWaiting:
      if (WindowIsFree()) {
        Leave(true, now);
      } else if (now >= waiting_until_) {
        Leave(false, now);
      }
      return freed || state_ == State::kIdle;
  }
  return false;
}

bool Compactor::MakeRoom(uint64_t bytes, absl::Time now) {
  if (!writer_.CasVersionsLeft(kVersionsKept)) return false;
  const uint64_t pages = space_.PagesFor(bytes);
  if (state_ == State::kIdle && space_.FreeBytes() < pages * kPageBytes) return false;
  wanted_.pages = std::max(wanted_.pages, pages);
  wanted_.until = now + kWantRemembered();
  // A much larger window serves another write. The free space in it may be enough.
  if (state_ != State::kIdle && window_.pages() > 4 * pages + kStockPagesMin) {
    space_.EndGrace(now);
    Leave(WindowIsFree(), now);
  }
  CompactionBound left{kHelpItemsMax, kHelpBytesMax};
  int fruitless = 0;
  for (int i = 0; i < kHelpWindowsMax; ++i) {
    if (state_ == State::kIdle) {
      if (space_.LargestFreeRun() >= pages) return true;
      if (space_.FreeBytes() < pages * kPageBytes) return false;
      if (fruitless == kHelpSearchesMax || !WorthTrying(now)) return false;
      const absl::optional<CompactionWindow> window =
          Choose(pages, kHelpCostPercentMax, /*units=*/false, now);
      if (!window.has_value()) {
        ++fruitless;
        continue;
      }
      Enter(*window);
    }
    if (state_ == State::kMoving && !Move(left, now)) return false;
    if (state_ != State::kWaiting) continue;
    space_.EndGrace(now);
    Leave(WindowIsFree(), now);
  }
  return space_.LargestFreeRun() >= pages;
}

absl::optional<uint64_t> Compactor::MakeSpan(uint64_t bytes, absl::Time now) {
  if (bytes > kChunkBytesMax || !writer_.CasVersionsLeft(kVersionsKept)) return absl::nullopt;
  const absl::optional<ItemSpace::Span> span = space_.FindSpan(bytes, now);
  if (!span.has_value()) return absl::nullopt;
  for (const uint64_t item : span->used) {
    if (IsBeingWritten(writer_.Header(item).version)) return absl::nullopt;
  }
  space_.HoldSpan(*span);
  for (const uint64_t from : span->used) {
    if (IsDead(from)) continue;
    const uint64_t item_bytes = items_.At(from).bytes;
    const absl::optional<uint64_t> to = space_.AllocateForMove(item_bytes, Fit::kAny);
    if (!to.has_value()) return space_.DropSpan(*span), absl::nullopt;
    ItemCopy copy(writer_, from, *to, item_bytes);
    while (!copy.complete()) copy.Continue(item_bytes);
    ++stats_.moved_items;
    stats_.moved_bytes += item_bytes;
    replace_(from, copy.Finish(), now);
  }
  space_.EndGrace(now);
  return space_.TakeSpan(*span);
}

bool Compactor::CanClear(uint64_t bytes, absl::Span<const uint64_t> pinned) const {
  const uint64_t pages = space_.PagesFor(bytes);
  uint64_t begin = space_.begin();
  for (const uint64_t item : pinned) {
    const ItemSpace::Extent extent = space_.ExtentAt(item);
    if (extent.begin >= begin + pages * kPageBytes) return true;
    begin = extent.end();
  }
  return space_.end() >= begin + pages * kPageBytes;
}

bool Compactor::Clear(uint64_t bytes, absl::Span<const uint64_t> pinned, const Evictor& evictor,
                      absl::Time now) {
  if (!writer_.CasVersionsLeft(kVersionsKept)) return false;
  const uint64_t pages = space_.PagesFor(bytes);
  // A window of another write, or an abandoned one.
  if (state_ != State::kIdle && (now >= cleared_until_ || window_.pages() < pages)) {
    space_.EndGrace(now);
    Leave(WindowIsFree(), now);
  }
  if (state_ == State::kIdle) {
    if (space_.LargestFreeRun() >= pages) return true;
    const absl::optional<CompactionWindow> window = CheapestWindowBetween(space_, pages, pinned);
    if (!window.has_value()) return false;
    Enter(*window);
  }
  cleared_until_ = now + kClearAwaitedMax();
  evictor_ = &evictor;
  CompactionBound left{kClearItemsMax, kHelpBytesMax};
  if (state_ == State::kMoving) Move(left, now);
  evictor_ = nullptr;
  if (state_ == State::kWaiting) {
    space_.EndGrace(now);
    Leave(WindowIsFree(), now);
  }
  return state_ == State::kIdle && space_.LargestFreeRun() >= pages;
}

// --- Choice of a window ----------------------------------------------------

// In the next part of item space. With `units` false: among the windows without units.
absl::optional<CompactionWindow> Compactor::Choose(uint64_t pages, uint64_t cost_percent_max,
                                                   bool units, absl::Time now) {
  const uint64_t end = space_.end();
  if (cursor_ < space_.begin() || cursor_ >= end) cursor_ = space_.begin();
  if (cursor_ >= end) return absl::nullopt;
  const FoundWindow found =
      CheapestWindow(space_, cursor_, {pages, cost_percent_max, units, StockPages()});
  fruitless_pages_ += (found.searched_to - cursor_) / kPageBytes;
  cursor_ = found.searched_to;
  if (found.window.has_value()) {
    fruitless_pages_ = 0;
    if (pages > StockPages()) cursor_ = found.window->end;  // the next window is its neighbour
  }
  if (fruitless_pages_ > (end - space_.begin()) / kPageBytes) Rest(now);
  return found.window;
}

// --- Moves -----------------------------------------------------------------

void Compactor::Enter(const CompactionWindow& window) {
  space_.Close(window.begin, window.end);
  window_ = window;
  next_ = window.begin;
  state_ = State::kMoving;
}

void Compactor::Leave(bool emptied, absl::Time now) {
  if (copy_.has_value()) items_.Discard(copy_->to());
  copy_.reset();
  space_.Open();
  state_ = State::kIdle;
  units_wait_ = false;
  cleared_until_ = absl::InfinitePast();
  if (emptied) {
    ++stats_.windows_emptied;
    resting_.now = false;
    given_up_in_a_row_ = 0;
  } else {
    ++stats_.windows_given_up;
    if (++given_up_in_a_row_ >= kGivenUpMax) Rest(now);
  }
}

bool Compactor::WindowIsFree() const {
  return !space_.NextItem(window_.begin, window_.end).has_value() &&
         !space_.NextUnit(window_.begin, window_.end).has_value();
}

bool Compactor::Move(CompactionBound& left, absl::Time now) {
  while (left.items > 0 && left.bytes > 0) {
    if (copy_.has_value()) {
      if (!Copy(left, now)) return false;
      continue;
    }
    const absl::optional<uint64_t> from = space_.NextItem(next_, window_.end);
    if (!from.has_value()) {
      if (const absl::optional<uint64_t> unit = space_.NextUnit(window_.begin, window_.end)) {
        if (!MoveTheUnit(*unit, left, now)) return state_ == State::kIdle;
        continue;
      }
      state_ = State::kWaiting;
      waiting_until_ = now + kWaitingMax();
      return true;
    }
    next_ = *from + 1;
    --left.items;
    if (!MoveOne(*from, left, now)) {
      Leave(false, now);
      return true;
    }
  }
  return false;
}

// Returns false if the unit stays: for now, since a write is under way, whose places in the index
// must not change; or the window is abandoned.
bool Compactor::MoveTheUnit(uint64_t unit, CompactionBound& left, absl::Time now) {
  units_wait_ = !in_step_;
  if (units_wait_) return false;
  if (!move_unit_(unit)) {
    Leave(false, now);
    return false;
  }
  left.items -= std::min(left.items, kItemsPerUnit);
  return true;
}

// Returns false if the item cannot be moved.
bool Compactor::MoveOne(uint64_t from, CompactionBound& left, absl::Time now) {
  const RecordHeader header = writer_.Header(from);
  if (IsBeingWritten(header.version) || space_.quarantine().IsLeased(from, now)) return false;
  if (ItemTag::Unpack(header.tag).state == ItemState::kDead)
    return true;  // waits for its grace period
  const uint64_t bytes = items_.At(from).bytes;
  absl::optional<uint64_t> to = space_.AllocateForMove(bytes, Fit::kLoose);
  // It may lie in a chunk of a much larger class, in a full region. The window counts on such ones.
  if (!to.has_value()) to = space_.AllocateForMove(space_.CapacityOf(from), Fit::kTight);
  if (!to.has_value() && evictor_ != nullptr) {
    evictor_->some(bytes);
    if (IsDead(from)) return true;
    space_.EndGrace(now);
    to = space_.AllocateForMove(bytes);
    if (!to.has_value()) return evictor_->one(from);
  }
  if (!to.has_value()) return false;
  copy_.emplace(writer_, from, *to, bytes);
  return Copy(left, now), true;
}

bool Compactor::IsDead(uint64_t item) const {
  return ItemTag::Unpack(writer_.Header(item).tag).state == ItemState::kDead;
}

// Continues the copy under way, and replaces the item when the copy is complete. Returns false
// while it is not.
bool Compactor::Copy(CompactionBound& left, absl::Time now) {
  if (!copy_->unchanged() || space_.quarantine().IsLeased(copy_->from(), now)) {
    items_.Discard(copy_->to());
    copy_.reset();
    return true;
  }
  left.bytes -= std::min(left.bytes, copy_->Continue(left.bytes));
  if (!copy_->complete()) return false;
  const uint64_t from = copy_->from();
  ++stats_.moved_items;
  stats_.moved_bytes += copy_->bytes();
  const Sealing sealing = copy_->Finish();
  copy_.reset();
  replace_(from, sealing, now);
  return true;
}

}  // namespace osprey::index
