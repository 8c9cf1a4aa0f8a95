#include "index/writer/keys/evictor.h"

#include <algorithm>
#include <cassert>

#include "index/layout/access_hint.h"
#include "index/layout/test_hooks.h"
#include "index/writer/keys/changes.h"

namespace osprey::index {
namespace {

// This part of item space is kept free or in its grace period, within these bounds. From 4 MiB on it is
// at least compaction's stock of pages (compactor.cc). It is little relative to the stored data.
constexpr uint64_t kReserveShareInverse = 64;
constexpr uint64_t kReserveBytesMin = 32 << 10;
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

// At the end of a pass without an eviction all counters age with each further one. After so many, no key
// can be evicted until the next write.
constexpr uint64_t kPassesWithoutEvictionMax = kClockMax + 2;

// A segment that cannot split is thinned out to below its split threshold. Its small items stay, however
// many: each costs a READ more, which is less than what its key's absence costs.
constexpr uint32_t kThinnedPercent = 93;

// Counters age while fewer keys than this have a counter of 1: new keys, and those that were not read for
// long. Of them the hand evicts. The lines that age for each line that the hand passes, at most.
constexpr uint64_t kLastPercent = 5;
constexpr int kLinesAgedPerLine = 8;
// After so many lines without a victim the hand itself ages those that it passes: the keys with a counter
// of 1 are others than those whose eviction frees item space.
constexpr uint64_t kFruitlessLinesMax = 64;
// The ghosts relative to the keys. More of them would let keys return that come once in a long while.
constexpr uint64_t kGhostsPercent = 45;

uint64_t PagesFor(uint64_t bytes) { return (bytes + kPageBytes - 1) / kPageBytes; }

// Hints are processed in batches, so that their cache misses overlap.
constexpr size_t kHintsTogether = 16;

}  // namespace

uint64_t Evictor::ReserveBytes() const {
  return std::clamp(keys_.items.space().bytes() / kReserveShareInverse, kReserveBytesMin,
                    kReserveBytesMax);
}

// Space in its grace period counts as free: a write takes it, early if necessary.
uint64_t Evictor::BytesWanted() const {
  if (!keys_.options.evict || !keys_.decides) return 0;
  const ItemSpace& space = keys_.items.space();
  const uint64_t reserve = ReserveBytes();
  const ItemSpace::Stats stats = space.stats();
  const bool may_evict = stats.used_bytes > reserve &&
                         lines_since_eviction_ < kPassesWithoutEvictionMax * keys_.clocks.count();
  const uint64_t free = space.FreeBytes() + stats.waiting_bytes;
  return may_evict ? reserve - std::min(reserve, free) : 0;
}

bool Evictor::Step(absl::Time now) {
  if (EvictionsForced() > 0 && keys_.decides)
    Evict(~uint64_t{0}, EvictionsForced(), kLinesPerStepMax, {}, now);
  const uint64_t bytes = BytesWanted();
  if (bytes == 0) return false;
  Evict(bytes, kEvictedPerStepMax, kLinesPerStepMax, {}, now);
  return Wanted();
}

bool Evictor::MayMakeRoom(absl::string_view key, uint64_t value_length) const {
  const ItemSpace& space = keys_.items.space();
  // The present value stays until the new one is complete.
  const Location at = keys_.Locate(key);
  const uint64_t kept = at.out_of_line() ? keys_.items.At(at.item()).bytes : 0;
  return PagesFor(ItemBytes(key.size(), value_length)) + PagesFor(kept) <=
         space.bytes() / kPageBytes;
}

// Evicts keys until their items amount to `bytes`, or a bound is reached. Returns the bytes freed.
uint64_t Evictor::Evict(uint64_t bytes, uint32_t keys_max, uint32_t lines_max,
                        absl::string_view spared, absl::Time now) {
  uint64_t evicted_bytes = 0;
  uint32_t keys = 0;
  Victims victims;
  victims.spared = spared;
  victims.of_any_kind = EvictionsForced() > 0;
  victims.time_ns = keys_.counts.expiring_keys > 0 ? expirer_.ServerTimeNs() : 0;
  // After the first pass and so many more no counter is above 1, and after one more all keys were examined.
  // With few lines, that is soon.
  const uint64_t all_lines = keys_.clocks.count();
  if (all_lines == 0) return 0;
  lines_max = static_cast<uint32_t>(std::min<uint64_t>(lines_max, (kClockMax + 1) * all_lines));
  const uint64_t looks_max = lines_max + std::min<uint64_t>(lines_max, all_lines);
  for (uint32_t looked = 0; evicted_bytes < bytes && keys < keys_max && looked < looks_max;) {
    // All counters are high, and the write cannot wait: takes a key with the lowest counter.
    victims.clock_max = looked < lines_max || keys > 0 ? 1 : kClockMax;
    if (looked >= lines_max && keys > 0) break;
    hand_ = keys_.clocks.NextFrom(hand_);
    const uint64_t line = keys_.clocks.OffsetOf(hand_);
    AgeSome();
    const LineClocks clocks = keys_.clocks.Of(line);
    if (clocks.AnyLast() || victims.clock_max > 1) {
      if (const absl::optional<Location> victim = VictimIn(line, victims, now)) {
        if (!keys_.writer.CasVersionsLeft(kCasVersionsPerWriteMax)) break;
        evicted_bytes += EvictKey(*victim, kPromotionsPerDelete, now);
        ++keys;
        lines_since_eviction_ = 0;
        continue;  // another key may follow
      }
    }
    if (lines_since_eviction_ >= std::min(all_lines, kFruitlessLinesMax)) Age(line);
    ++hand_;
    ++looked;
    ++lines_looked_;
    ++lines_since_eviction_;
  }
  return evicted_bytes;
}

void Evictor::Age(uint64_t line) {
  LineClocks clocks = keys_.clocks.Of(line);
  clocks.Age();
  keys_.clocks.Set(line, clocks);
}

void Evictor::AgeSome() {
  for (int i = 0;
       i < kLinesAgedPerLine && keys_.clocks.last() * 100 < keys_.counts.keys * kLastPercent; ++i) {
    aging_hand_ = keys_.clocks.NextFrom(aging_hand_);
    Age(keys_.clocks.OffsetOf(aging_hand_));
    ++aging_hand_;
    ++lines_looked_;
  }
}

// The evictable key of that line with the lowest counter.
absl::optional<Location> Evictor::VictimIn(uint64_t line, const Victims& victims,
                                           absl::Time now) const {
  const LineClocks clocks = keys_.clocks.Of(line);
  // Evicting an inline key frees item space only if a small item takes its place.
  bool has_small_item = false;
  for (LineCursor cursor(LineAt(keys_.writer, line)); cursor.Next();) {
    has_small_item |= cursor.entry().kind == WordKind::kSlot &&
                      Slot::Unpack(cursor.entry().head).length_class <= kInlineItemClassMax;
  }
  uint32_t fewest = victims.clock_max + 1;
  LineEntry found;
  for (LineCursor cursor(LineAt(keys_.writer, line)); cursor.Next();) {
    const LineEntry& entry = cursor.entry();
    if (clocks.At(entry.at) >= fewest) continue;
    if (entry.kind == WordKind::kInline) {
      if ((!victims.of_any_kind && !has_small_item) || entry.key == victims.spared) continue;
      if (keys_.IsPending(entry.key)) continue;
    } else {
      const Slot slot = Slot::Unpack(entry.head);
      const uint64_t item = slot.offset;
      // Its space would not become free before the lease ends, and a reader would have to restart.
      if (keys_.items.space().quarantine().IsLeased(item, now)) continue;
      if (!victims.spared.empty() && keys_.items.At(item).key == victims.spared) continue;
      if (!keys_.pending.empty() && keys_.IsPending(keys_.items.At(item).key)) continue;
      // Expired keys go before the others of the line.
      if (slot.has_expiry && keys_.items.At(item).expiry_ns <= victims.time_ns) {
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
  at.hash = HashKey(keys_.KeyOf(at), keys_.options.hash_seed);
  at.home = keys_.HomeOf(at.hash);
  at.chained = line != at.home && line != at.home + kLineBytes;
  return at;
}

// Returns the bytes of its item, or of the key and value that were inline. (Small items that take their
// place free about as much.)
uint64_t Evictor::EvictKey(const Location& at, int promotions_max, absl::Time now) {
  const uint64_t bytes =
      at.out_of_line() ? keys_.items.At(at.item()).bytes : at.entry.words * kWordBytes;
  ObserveEviction(keys_.KeyOf(at));
  keys_.writer.NextCasVersion();
  const Current current = keys_.CurrentOf(at);
  const bool is_hidden = at.out_of_line() && keys_.items.IsHidden(at.item());
  if (expirer_.HasExpired(current.expiry_ns) && !is_hidden) {
    ++keys_.counts.expiries;
    if (keys_.options.changes != nullptr)
      keys_.options.changes->OnExpired(keys_.KeyOf(at), current.version);
  } else {
    ++keys_.counts.evictions;
    keys_.counts.evicted_bytes += keys_.KeyOf(at).size() + current.value.size();
    keys_.ghosts.Add(at.hash, keys_.counts.keys * kGhostsPercent / 100);
    if (keys_.options.changes != nullptr)
      keys_.options.changes->OnEvict(keys_.KeyOf(at), current.version);
  }
  if (!keys_.pending.empty()) keys_.pending.NoteEvicted(at.hash);
  placement_.Remove(at, promotions_max, now);
  return bytes;
}

// As BeginItem, after that found no space. The key itself is spared, so that the caller's checks of
// it stay valid.
absl::optional<uint64_t> Evictor::BeginItem(absl::string_view key, uint64_t value_length,
                                            Location* at, absl::Time now) {
  const uint64_t bytes = ItemBytes(key.size(), value_length);
  const bool is_long = bytes > kLongBytes;
  absl::optional<uint64_t> item;
  // A write that cannot succeed evicts nothing.
  bool can_succeed = MayMakeRoom(key, value_length);
  if (can_succeed && bytes > kChunkBytesMax) {
    const std::vector<uint64_t> pinned = Pinned(key, now);
    can_succeed = compactor_.CanClear(bytes, pinned);
    if (can_succeed && is_long) item = BeginLongItem(key, value_length, pinned, now);
  }
  const int attempts_max = can_succeed && !is_long ? kAttemptsMax : 0;
  for (int attempt = 0; attempt < attempts_max && !item.has_value(); ++attempt) {
    // First evicts as much as the item takes, which is enough if all items are alike. Then
    // increasingly more, so that items can be moved away.
    const uint64_t free_bytes = keys_.items.space().FreeBytes();
    const uint64_t wanted = WithRoomToMove(bytes) + ReserveBytes() * static_cast<uint64_t>(attempt);
    const uint64_t lacking = wanted - std::min(wanted, free_bytes);
    Evict(attempt == 0 ? bytes : lacking, kEvictedPerAttemptMax, kLinesPerAttemptMax, key, now);
    item = keys_.items.Begin(key, value_length, now, Fit::kTight);
    if (item.has_value()) break;
    compactor_.MakeRoom(bytes, now);
    const bool last = attempt + 1 == kAttemptsMax;
    item = keys_.items.Begin(key, value_length, now, last ? Fit::kLoose : Fit::kTight);
  }
  for (int attempt = 0; attempt < attempts_max && !item.has_value(); ++attempt) {
    if (!EvictTogether(bytes, key, now)) break;
    item = keys_.items.Begin(key, value_length, now, Fit::kLoose);
  }
  if (at != nullptr) *at = keys_.Locate(key);
  return item;
}

// Items that are neither moved nor evicted, in order: leased ones, reservations, and the key's own
// item if it is too long to fit elsewhere for certain.
std::vector<uint64_t> Evictor::Pinned(absl::string_view key, absl::Time now) const {
  std::vector<uint64_t> pinned = keys_.items.space().quarantine().Leased(now);
  pinned.insert(pinned.end(), reserved_.begin(), reserved_.end());
  const Location at = keys_.Locate(key);
  if (at.out_of_line() && keys_.items.At(at.item()).bytes > kChunkBytesMax)
    pinned.push_back(at.item());
  std::sort(pinned.begin(), pinned.end());
  return pinned;
}

// Does a bounded part of the work; the caller retries.
absl::optional<uint64_t> Evictor::BeginLongItem(absl::string_view key, uint64_t value_length,
                                                absl::Span<const uint64_t> pinned, absl::Time now) {
  const auto evict_some = [&](uint64_t bytes) {
    Evict(bytes, kEvictedPerMoveMax, kLinesPerMoveMax, key, now);
  };
  const auto evict_one = [&](uint64_t item) {
    const absl::optional<Location> at = keys_.LocateItem(item);
    if (!at.has_value() || keys_.items.At(item).key == key || keys_.IsPending(keys_.KeyOf(*at)) ||
        keys_.items.space().quarantine().IsLeased(item, now))
      return false;
    if (!keys_.writer.CasVersionsLeft(kCasVersionsPerWriteMax)) return false;
    EvictKey(*at, kPromotionsPerDelete, now);
    return true;
  };
  const uint64_t bytes = ItemBytes(key.size(), value_length);
  if (!compactor_.Clear(bytes, pinned, {evict_some, evict_one}, now)) return absl::nullopt;
  return keys_.items.Begin(key, value_length, now, Fit::kLoose);
}

// Free space is fragmented, and moving items did not help. So this evicts the items of some
// neighbouring pages, whatever their counters. It chooses the place where the fewest bytes are
// evicted. False if there is none.
bool Evictor::EvictTogether(uint64_t bytes, absl::string_view spared, absl::Time now) {
  ItemSpace& space = keys_.items.space();
  const uint64_t pages = space.PagesFor(bytes);
  struct Run {
    uint64_t begin = 0;
    uint64_t pages = 0;
    uint64_t used_bytes = 0;
  };
  absl::optional<Run> best;
  Run run;
  for (uint32_t looked = 0; looked < kExtentsPerAttemptMax; ++looked) {
    if (place_ < space.begin() || place_ >= space.end()) {
      place_ = space.begin();
      run = {};
    }
    if (place_ >= space.end()) break;
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
    const absl::optional<Location> at = keys_.LocateItem(*item);
    if (at.has_value()) EvictKey(*at, kPromotionsPerDelete, now);
    item = space.NextItem(*item + 1, end);
  }
  return true;
}

// Whether all items of the extent can be evicted, or are dead and not leased.
bool Evictor::MayAllGo(const ItemSpace::Extent& extent, absl::string_view spared,
                       absl::Time now) const {
  const ItemSpace& space = keys_.items.space();
  if (space.IsClosed(extent.begin) || extent.kind == ItemSpace::Extent::Kind::kUnit) return false;
  absl::optional<uint64_t> item = space.NextItem(extent.begin, extent.end());
  for (; item.has_value(); item = space.NextItem(*item + 1, extent.end())) {
    if (space.quarantine().IsLeased(*item, now)) return false;
    const RecordHeader header = keys_.writer.Header(*item);
    if (IsBeingWritten(header.version)) return false;
    if (ItemTag::Unpack(header.tag).state != ItemState::kLive) continue;
    const absl::string_view key = keys_.items.At(*item).key;
    if (key == spared || keys_.IsPending(key)) return false;
  }
  return true;
}

bool Evictor::EvictNear(uint64_t home, absl::string_view spared, absl::Time now) {
  if (!keys_.options.evict || !keys_.decides ||
      !keys_.writer.CasVersionsLeft(kCasVersionsPerWriteMax))
    return false;
  Victims victims{kClockMax, true, 0, spared};
  absl::optional<Location> best;
  const auto look = [&](uint64_t line) {
    absl::optional<Location> victim = VictimIn(line, victims, now);
    if (!victim.has_value()) return;
    victims.clock_max = keys_.clocks.Of(line).At(victim->entry.at) - 1;
    best = victim;
  };
  look(home);
  // What becomes free in a line that has a chain is taken by that chain.
  if (LinkOf(LineAt(keys_.writer, home + kLineBytes)) == 0) look(home + kLineBytes);
  uint64_t link = LineAt(keys_.writer, home).words[kLinkWord];
  for (; link != 0; link = LineAt(keys_.writer, LinkOffset(link)).words[kLinkWord]) {
    look(LinkOffset(link));
  }
  if (!best.has_value()) return false;
  EvictKey(*best, /*promotions_max=*/0, now);
  return true;
}

bool Evictor::EvictFrom(uint64_t line, absl::string_view spared, absl::Time now) {
  if (!keys_.options.evict || !keys_.writer.CasVersionsLeft(kCasVersionsPerWriteMax)) return false;
  absl::optional<uint32_t> least;
  LineEntry victim;
  Location at;
  for (LineCursor cursor(LineAt(keys_.writer, line)); cursor.Next();) {
    const LineEntry& entry = cursor.entry();
    at.entry = entry;
    if (keys_.KeyOf(at) == spared) continue;
    const uint32_t rank = keys_.clocks.Of(line).At(entry.at) +
                          (keys_.IsPending(keys_.KeyOf(at)) ? uint32_t{kClockMax} + 1 : 0);
    if (least.has_value() && rank >= *least) continue;
    least = rank;
    victim = entry;
  }
  if (!least.has_value()) return false;
  at.line = line;
  at.entry = victim;
  at.hash = HashKey(keys_.KeyOf(at), keys_.options.hash_seed);
  at.home = keys_.HomeOf(at.hash);
  EvictKey(at, /*promotions_max=*/0, now);
  return true;
}

// If the index has taken all memory there is no space for items. Then a small key replaces others
// in its window.
bool Evictor::PutInline(absl::string_view key, ByteSpan value, uint64_t version, absl::Time now) {
  if (!keys_.options.evict || !MayBeInline(key, value)) return false;
  for (int attempt = 0; attempt <= kEvictionsNearMax; ++attempt) {
    const Location at = keys_.Locate(key);
    const absl::optional<uint64_t> line =
        placement_.InlineRoom(at, InlineWords(key.size(), value.size()));
    if (!at.chained && line.has_value()) {
      placement_.PutInline(at, *line, key, value, version, now);
      return true;
    }
    if (!EvictNear(at.home, key, now)) return false;
  }
  return false;
}

bool Evictor::ThinOut(uint32_t unit, absl::Time now) {
  if (!keys_.options.evict || !keys_.decides) return false;
  SegmentState& segment = keys_.segments[unit];
  const Victims victims{1, true, 0, {}};
  for (uint32_t looked = 0; !IsCalm(segment) && looked < (kClockMax + 1) * kLinesPerUnit;
       ++looked) {
    const uint64_t line = keys_.UnitOffset(unit) + segment.hand * kLineBytes;
    for (uint32_t i = 0; i < kLineWords && !IsCalm(segment); ++i) {
      const absl::optional<Location> victim = VictimIn(line, victims, now);
      if (!victim.has_value() || !keys_.writer.CasVersionsLeft(kCasVersionsPerWriteMax)) break;
      EvictKey(*victim, kPromotionsPerDelete, now);
    }
    if (IsCalm(segment)) break;
    // At first the keys go whose counter is 1 already.
    if (looked >= kLinesPerUnit) Age(line);
    ++segment.hand;
  }
  segment.wants_split = false;
  return true;
}

bool Evictor::IsCalm(const SegmentState& segment) const {
  constexpr uint32_t kWords = kLinesPerUnit * kLineWordsUsable;
  return segment.words * 100 <= kWords * std::min(kThinnedPercent, keys_.options.split_percent);
}

bool Evictor::Touch(absl::string_view key) {
  const Location at = keys_.Locate(key);
  if (!at.found() || expirer_.HasExpired(keys_.CurrentOf(at).expiry_ns)) return false;
  keys_.clocks.Add(at.line, at.entry.at, kClockPerHint);
  return true;
}

void Evictor::TakeHints(absl::Span<const uint64_t> hints) {
  if (!keys_.options.evict) return;
  keys_.counts.hints += hints.size();
  while (!hints.empty()) {
    const absl::Span<const uint64_t> some = hints.first(std::min(hints.size(), kHintsTogether));
    for (const uint64_t word : some) {
      const uint64_t offset = AccessHint::Unpack(word).offset;
      if (offset >= keys_.items.space().begin() &&
          offset <= keys_.items.space().end() - sizeof(ItemHeader)) {
        keys_.items.Prefetch(offset);
      }
    }
    for (const uint64_t word : some) {
      const AccessHint hint = AccessHint::Unpack(word);
      bool known = false;
      if (hint.kind == WordKind::kSlot) known = TakeItemHint(hint.offset, hint.fingerprint);
      if (hint.kind == WordKind::kInline) known = TakeLineHint(hint.offset, hint.fingerprint);
      keys_.counts.hints_unmatched += !known;
    }
    hints.remove_prefix(some.size());
  }
}

bool Evictor::TakeItemHint(uint64_t offset, uint32_t fingerprint) {
  if (!keys_.items.space().IsAllocated(offset)) return false;
  const absl::optional<Location> at = keys_.LocateItem(offset);
  if (!at.has_value() || at->hash.fingerprint() != fingerprint) return false;
  keys_.clocks.Add(at->line, at->entry.at, kClockPerHint);
  return true;
}

bool Evictor::TakeLineHint(uint64_t offset, uint32_t fingerprint) {
  const RegionSpace& space = keys_.space;
  if (!space.IsUnit(offset) || space.IsSpare(space.UnitAt(offset)) ||
      (offset - space.units_offset()) % kLineBytes != 0) {
    return false;
  }
  for (LineCursor cursor(LineAt(keys_.writer, offset)); cursor.Next();) {
    const LineEntry& entry = cursor.entry();
    if (entry.kind != WordKind::kInline) continue;
    if (HashKey(entry.key, keys_.options.hash_seed).fingerprint() != fingerprint) continue;
    keys_.clocks.Add(offset, entry.at, kClockPerHint);
    return true;
  }
  return false;
}

}  // namespace osprey::index
