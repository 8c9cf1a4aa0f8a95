// Eviction: chooses the keys that are removed when memory is full.
//
// A CLOCK: the hand passes all lines in turn. It decrements the counters (clock_counters.h) above
// 1, and evicts the keys whose counter is 1. Hints and writes raise counters. An eviction is a
// delete (W2); its item waits for its grace period and for leases, like any dead item (W4).

#include <algorithm>
#include <array>
#include <cassert>

#include "index/layout/access_hint.h"
#include "index/layout/test_hooks.h"
#include "index/writer/table.h"

namespace osprey::index {
namespace {

// This part of item space is kept free or in its grace period, within these bounds. It is more than
// compaction's stock of pages (compactor.cc), and little relative to the stored data.
constexpr uint64_t kReserveShareInverse = 64;
constexpr uint64_t kReserveBytesMin = 128 << 10;
constexpr uint64_t kReserveBytesMax = 16 << 20;

// The bounds of one step: a few hundred microseconds.
constexpr uint32_t kEvictedPerStepMax = 256;
constexpr uint32_t kLinesPerStepMax = 4096;
// The most keys that a write without space evicts, and its attempts: some milliseconds.
constexpr uint32_t kEvictedPerAttemptMax = 2048;
constexpr uint32_t kLinesPerAttemptMax = 32768;
constexpr int kAttemptsMax = 4;
// The most keys evicted for one item that moves out of a long value's window.
constexpr uint32_t kEvictedPerMoveMax = 64;
constexpr uint32_t kLinesPerMoveMax = 64;
// … for values up to this. For longer ones the caller retries (MayMakeRoom), so that other requests
// run in between.
constexpr uint64_t kLongBytes = 1 << 20;
constexpr uint32_t kExtentsPerAttemptMax = 64;

// After so many passes without an eviction, no key can be evicted until the next write.
constexpr uint64_t kPassesWithoutEvictionMax = kClockMax + 1;

// A segment that cannot split is thinned out to below its split threshold.
constexpr uint32_t kThinnedPercent = 93;
constexpr uint32_t kThinnedSmallItemsPercent = 8;

uint64_t PagesFor(uint64_t bytes) { return (bytes + kPageBytes - 1) / kPageBytes; }

// The items in a long value's space must move, so more than its length must be free.
constexpr uint64_t WithRoomToMove(uint64_t bytes) { return bytes + bytes / 8; }

// … and whole slabs.
constexpr uint64_t kSlabsBytes = 64 << 10;

// Hints are processed in batches, so that their cache misses overlap.
constexpr size_t kHintsTogether = 16;

}  // namespace

// --- When to evict ---------------------------------------------------------

uint64_t Table::ReserveBytes() const {
  const uint64_t all = items_.space().pages_end() - items_.space().pages_begin();
  return std::clamp(all / kReserveShareInverse, kReserveBytesMin, kReserveBytesMax);
}

// Space in its grace period counts as free: a write takes it, early if necessary.
bool Table::EvictionWanted() const {
  if (!options_.evict) return false;
  const ItemSpace& space = items_.space();
  const uint64_t reserve = ReserveBytes();
  const ItemSpace::Stats stats = space.stats();
  return space.FreeBytes() + stats.waiting_bytes < reserve && stats.used_bytes > reserve &&
         lines_since_eviction_ < kPassesWithoutEvictionMax * clocks_.count();
}

bool Table::EvictStep(absl::Time now) {
  if (EvictionsForced() > 0) Evict(~uint64_t{0}, EvictionsForced(), kLinesPerStepMax, {}, now);
  if (!EvictionWanted()) return false;
  Evict(ReserveBytes(), kEvictedPerStepMax, kLinesPerStepMax, {}, now);
  return EvictionWanted();
}

bool Table::MayMakeRoom(absl::string_view key, uint64_t value_length) const {
  const ItemSpace& space = items_.space();
  if (!options_.evict) {
    const uint64_t bytes = ItemBytes(key.size(), value_length);
    // The space for updates is in use now; or steps move obstacles; or leases end.
    return MayUseUpdateRoom(key, bytes) ||
           space.FreeBytes() + space.stats().waiting_bytes >= WithRoomToMove(bytes) + kSlabsBytes;
  }
  const uint64_t all = space.pages_end() - space.pages_begin() + space.PagesLeft() * kPageBytes;
  // The present value stays until the new one is complete.
  const Location at = Locate(key);
  const uint64_t kept = at.out_of_line() ? items_.At(at.item()).bytes : 0;
  return PagesFor(ItemBytes(key.size(), value_length)) + PagesFor(kept) <= all / kPageBytes;
}

// --- Choice of victims -----------------------------------------------------

// Evicts keys until their items amount to `bytes`, or a bound is reached. Returns the bytes freed.
uint64_t Table::Evict(uint64_t bytes, uint32_t keys_max, uint32_t lines_max,
                      absl::string_view spared, absl::Time now) {
  uint64_t evicted_bytes = 0;
  uint32_t keys = 0;
  Victims victims;
  victims.spared = spared;
  victims.of_any_kind = EvictionsForced() > 0;
  victims.time_ns = counts_.expiring_keys > 0 ? ServerTimeNs() : 0;
  // After so many passes no counter is above 1, and after one more all keys were examined. With few
  // lines, that is soon.
  const uint64_t all_lines = clocks_.count();
  lines_max = static_cast<uint32_t>(std::min<uint64_t>(lines_max, kClockMax * all_lines));
  const uint64_t looks_max = lines_max + std::min<uint64_t>(lines_max, all_lines);
  for (uint32_t looked = 0; evicted_bytes < bytes && keys < keys_max && looked < looks_max;) {
    // All counters are high, and the write cannot wait: takes a key with the lowest counter.
    victims.clock_max = looked < lines_max || keys > 0 ? 1 : kClockMax;
    if (looked >= lines_max && keys > 0) break;
    if (hand_ >= all_lines) hand_ = 0;
    const uint64_t line = clocks_.OffsetOf(hand_);
    LineClocks clocks = clocks_.Of(line);
    if (clocks.AnyLast() || victims.clock_max > 1) {
      if (const absl::optional<Location> victim = VictimIn(line, victims, now)) {
        if (!writer_.CasVersionsLeft(kCasVersionsPerWriteMax)) break;
        evicted_bytes += EvictKey(*victim, kPromotionsPerDelete, now);
        ++keys;
        lines_since_eviction_ = 0;
        continue;  // another key may follow
      }
    }
    clocks.Age();
    clocks_.Set(line, clocks);
    ++hand_;
    ++looked;
    ++lines_looked_;
    ++lines_since_eviction_;
  }
  return evicted_bytes;
}

// The evictable key of that line with the lowest counter.
absl::optional<Table::Location> Table::VictimIn(uint64_t line, const Victims& victims,
                                                absl::Time now) const {
  const LineClocks clocks = clocks_.Of(line);
  // Evicting an inline key frees item space only if a small item takes its place.
  bool has_small_item = false;
  for (LineCursor cursor(LineAt(writer_, line)); cursor.Next();) {
    has_small_item |= cursor.entry().kind == WordKind::kSlot &&
                      Slot::Unpack(cursor.entry().head).length_class <= kInlineItemClassMax;
  }
  uint32_t fewest = victims.clock_max + 1;
  LineEntry found;
  for (LineCursor cursor(LineAt(writer_, line)); cursor.Next();) {
    const LineEntry& entry = cursor.entry();
    if (clocks.At(entry.at) >= fewest) continue;
    if (entry.kind == WordKind::kInline) {
      if ((!victims.of_any_kind && !has_small_item) || entry.key == victims.spared) continue;
    } else {
      const Slot slot = Slot::Unpack(entry.head);
      const uint64_t item = slot.offset;
      // Its space would not become free before the lease ends, and a reader would have to restart.
      if (items_.space().IsLeased(item, now)) continue;
      if (!victims.spared.empty() && items_.At(item).key == victims.spared) continue;
      // Expired keys go before the others of the line.
      if (slot.has_expiry && items_.At(item).expiry_ns <= victims.time_ns) {
        found = entry;
        break;
      }
    }
    fewest = clocks.At(entry.at);
    found = entry;
  }
  if (found.kind == WordKind::kEmpty) return absl::nullopt;
  Location at;
  at.line = line;
  at.entry = found;
  at.hash = HashKey(KeyOf(at), options_.hash_seed);
  at.home = HomeOf(at.hash);
  at.chained = line != at.home && line != at.home + kLineBytes;
  return at;
}

// Returns the bytes of its item.
uint64_t Table::EvictKey(const Location& at, int promotions_max, absl::Time now) {
  const uint64_t bytes = at.out_of_line() ? items_.At(at.item()).bytes : 0;
  ObserveEviction(KeyOf(at));
  writer_.NextCasVersion();
  const Current current = CurrentOf(at);
  if (HasExpired(current.expiry_ns)) {
    ++counts_.expiries;
  } else {
    ++counts_.evictions;
    counts_.evicted_bytes += KeyOf(at).size() + current.value.size();
  }
  Remove(at, promotions_max, now);
  return bytes;
}

// --- Writes without space ----------------------------------------------------

// As BeginItem, after that found no space. The key itself is spared, so that the caller's checks of
// it stay valid.
absl::optional<uint64_t> Table::BeginItemEvicting(absl::string_view key, uint64_t value_length,
                                                  Location* at, absl::Time now) {
  const uint64_t bytes = ItemBytes(key.size(), value_length);
  const bool is_long = bytes > kLongBytes;
  absl::optional<uint64_t> item;
  // A write that cannot succeed evicts nothing.
  bool can_succeed = MayMakeRoom(key, value_length);
  if (can_succeed && bytes > kChunkBytesMax) {
    const std::vector<uint64_t> pinned = Pinned(key, now);
    can_succeed = compactor_.CanClear(bytes, pinned);
    if (can_succeed && is_long) item = BeginLongEvicting(key, value_length, pinned, now);
  }
  const int attempts_max = can_succeed && !is_long ? kAttemptsMax : 0;
  for (int attempt = 0; attempt < attempts_max && !item.has_value(); ++attempt) {
    // First evicts as much as the item takes, which is enough if all items are alike. Then
    // increasingly more, so that items can be moved away.
    const uint64_t free_bytes = items_.space().FreeBytes();
    const uint64_t wanted = WithRoomToMove(bytes) + ReserveBytes() * static_cast<uint64_t>(attempt);
    const uint64_t lacking = wanted - std::min(wanted, free_bytes);
    Evict(attempt == 0 ? bytes : lacking, kEvictedPerAttemptMax, kLinesPerAttemptMax, key, now);
    item = items_.Begin(key, value_length, now, Fit::kTight);
    if (item.has_value()) break;
    compactor_.MakeRoom(bytes, now);
    const bool last = attempt + 1 == kAttemptsMax;
    item = items_.Begin(key, value_length, now, last ? Fit::kLoose : Fit::kTight);
  }
  for (int attempt = 0; attempt < attempts_max && !item.has_value(); ++attempt) {
    if (!EvictTogether(bytes, key, now)) break;
    item = items_.Begin(key, value_length, now, Fit::kLoose);
  }
  if (at != nullptr) *at = Locate(key);
  return item;
}

// Items that are neither moved nor evicted, in order: leased ones, reservations, and the key's own
// item if it is too long to fit elsewhere for certain.
std::vector<uint64_t> Table::Pinned(absl::string_view key, absl::Time now) const {
  std::vector<uint64_t> pinned = items_.space().Leased(now);
  pinned.insert(pinned.end(), reserved_.begin(), reserved_.end());
  const Location at = Locate(key);
  if (at.out_of_line() && items_.At(at.item()).bytes > kChunkBytesMax) pinned.push_back(at.item());
  std::sort(pinned.begin(), pinned.end());
  return pinned;
}

// Does a bounded part of the work; the caller retries.
absl::optional<uint64_t> Table::BeginLongEvicting(absl::string_view key, uint64_t value_length,
                                                  absl::Span<const uint64_t> pinned,
                                                  absl::Time now) {
  const auto evict_some = [&](uint64_t bytes) {
    Evict(bytes, kEvictedPerMoveMax, kLinesPerMoveMax, key, now);
  };
  const auto evict_one = [&](uint64_t item) {
    const absl::optional<Location> at = LocateItem(item);
    if (!at.has_value() || items_.At(item).key == key || items_.space().IsLeased(item, now))
      return false;
    if (!writer_.CasVersionsLeft(kCasVersionsPerWriteMax)) return false;
    EvictKey(*at, kPromotionsPerDelete, now);
    return true;
  };
  const uint64_t bytes = ItemBytes(key.size(), value_length);
  if (!compactor_.Clear(bytes, pinned, {evict_some, evict_one}, now)) return absl::nullopt;
  return items_.Begin(key, value_length, now, Fit::kLoose);
}

// Free space is fragmented, and moving items did not help. So this evicts the items of some
// neighbouring pages, whatever their counters. It chooses the place where the fewest bytes are
// evicted. False if there is none.
bool Table::EvictTogether(uint64_t bytes, absl::string_view spared, absl::Time now) {
  ItemSpace& space = items_.space();
  const uint64_t pages = ItemSpace::PagesFor(bytes);
  struct Run {
    uint64_t begin = 0;
    uint64_t pages = 0;
    uint64_t used_bytes = 0;
  };
  absl::optional<Run> best;
  Run run;
  for (uint32_t looked = 0; looked < kExtentsPerAttemptMax; ++looked) {
    if (place_ < space.pages_begin() || place_ >= space.pages_end()) {
      place_ = space.pages_begin();
      run = {};
    }
    if (place_ >= space.pages_end()) break;
    const ItemSpace::Extent extent = space.ExtentAt(place_);
    place_ = extent.end();
    if (run.pages == 0) run.begin = extent.begin;
    run.pages += extent.pages;
    run.used_bytes += extent.used_bytes;
    if (!MayAllGo(extent, spared, now)) run = {};
    if (run.pages < pages) continue;
    if (!best.has_value() || run.used_bytes < best->used_bytes) best = run;
    run = {};
  }
  if (!best.has_value()) return false;
  const uint64_t end = best->begin + best->pages * kPageBytes;
  absl::optional<uint64_t> item = space.NextItem(best->begin, end);
  for (uint32_t evicted = 0; item.has_value() && evicted < kEvictedPerAttemptMax; ++evicted) {
    const absl::optional<Location> at = LocateItem(*item);
    if (at.has_value()) EvictKey(*at, kPromotionsPerDelete, now);
    item = space.NextItem(*item + 1, end);
  }
  return true;
}

// Whether all items of the extent can be evicted, or are dead and not leased.
bool Table::MayAllGo(const ItemSpace::Extent& extent, absl::string_view spared,
                     absl::Time now) const {
  const ItemSpace& space = items_.space();
  if (space.IsClosed(extent.begin)) return false;
  absl::optional<uint64_t> item = space.NextItem(extent.begin, extent.end());
  for (; item.has_value(); item = space.NextItem(*item + 1, extent.end())) {
    if (space.IsLeased(*item, now)) return false;
    const RecordHeader header = writer_.Header(*item);
    if (IsBeingWritten(header.version)) return false;
    if (ItemTag::Unpack(header.tag).state != ItemState::kLive) continue;
    if (!spared.empty() && items_.At(*item).key == spared) return false;
  }
  return true;
}

// The key of the item at `offset`, if that is a key's item.
absl::optional<Table::Location> Table::LocateItem(uint64_t offset) const {
  const RecordHeader header = writer_.Header(offset);
  // Only a sealed, live item belongs to a key. Any other is being created or removed.
  if (IsBeingWritten(header.version) || ItemTag::Unpack(header.tag).state != ItemState::kLive)
    return absl::nullopt;
  const Location at = Locate(items_.At(offset).key);
  if (!at.out_of_line() || at.item() != offset) return absl::nullopt;
  return at;
}

// Evicts the key of the window, or of its chain, with the lowest counter. False if there is none.
bool Table::EvictNear(uint64_t home, absl::string_view spared, absl::Time now) {
  if (!options_.evict || !writer_.CasVersionsLeft(kCasVersionsPerWriteMax)) return false;
  Victims victims{kClockMax, true, 0, spared};
  absl::optional<Location> best;
  const auto look = [&](uint64_t line) {
    absl::optional<Location> victim = VictimIn(line, victims, now);
    if (!victim.has_value()) return;
    victims.clock_max = clocks_.Of(line).At(victim->entry.at) - 1;
    best = victim;
  };
  look(home);
  look(home + kLineBytes);
  uint64_t link = LineAt(writer_, home).words[kLinkWord];
  for (; link != 0; link = LineAt(writer_, LinkOffset(link)).words[kLinkWord]) {
    look(LinkOffset(link));
  }
  if (!best.has_value()) return false;
  EvictKey(*best, /*promotions_max=*/0, now);
  return true;
}

// If the index has taken all memory there is no space for items. Then a small key replaces others
// in its window.
bool Table::PutInlineEvicting(absl::string_view key, ByteSpan value, uint64_t version,
                              absl::Time now) {
  if (!options_.evict || !MayBeInline(key, value)) return false;
  for (int attempt = 0; attempt <= kEvictionsNearMax; ++attempt) {
    const Location at = Locate(key);
    const absl::optional<uint64_t> line = InlineRoom(at, InlineWords(key.size(), value.size()));
    if (!at.chained && line.has_value()) {
      PutInline(at, *line, key, value, version, now);
      return true;
    }
    if (!EvictNear(at.home, key, now)) return false;
  }
  return false;
}

// Thins out a segment that is full and cannot split. False without eviction.
bool Table::ThinOut(uint32_t unit, absl::Time now) {
  if (!options_.evict) return false;
  Segment& segment = segments_[unit];
  const Victims victims{1, true, 0, {}};
  for (uint32_t looked = 0; !IsCalm(segment) && looked < kClockMax * kLinesPerUnit; ++looked) {
    const uint64_t line = UnitOffset(unit) + segment.hand * kLineBytes;
    for (uint32_t i = 0; i < kLineWords && !IsCalm(segment); ++i) {
      const absl::optional<Location> victim = VictimIn(line, victims, now);
      if (!victim.has_value() || !writer_.CasVersionsLeft(kCasVersionsPerWriteMax)) break;
      EvictKey(*victim, kPromotionsPerDelete, now);
    }
    if (IsCalm(segment)) break;
    LineClocks clocks = clocks_.Of(line);
    clocks.Age();
    clocks_.Set(line, clocks);
    ++segment.hand;
  }
  segment.wants_split = false;
  return true;
}

bool Table::IsCalm(const Segment& segment) const {
  constexpr uint32_t kWords = kLinesPerUnit * kLineWordsUsable;
  return segment.words * 100 <= kWords * std::min(kThinnedPercent, options_.split_percent) &&
         segment.small_items * 100 <= segment.keys * kThinnedSmallItemsPercent;
}

// --- Access hints ------------------------------------------------------------

bool Table::Touch(absl::string_view key) {
  const Location at = Locate(key);
  if (!at.found() || HasExpired(CurrentOf(at).expiry_ns)) return false;
  clocks_.Add(at.line, at.entry.at, kClockPerHint);
  return true;
}

void Table::TakeHints(absl::Span<const uint64_t> hints) {
  if (!options_.evict) return;
  counts_.hints += hints.size();
  while (!hints.empty()) {
    const absl::Span<const uint64_t> some = hints.first(std::min(hints.size(), kHintsTogether));
    for (const uint64_t word : some) {
      const uint64_t offset = AccessHint::Unpack(word).offset;
      if (offset >= items_.space().pages_begin() &&
          offset <= items_.space().pages_end() - sizeof(ItemHeader)) {
        items_.Prefetch(offset);
      }
    }
    for (const uint64_t word : some) {
      const AccessHint hint = AccessHint::Unpack(word);
      bool known = false;
      if (hint.kind == WordKind::kSlot) known = TakeItemHint(hint.offset, hint.fingerprint);
      if (hint.kind == WordKind::kInline) known = TakeLineHint(hint.offset, hint.fingerprint);
      counts_.hints_unmatched += !known;
    }
    hints.remove_prefix(some.size());
  }
}

bool Table::TakeItemHint(uint64_t offset, uint32_t fingerprint) {
  if (!items_.space().IsAllocated(offset)) return false;
  const absl::optional<Location> at = LocateItem(offset);
  if (!at.has_value() || at->hash.fingerprint() != fingerprint) return false;
  clocks_.Add(at->line, at->entry.at, kClockPerHint);
  return true;
}

bool Table::TakeLineHint(uint64_t offset, uint32_t fingerprint) {
  if (offset < space_.units_offset() || offset >= space_.units_end() ||
      (offset - space_.units_offset()) % kLineBytes != 0) {
    return false;
  }
  for (LineCursor cursor(LineAt(writer_, offset)); cursor.Next();) {
    const LineEntry& entry = cursor.entry();
    if (entry.kind != WordKind::kInline) continue;
    if (HashKey(entry.key, options_.hash_seed).fingerprint() != fingerprint) continue;
    clocks_.Add(offset, entry.at, kClockPerHint);
    return true;
  }
  return false;
}

}  // namespace osprey::index
