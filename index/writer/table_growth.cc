// Growth of the table (W7), and flush in steps.

#include <algorithm>
#include <bit>
#include <cassert>

#include "index/layout/test_hooks.h"
#include "index/writer/table.h"
#include "index/writer/write_results.h"

namespace osprey::index {
namespace {

// An upper bound of the cas versions that one step draws: a promotion may need one for its line and
// one for its item.
constexpr uint64_t kCasVersionsPerStepMax = 2 * 2 * kLinesPerUnit * kLineWordsUsable;

// A chain of so many lines is unlikely by chance. Its segment splits early, unless it is so empty
// that a split would not help: then the keys were chosen to collide.
constexpr uint32_t kLongChainLines = 2;
constexpr uint32_t kCrowdedPercent = 25;

// How much deeper the directory may be than its shallowest segment, which then has
// 2^kDepthSpreadMax entries. This bounds the pages that one split writes. Segments of hashed keys
// differ by one or two.
constexpr uint32_t kDepthSpreadMax = 4;

// Below this load small items fitted inline when they were written, or will fit when their lines
// are written.
constexpr uint32_t kCrampedPercent = 60;

constexpr uint64_t kCacheLineBytes = 64;
// Bytes prefetched of an item, so that a batch fits the cache.
constexpr uint64_t kPrefetchedBytesMax = 256;

constexpr uint32_t Percent(uint32_t words) {
  return words * 100 / (kLinesPerUnit * kLineWordsUsable);
}

}  // namespace

// --- When to grow ----------------------------------------------------------

DirectoryEntry Table::NewSegment(uint32_t depth) {
  const absl::optional<uint64_t> unit = space_.TakeUnit();
  assert(unit.has_value());
  DirectoryEntry entry;
  entry.unit = UnitOf(*unit);
  entry.depth = depth;
  entry.generation = IsMutant(Mutant::kGenerationKeptOnReuse) ? 1 + entry.unit : ++generation_;
  if (segments_.size() <= entry.unit) segments_.resize(entry.unit + 1);
  segments_[entry.unit] = {};
  ++segments_of_depth_[depth];
  return entry;
}

void Table::LayOut() {
  const DirectoryEntry only = NewSegment(0);
  for (uint32_t i = 0; i < kLinesPerUnit; ++i) {
    LineEditor::Empty(writer_, clocks_, UnitOffset(only.unit) + i * kLineBytes, only.generation)
        .Publish();
  }
  directory_.LayOut(only);
}

// Called after a write that may have filled the key's segment.
void Table::NoteLoad(const Location& at) {
  Segment& segment = segments_[UnitOf(at.home)];
  if (segment.wants_split) return;
  const uint32_t percent = Percent(segment.words);
  const bool full = percent >= options_.split_percent;
  const bool cramped = percent >= kCrampedPercent &&
                       segment.small_items * 100 >= segment.keys * options_.small_items_percent;
  if (!full && !cramped &&
      (percent < kCrowdedPercent || chains_.LengthOf(at.home) < kLongChainLines))
    return;
  segment.wants_split = true;
  wants_split_.push_back(static_cast<uint32_t>(at.hash.bits));
}

bool Table::MayDouble() const {
  if (!directory_.may_double()) return false;
  uint32_t shallowest = 0;
  while (segments_of_depth_[shallowest] == 0) ++shallowest;
  return directory_.depth() - shallowest < kDepthSpreadMax;
}

bool Table::GrowStep(absl::Time now) {
  if (!GrowthWanted()) return false;
  if (!writer_.CasVersionsLeft(kCasVersionsPerStepMax)) return false;
  if (directory_.doubling()) {
    directory_.DoubleStep();
  } else if (!wants_split_.empty()) {
    const uint32_t hash_bits = wants_split_.front();
    const DirectoryEntry entry = directory_.At(hash_bits);
    Segment& segment = segments_[entry.unit];
    const bool emptied = Percent(segment.words) < std::min(kCrowdedPercent, options_.split_percent);
    if (!emptied && entry.depth < directory_.depth()) {
      if (!Split(hash_bits, entry, now) && !ThinOut(entry.unit, now)) return false;
      wants_split_.pop_front();
    } else if (!emptied && MayDouble()) {
      directory_.DoubleStep();
    } else {
      // A later write notes it again, when other segments may have become deeper.
      segment.wants_split = false;
      wants_split_.pop_front();
    }
  }
  return GrowthWanted();
}

// --- A split (W7) ----------------------------------------------------------

// Does the whole split in one step: nothing else is written between the first copy and the last
// rewrite. If there is no space it returns false and changes nothing.
bool Table::Split(uint32_t hash_bits, DirectoryEntry old, absl::Time now) {
  if (space_.units_left() < 2) return false;
  split_.Read(UnitOffset(old.unit), old.depth);
  const SegmentSplit::Half& low_half = split_.half(0);
  const SegmentSplit::Half& high_half = split_.half(1);
  const Segment& known = segments_[old.unit];
  assert(known.keys == low_half.keys + high_half.keys);
  assert(known.words == low_half.words() + high_half.words());
  assert(known.small_items == low_half.small_items + high_half.small_items);
  if (!chains_.Reserve(low_half.chain_lines() + high_half.chain_lines())) return false;
  if (space_.units_left() < 2) return false;
  // A version that none of the records that this step rewrites has.
  writer_.NextCasVersion();
  const DirectoryEntry low = NewSegment(old.depth + 1);
  const DirectoryEntry high = NewSegment(old.depth + 1);
  if (IsMutant(Mutant::kDirectoryBeforeCopy)) {
    WriteEmptyHalf(low);
    WriteEmptyHalf(high);
    directory_.Split(hash_bits, low, high);
  }
  uint64_t expires_from_ns = segments_[old.unit].expires_from_ns;
  if (sweep_.unit == old.unit) {
    sweep_.unit.reset();
    expires_from_ns = 0;  // as if never swept
  }
  WriteHalf(low_half, low, expires_from_ns);
  WriteHalf(high_half, high, expires_from_ns);
  ObserveCopiedHalves(*this);
  directory_.Split(hash_bits, low, high);
  Poison(old);
  --segments_of_depth_[old.depth];
  space_.FreeUnit(UnitOffset(old.unit));
  ++counts_.splits;
  // Small items fit inline now. These are separate writes, after the split.
  if (low_half.small_items > 0) PromoteIn(low, now);
  if (high_half.small_items > 0) PromoteIn(high, now);
  return true;
}

void Table::PromoteIn(DirectoryEntry entry, absl::Time now) {
  for (uint32_t i = 0; i < kLinesPerUnit; ++i) {
    Promote(UnitOffset(entry.unit) + i * kLineBytes, kLineWordsUsable, now);
  }
}

void Table::WriteHalf(const SegmentSplit::Half& half, DirectoryEntry entry,
                      uint64_t expires_from_ns) {
  uint64_t links[kLinesPerUnit] = {};
  half.ForEachChain([&](uint32_t home, absl::Span<const Chains::Key> keys) {
    links[home] = chains_.Build(keys, entry.generation);
  });
  const uint64_t segment = UnitOffset(entry.unit);
  for (uint32_t i = 0; i < kLinesPerUnit; ++i) {
    Line line = half.lines[i];
    if (links[i] != 0) line.words[kLinkWord] = PackLink(links[i]);
    const uint64_t offset = segment + i * kLineBytes;
    writer_.WriteRecord(
        offset, writer_.NextRecordVersion(offset), entry.generation,
        ByteSpan(reinterpret_cast<const std::byte*>(line.words), sizeof(line.words)));
    clocks_.Set(offset, half.clocks[i]);
  }
  occupied_words_ += half.words() - half.chained.size();
  Segment& counts = segments_[entry.unit];
  counts = {};
  counts.words = static_cast<uint32_t>(half.words());
  counts.keys = half.keys;
  counts.small_items = half.small_items;
  counts.expiring = half.expiring;
  if (half.expiring == 0) return;
  counts.expires_from_ns = expires_from_ns;
  // The sweep may have passed the unit.
  sweep_.passed_from_ns = std::min(sweep_.passed_from_ns, expires_from_ns);
}

void Table::WriteEmptyHalf(DirectoryEntry entry) {
  for (uint32_t i = 0; i < kLinesPerUnit; ++i) {
    LineEditor::Empty(writer_, clocks_, UnitOffset(entry.unit) + i * kLineBytes, entry.generation)
        .Publish();
  }
}

// Readers with an older map find lines of generation 0, and refresh the map.
void Table::Poison(DirectoryEntry old) {
  for (uint32_t i = 0; i < kLinesPerUnit; ++i) {
    const uint64_t offset = UnitOffset(old.unit) + i * kLineBytes;
    occupied_words_ -= UsedWords(LineAt(writer_, offset));
    if (IsMutant(Mutant::kOldLinesNotPoisoned)) continue;
    chains_.Poison(offset);
    LineEditor::Empty(writer_, clocks_, offset, kGenerationNone).Publish();
  }
  segments_[old.unit] = {};
}

// --- Prefetch ---------------------------------------------------------------

void Table::Prefetch(KeyHash hash) const {
  const uint64_t home = UnitOffset(directory_.Peek(hash.bits).unit) + hash.home() * kLineBytes;
  const std::byte* const window = writer_.Bytes(home, kWindowBytes).data();
  for (uint64_t at = 0; at < kWindowBytes; at += kCacheLineBytes) __builtin_prefetch(window + at);
}

void Table::PrefetchItem(KeyHash hash) const {
  if (2 * counts_.inline_keys > counts_.keys) return;
  const Line* const window = WindowAt(writer_, HomeOf(hash));
  for (uint32_t i = 0; i < 2; ++i) {
    // Almost certainly the key's slot. (Next to inline items it may not be a slot at all; a
    // prefetch is harmless.)
    const uint32_t slots = SlotSearch(window[i], hash.fingerprint()).slots();
    if (slots == 0) continue;
    const Slot slot = Slot::Unpack(window[i].words[std::countr_zero(slots)]);
    if (slot.offset > writer_.region_bytes() - sizeof(ItemHeader)) return;
    // The whole item, if it may be written in place and is short.
    const uint64_t bytes = std::min(ReadLengthOf(slot.length_class), kPrefetchedBytesMax);
    const std::byte* const item = writer_.Bytes(slot.offset, sizeof(ItemHeader)).data();
    for (uint64_t at = 0; at < bytes; at += kCacheLineBytes) __builtin_prefetch(item + at, 1);
    __builtin_prefetch(item + bytes - 1, 1);  // items are not aligned to cache lines
    return;
  }
}

// --- Flush -----------------------------------------------------------------

// A cursor is a position in the order in which segments split: hashes by their low bits reversed,
// and within a segment its lines.
//
//   bit 40 … 9: low hash bits, reversed    bit 8 … 1: line    plus 1, so that 0 is the start
//
// A split divides the interval of a segment in two. Every key stays in its line; a chained key may
// move to the line of its home. So a key before the cursor stays before it, or is visited again.
namespace {

constexpr uint32_t ReverseBits(uint32_t bits) {
  bits = (bits >> 1 & 0x55555555) | (bits & 0x55555555) << 1;
  bits = (bits >> 2 & 0x33333333) | (bits & 0x33333333) << 2;
  bits = (bits >> 4 & 0x0f0f0f0f) | (bits & 0x0f0f0f0f) << 4;
  return __builtin_bswap32(bits);
}
static_assert(ReverseBits(1) == 0x80000000 && ReverseBits(0x12345678) == 0x1e6a2c48);

}  // namespace

absl::StatusOr<Table::FlushResult> Table::FlushStep(uint64_t cursor, uint64_t version_bound,
                                                    uint64_t keys_max, absl::Time now) {
  keys_max = std::clamp<uint64_t>(keys_max, 1, kFlushKeysMax);
  const uint64_t from = cursor == 0 ? 0 : cursor - 1;
  uint64_t position = from / kLinesPerUnit;  // 32 bits; more: the end
  uint32_t line = static_cast<uint32_t>(from % kLinesPerUnit);
  FlushResult result;
  absl::Status status;
  const uint64_t looks_end = flush_looks_ + kFlushLooksMax;
  for (uint32_t looked = 0; looked < kFlushLinesMax && flush_looks_ < looks_end; ++looked) {
    if (position > 0xffffffff) return result;
    const DirectoryEntry entry = directory_.At(ReverseBits(static_cast<uint32_t>(position)));
    const uint64_t offset = UnitOffset(entry.unit) + line * kLineBytes;
    if (!FlushLine(offset, version_bound, keys_max, now, result, status)) break;
    if (++line < kLinesPerUnit) continue;
    line = 0;
    const uint64_t interval = uint64_t{1} << (32 - entry.depth);
    position = (position / interval + 1) * interval;
  }
  if (!status.ok()) return status;
  if (position <= 0xffffffff) result.cursor = position * kLinesPerUnit + line + 1;
  return result;
}

// Flushes one line and the chain of its home. False when keys_max are deleted or a delete failed.
bool Table::FlushLine(uint64_t line, uint64_t version_bound, uint64_t keys_max, absl::Time now,
                      FlushResult& result, absl::Status& status) {
  std::string key;
  while (FirstUpTo(line, version_bound, key)) {
    if (result.deleted == keys_max) return false;
    status = Delete(key, {}, now).status;
    if (absl::IsNotFound(status)) {
      status = CheckVersionsLeft(writer_);
      if (status.ok()) continue;  // it had expired, and was removed
    }
    if (!status.ok()) return false;
    ++result.deleted;
  }
  return true;
}

// The first key in a line, or in the chain after it, whose version is at most the bound.
bool Table::FirstUpTo(uint64_t line, uint64_t version_bound, std::string& key) {
  for (uint64_t at = line; at != 0;) {
    const Line& bytes = LineAt(writer_, at);
    for (LineCursor cursor(bytes); cursor.Next();) {
      const LineEntry& entry = cursor.entry();
      if (entry.kind == WordKind::kSlot) items_.Prefetch(Slot::Unpack(entry.head).offset);
    }
    for (LineCursor cursor(bytes); cursor.Next();) {
      const LineEntry& entry = cursor.entry();
      ++flush_looks_;
      if (entry.kind == WordKind::kInline) {
        if (InlineHead::Unpack(entry.head).cas_version > version_bound) continue;
        key.assign(entry.key.data(), entry.key.size());
        return true;
      }
      const StoredItem item = items_.At(Slot::Unpack(entry.head).offset);
      if (item.cas_version > version_bound) continue;
      key.assign(item.key.data(), item.key.size());
      return true;
    }
    at = bytes.words[kLinkWord] == 0 ? 0 : LinkOffset(bytes.words[kLinkWord]);
  }
  return false;
}

}  // namespace osprey::index
