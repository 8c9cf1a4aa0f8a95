#include "index/writer/merger.h"

#include <algorithm>
#include <cassert>
#include <string>
#include <vector>

#include "index/layout/hash.h"
#include "index/layout/test_hooks.h"
#include "index/segments/segment_order.h"

namespace osprey::index {
namespace {

// Two segments merge if their keys fill at most this part, in percent, of what one holds before it
// splits.
constexpr uint32_t kMergedPercentMax = 50;
// While pages are short.
constexpr uint32_t kMergedPercentMaxIfShort = 90;
// While they are short, a pass begins at most so often.
constexpr absl::Duration kShortPassPeriod() { return absl::Seconds(1); }

// Keys that one merge turns into items: less than a tenth of a unit.
constexpr size_t kDemotionsPerMergeMax = 64;

// Segments that one step looks at: some microseconds.
constexpr uint32_t kLooksPerStep = 256;

}  // namespace

Merger::Merger(Keys& keys, Placement& placement, Expirer& expirer, Segments& segments)
    : keys_(keys),
      placement_(placement),
      expirer_(expirer),
      segments_(segments),
      merge_(keys.writer, keys.items, keys.clocks, keys.options.hash_seed) {}

uint32_t Merger::PercentMax() const {
  if (MergingForced()) return 100;
  const uint32_t percent = IsShort() ? kMergedPercentMaxIfShort : kMergedPercentMax;
  return percent * keys_.options.split_percent / 100;
}

bool Merger::MayStart(absl::Time now) const {
  if (SegmentMovesForced()) return true;
  if (segments_.count() == 1) return false;
  const uint64_t words = Segments::Words(segments_.count());
  if (MergingForced() || words_most_ - keys_.occupied_words >= words / kFreedShareInverse)
    return true;
  return keys_.occupied_words * 100 < words * PercentMax() && now >= short_pass_from_;
}

bool Merger::Step(absl::Time now) {
  if (!Wanted(now) || keys_.directory.doubling()) return false;
  if (!keys_.writer.CasVersionsLeft(kCasVersionsPerReplaceMax)) return false;
  // Some segment or other.
  if (SegmentMovesForced())
    MoveSegment(static_cast<uint32_t>(keys_.writer.cas_version() * 2654435761));
  if (!passing_) {
    passing_ = true;
    merged_ = false;
    position_ = 0;
  }
  const uint32_t depth = keys_.directory.depth();
  const uint32_t percent_max = PercentMax();
  for (uint32_t looked = 0; looked < kLooksPerStep; ++looked) {
    if (position_ >= kSegmentPositionEnd) return EndPass(now), passing_;
    const uint32_t hash_bits = ReverseBits(static_cast<uint32_t>(position_));
    const DirectoryEntry low = keys_.directory.At(hash_bits);
    const uint64_t interval = SegmentInterval(low.depth);
    if (low.depth == 0) return EndPass(now), passing_;
    const uint64_t bit = uint64_t{1} << (low.depth - 1);
    const DirectoryEntry high = keys_.directory.At(hash_bits | bit);
    const SegmentState& of_low = keys_.segments[low.unit];
    const SegmentState& of_high = keys_.segments[high.unit];
    const bool may_merge =
        (hash_bits & bit) == 0 && high.depth == low.depth &&
        depth - (low.depth - 1) <= kDepthSpreadMax && !of_low.wants_split && !of_high.wants_split &&
        (of_low.words + of_high.words) * uint64_t{100} <= Segments::Words(1) * percent_max;
    if (may_merge && MergeAt(hash_bits, low, high, now)) {
      merged_ = true;
      while (segments_.OfDepth(keys_.directory.depth()) == 0) keys_.directory.Halve();
      // The result may be the second half of a pair whose first half was passed.
      const uint64_t outer = 4 * interval;
      const uint64_t first = position_ / outer * outer;
      if (low.depth > 1 &&
          keys_.directory.At(ReverseBits(static_cast<uint32_t>(first))).depth == low.depth - 1) {
        position_ = first;
      }
      return true;
    }
    position_ = (position_ / interval + 1) * interval;
  }
  return true;
}

void Merger::EndPass(absl::Time now) {
  passing_ = merged_;
  merged_ = false;
  position_ = 0;
  words_most_ = keys_.occupied_words;
  short_pass_from_ = now + kShortPassPeriod();
}

// Lays out the merged segment. Keys that are too long for their windows become items first.
bool Merger::LayOut(DirectoryEntry low, DirectoryEntry high, absl::Time now) {
  const uint64_t segments[] = {keys_.UnitOffset(low.unit), keys_.UnitOffset(high.unit)};
  if (!merge_.Merge(segments[0], segments[1])) {
    if (merge_.too_long().size() > kDemotionsPerMergeMax) return false;
    const std::vector<std::string> too_long(merge_.too_long().begin(), merge_.too_long().end());
    for (const std::string& key : too_long) {
      const Location at = keys_.Locate(key);
      if (!placement_.DemoteEntry(at.line, at.entry, now)) return false;
    }
    if (!merge_.Merge(segments[0], segments[1])) return false;
  }
  return merge_.image().chains_fit() && FitPending(low, high);
}

// Whether the merged chains have room for the keys that pending writes may add.
bool Merger::FitPending(DirectoryEntry low, DirectoryEntry high) {
  if (keys_.pending.places() == 0) return true;
  std::vector<uint64_t> awaited(kHomesPerSegment);
  keys_.pending.ForEachPlace([&](KeyHash hash) {
    const uint32_t unit = keys_.directory.At(hash.bits).unit;
    awaited[hash.home()] += unit == low.unit || unit == high.unit;
  });
  constexpr uint64_t kChainWords = kChainLinesMax * kLineWordsUsable;
  bool fit = *std::max_element(awaited.begin(), awaited.end()) <= kChainWords;
  merge_.image().ForEachChain([&](uint32_t home, absl::Span<const Chains::Key> chain) {
    fit &= chain.size() + awaited[home] <= kChainWords;
  });
  return fit;
}

bool Merger::MergeAt(uint32_t hash_bits, DirectoryEntry low, DirectoryEntry high, absl::Time now) {
  if (!LayOut(low, high, now)) return false;
  const SegmentState& of_low = keys_.segments[low.unit];
  const SegmentState& of_high = keys_.segments[high.unit];
  SegmentImage& image = merge_.image();
  image.keys = of_low.keys + of_high.keys;
  image.small_items = of_low.small_items + of_high.small_items;
  image.expiring = of_low.expiring + of_high.expiring;
  image.expires_from_ns = std::min(expirer_.ExpiresFrom(low.unit), expirer_.ExpiresFrom(high.unit));
  assert(image.words() == of_low.words + of_high.words);
  const DirectoryEntry ended[] = {low, high};
  Segments::Begun merged{&image, hash_bits, low.depth - 1, {}};
  if (!segments_.Replace(ended, {&merged, 1})) return false;
  keys_.space.GiveBackSpares();
  ++keys_.counts.merges;
  return true;
}

bool Merger::MoveUnit(uint64_t unit) {
  if (keys_.directory.doubling()) return false;
  if (!keys_.writer.CasVersionsLeft(kCasVersionsPerReplaceMax)) return false;
  if (keys_.space.IsSpare(unit)) return keys_.space.VacateSpare(unit);
  if (!keys_.chains.IsUnit(unit)) return MoveSegment(keys_.segments[keys_.UnitOf(unit)].hash_bits);
  const absl::optional<uint64_t> slot = keys_.chains.Vacate(unit);
  if (!slot.has_value()) return false;
  const absl::string_view key = keys_.items.At(Slot::Unpack(*slot).offset).key;
  return MoveSegment(static_cast<uint32_t>(keys_.Hashed(key).hash.bits));
}

bool Merger::MoveSegment(uint32_t hash_bits) {
  const DirectoryEntry old = keys_.directory.At(hash_bits);
  merge_.Copy(keys_.UnitOffset(old.unit));
  SegmentImage& image = merge_.image();
  const SegmentState known = keys_.segments[old.unit];
  image.keys = known.keys;
  image.small_items = known.small_items;
  image.expiring = known.expiring;
  image.expires_from_ns = expirer_.ExpiresFrom(old.unit);
  Segments::Begun moved{&image, hash_bits, old.depth, {}};
  if (!segments_.Replace({&old, 1}, {&moved, 1})) return false;
  keys_.segments[moved.entry.unit].wants_split = known.wants_split;
  ++keys_.counts.segment_moves;
  return true;
}

}  // namespace osprey::index
