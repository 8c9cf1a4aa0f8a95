#include "index/writer/grower.h"

#include <algorithm>
#include <cassert>

#include "index/layout/test_hooks.h"

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

constexpr uint32_t Percent(uint32_t words) {
  return words * 100 / (kLinesPerUnit * kLineWordsUsable);
}

}  // namespace

Grower::Grower(Keys& keys, Placement& placement, Expirer& expirer, Evictor& evictor, Table& table)
    : keys_(keys),
      placement_(placement),
      expirer_(expirer),
      evictor_(evictor),
      table_(table),
      split_(keys.writer, keys.items, keys.clocks, keys.options.hash_seed),
      segments_of_depth_(kDirectoryDepthMax + 1) {}

uint64_t Grower::segments() const {
  uint64_t segments = 0;
  for (const uint64_t of_depth : segments_of_depth_) segments += of_depth;
  return segments;
}

DirectoryEntry Grower::NewSegment(uint32_t depth) {
  const absl::optional<uint64_t> unit = keys_.space.TakeUnit();
  assert(unit.has_value());
  DirectoryEntry entry;
  entry.unit = keys_.UnitOf(*unit);
  entry.depth = depth;
  entry.generation = IsMutant(Mutant::kGenerationKeptOnReuse) ? 1 + entry.unit : ++generation_;
  if (keys_.segments.size() <= entry.unit) keys_.segments.resize(entry.unit + 1);
  keys_.segments[entry.unit] = {};
  ++segments_of_depth_[depth];
  return entry;
}

void Grower::LayOut() {
  const DirectoryEntry only = NewSegment(0);
  for (uint32_t i = 0; i < kLinesPerUnit; ++i) {
    LineEditor::Empty(keys_.writer, keys_.clocks, keys_.UnitOffset(only.unit) + i * kLineBytes,
                      only.generation)
        .Publish();
  }
  keys_.directory.LayOut(only);
}

// Called after a write that may have filled the key's segment.
void Grower::NoteLoad(const Location& at) {
  SegmentState& segment = keys_.segments[keys_.UnitOf(at.home)];
  if (segment.wants_split) return;
  const uint32_t percent = Percent(segment.words);
  const bool full = percent >= keys_.options.split_percent;
  const bool cramped =
      percent >= kCrampedPercent &&
      segment.small_items * 100 >= segment.keys * keys_.options.small_items_percent;
  if (!full && !cramped &&
      (percent < kCrowdedPercent || keys_.chains.LengthOf(at.home) < kLongChainLines))
    return;
  segment.wants_split = true;
  wants_split_.push_back(static_cast<uint32_t>(at.hash.bits));
}

bool Grower::MayDouble() const {
  if (!keys_.directory.may_double()) return false;
  uint32_t shallowest = 0;
  while (segments_of_depth_[shallowest] == 0) ++shallowest;
  return keys_.directory.depth() - shallowest < kDepthSpreadMax;
}

bool Grower::Step(absl::Time now) {
  if (!Wanted()) return false;
  if (!keys_.writer.CasVersionsLeft(kCasVersionsPerStepMax)) return false;
  if (keys_.directory.doubling()) {
    keys_.directory.DoubleStep();
  } else if (!wants_split_.empty()) {
    const uint32_t hash_bits = wants_split_.front();
    const DirectoryEntry entry = keys_.directory.At(hash_bits);
    SegmentState& segment = keys_.segments[entry.unit];
    const bool emptied =
        Percent(segment.words) < std::min(kCrowdedPercent, keys_.options.split_percent);
    if (!emptied && entry.depth < keys_.directory.depth()) {
      if (!Split(hash_bits, entry, now) && !evictor_.ThinOut(entry.unit, now)) return false;
      wants_split_.pop_front();
    } else if (!emptied && MayDouble()) {
      keys_.directory.DoubleStep();
    } else {
      // A later write notes it again, when other segments may have become deeper.
      segment.wants_split = false;
      wants_split_.pop_front();
    }
  }
  return Wanted();
}

// Does the whole split in one step: nothing else is written between the first copy and the last
// rewrite. If there is no space it returns false and changes nothing.
bool Grower::Split(uint32_t hash_bits, DirectoryEntry old, absl::Time now) {
  if (keys_.space.units_left() < 2) return false;
  split_.Read(keys_.UnitOffset(old.unit), old.depth);
  const SegmentSplit::Half& low_half = split_.half(0);
  const SegmentSplit::Half& high_half = split_.half(1);
  const SegmentState& known = keys_.segments[old.unit];
  assert(known.keys == low_half.keys + high_half.keys);
  assert(known.words == low_half.words() + high_half.words());
  assert(known.small_items == low_half.small_items + high_half.small_items);
  if (!keys_.chains.Reserve(low_half.chain_lines() + high_half.chain_lines())) return false;
  if (keys_.space.units_left() < 2) return false;
  // A version that none of the records that this step rewrites has.
  keys_.writer.NextCasVersion();
  const DirectoryEntry low = NewSegment(old.depth + 1);
  const DirectoryEntry high = NewSegment(old.depth + 1);
  if (IsMutant(Mutant::kDirectoryBeforeCopy)) {
    WriteEmptyHalf(low);
    WriteEmptyHalf(high);
    keys_.directory.Split(hash_bits, low, high);
  }
  const uint64_t expires_from_ns = expirer_.TakeSegment(old.unit);
  WriteHalf(low_half, low, expires_from_ns);
  WriteHalf(high_half, high, expires_from_ns);
  ObserveCopiedHalves(table_);
  keys_.directory.Split(hash_bits, low, high);
  Poison(old);
  --segments_of_depth_[old.depth];
  keys_.space.FreeUnit(keys_.UnitOffset(old.unit));
  ++keys_.counts.splits;
  // Small items fit inline now. These are separate writes, after the split.
  if (low_half.small_items > 0) PromoteIn(low, now);
  if (high_half.small_items > 0) PromoteIn(high, now);
  return true;
}

void Grower::PromoteIn(DirectoryEntry entry, absl::Time now) {
  for (uint32_t i = 0; i < kLinesPerUnit; ++i) {
    placement_.Promote(keys_.UnitOffset(entry.unit) + i * kLineBytes, kLineWordsUsable, now);
  }
}

void Grower::WriteHalf(const SegmentSplit::Half& half, DirectoryEntry entry,
                       uint64_t expires_from_ns) {
  uint64_t links[kLinesPerUnit] = {};
  half.ForEachChain([&](uint32_t home, absl::Span<const Chains::Key> keys) {
    links[home] = keys_.chains.Build(keys, entry.generation);
  });
  const uint64_t segment = keys_.UnitOffset(entry.unit);
  for (uint32_t i = 0; i < kLinesPerUnit; ++i) {
    Line line = half.lines[i];
    if (links[i] != 0) line.words[kLinkWord] = PackLink(links[i]);
    const uint64_t offset = segment + i * kLineBytes;
    keys_.writer.WriteRecord(
        offset, keys_.writer.NextRecordVersion(offset), entry.generation,
        ByteSpan(reinterpret_cast<const std::byte*>(line.words), sizeof(line.words)));
    keys_.clocks.Set(offset, half.clocks[i]);
  }
  keys_.occupied_words += half.words() - half.chained.size();
  SegmentState& counts = keys_.segments[entry.unit];
  counts = {};
  counts.words = static_cast<uint32_t>(half.words());
  counts.keys = half.keys;
  counts.small_items = half.small_items;
  counts.expiring = half.expiring;
  if (half.expiring == 0) return;
  counts.expires_from_ns = expires_from_ns;
  expirer_.NoteHalf(expires_from_ns);
}

void Grower::WriteEmptyHalf(DirectoryEntry entry) {
  for (uint32_t i = 0; i < kLinesPerUnit; ++i) {
    LineEditor::Empty(keys_.writer, keys_.clocks, keys_.UnitOffset(entry.unit) + i * kLineBytes,
                      entry.generation)
        .Publish();
  }
}

// Readers with an older map find lines of generation 0, and refresh the map.
void Grower::Poison(DirectoryEntry old) {
  for (uint32_t i = 0; i < kLinesPerUnit; ++i) {
    const uint64_t offset = keys_.UnitOffset(old.unit) + i * kLineBytes;
    keys_.occupied_words -= UsedWords(LineAt(keys_.writer, offset));
    if (IsMutant(Mutant::kOldLinesNotPoisoned)) continue;
    keys_.chains.Poison(offset);
    LineEditor::Empty(keys_.writer, keys_.clocks, offset, kGenerationNone).Publish();
  }
  keys_.segments[old.unit] = {};
}

}  // namespace osprey::index
