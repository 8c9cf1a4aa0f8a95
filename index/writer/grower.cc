#include "index/writer/grower.h"

#include <algorithm>
#include <cassert>

#include "index/layout/test_hooks.h"
#include "index/segments/segment_order.h"

namespace osprey::index {
namespace {

// A chain of so many lines is unlikely by chance. Its segment splits early, unless it is so empty
// that a split would not help: then the keys were chosen to collide.
constexpr uint32_t kLongChainLines = 2;
constexpr uint32_t kCrowdedPercent = 25;

// Below this load small items fitted inline when they were written, or will fit when their lines
// are written.
constexpr uint32_t kCrampedPercent = 60;

constexpr uint32_t Percent(uint32_t words) {
  return static_cast<uint32_t>(words * 100 / Segments::Words(1));
}

}  // namespace

Grower::Grower(Keys& keys, Placement& placement, Expirer& expirer, Evictor& evictor,
               Segments& segments)
    : keys_(keys),
      placement_(placement),
      expirer_(expirer),
      evictor_(evictor),
      segments_(segments),
      split_(keys.writer, keys.items, keys.clocks, keys.options.hash_seed) {}

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
  return keys_.directory.may_double() &&
         keys_.directory.depth() - segments_.ShallowestDepth() < kDepthSpreadMax;
}

bool Grower::Step(absl::Time now) {
  if (!Wanted()) return false;
  if (!keys_.writer.CasVersionsLeft(kCasVersionsPerReplaceMax)) return false;
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

// Splits the segment of such keys, whatever it has. False: there is no space.
bool Grower::Deepen(uint32_t hash_bits, absl::Time now) {
  if (!keys_.writer.CasVersionsLeft(kCasVersionsPerReplaceMax)) return false;
  const DirectoryEntry entry = keys_.directory.At(hash_bits);
  if (entry.depth == keys_.directory.depth()) {
    if (!keys_.directory.doubling() && !MayDouble()) return false;
    do keys_.directory.DoubleStep();
    while (keys_.directory.doubling());
  }
  return Split(hash_bits, entry, now);
}

// Each key takes a word, or more. The keys of a segment vary, so with the mean just above its words some
// have not split: a twentieth more is enough for all.
uint32_t Grower::DepthOf(uint64_t keys) {
  constexpr uint64_t kEnough = Segments::Words(1) * 100 / 95;
  uint32_t depth = 0;
  while (depth < kDirectoryDepthMax && keys > kEnough << depth) ++depth;
  return depth;
}

// Level by level, so that depths differ little.
void Grower::GrowTo(KeyHash hash, const SegmentDepths& depths, absl::Time now) {
  while (segments_.ShallowestDepth() < depths.shallowest) {
    const uint32_t depth = segments_.ShallowestDepth();
    for (uint64_t position = 0; position < kSegmentPositionEnd;) {
      const uint32_t bits = ReverseBits(static_cast<uint32_t>(position));
      const uint32_t own = keys_.directory.At(bits).depth;
      if (own == depth && !Deepen(bits, now)) return;
      position += SegmentInterval(own);
    }
  }
  const auto bits = static_cast<uint32_t>(hash.bits);
  while (keys_.directory.At(bits).depth < depths.own) {
    if (!Deepen(bits, now)) return;
  }
}

// If there is no space it returns false and changes nothing.
bool Grower::Split(uint32_t hash_bits, DirectoryEntry old, absl::Time now) {
  if (keys_.space.replacements_left() < 2) return false;
  split_.Read(keys_.UnitOffset(old.unit), old.depth);
  SegmentImage& low = split_.half(0);
  SegmentImage& high = split_.half(1);
  const SegmentState& known = keys_.segments[old.unit];
  assert(known.keys == low.keys + high.keys);
  assert(known.words == low.words() + high.words());
  assert(known.small_items == low.small_items + high.small_items);
  low.expires_from_ns = high.expires_from_ns = expirer_.ExpiresFrom(old.unit);
  const uint32_t bit = 1u << old.depth;
  Segments::Begun halves[] = {{&low, hash_bits & ~bit, old.depth + 1, {}},
                              {&high, hash_bits | bit, old.depth + 1, {}}};
  if (!segments_.Replace({&old, 1}, absl::MakeSpan(halves))) return false;
  ++keys_.counts.splits;
  // Small items fit inline now. These are separate writes, after the split.
  for (const Segments::Begun& half : halves) {
    if (half.image->small_items > 0) PromoteIn(half.entry, now);
  }
  return true;
}

void Grower::PromoteIn(DirectoryEntry entry, absl::Time now) {
  for (uint32_t i = 0; i < kLinesPerUnit; ++i) {
    placement_.Promote(keys_.UnitOffset(entry.unit) + i * kLineBytes, kLineWordsUsable, now);
  }
}

}  // namespace osprey::index
