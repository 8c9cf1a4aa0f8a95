#include "index/segments/segment_merge.h"

#include <algorithm>

#include "absl/strings/string_view.h"
#include "index/layout/hash.h"
#include "index/segments/line_view.h"

namespace osprey::index {

bool SegmentMerge::Merge(uint64_t low_segment, uint64_t high_segment) {
  image_.Clear();
  entries_.clear();
  Collect(low_segment);
  Collect(high_segment);
  by_home_.resize(kHomesPerSegment);
  for (std::vector<SegmentEntry>& entries : by_home_) entries.clear();
  for (size_t i = 0; i < entries_.size(); ++i) {
    if (i + kSegmentPrefetchDistance < entries_.size())
      PrefetchItemOf(writer_, items_, entries_[i + kSegmentPrefetchDistance]);
    by_home_[HomeOf(entries_[i])].push_back(entries_[i]);
  }
  too_long_.clear();
  for (uint32_t home = 0; home < kHomesPerSegment; ++home) Place(home);
  return too_long_.empty();
}

void SegmentMerge::Copy(uint64_t segment) {
  image_.Clear();
  entries_.clear();
  Collect(segment);
  for (const SegmentEntry& entry : entries_) {
    if (entry.chained) {
      image_.PlaceChained(writer_, entry);
    } else {
      image_.Place(writer_, entry, entry.line);
    }
  }
}

void SegmentMerge::Collect(uint64_t segment) {
  ForEachEntry(writer_, clocks_, segment,
               [this](const SegmentEntry& entry) { entries_.push_back(entry); });
}

void SegmentMerge::Place(uint32_t home) {
  std::vector<SegmentEntry>& entries = by_home_[home];
  std::stable_sort(entries.begin(), entries.end(),
                   [](const SegmentEntry& a, const SegmentEntry& b) { return a.words > b.words; });
  for (SegmentEntry& entry : entries) {
    if (entry.words <= image_.free(home)) {
      image_.Place(writer_, entry, home);
    } else if (entry.words <= image_.free(home + 1)) {
      image_.Place(writer_, entry, home + 1);
    } else if (KindOf(writer_.Word(entry.words_at)) == WordKind::kSlot) {
      entry.line = home;
      image_.PlaceChained(writer_, entry);
    } else {
      too_long_.push_back(InlineKeyAt(writer_, entry.words_at));
    }
  }
}

uint32_t SegmentMerge::HomeOf(const SegmentEntry& entry) const {
  if (entry.chained) return entry.line;
  const uint64_t head = writer_.Word(entry.words_at);
  const absl::string_view key = KindOf(head) == WordKind::kSlot
                                    ? items_.At(Slot::Unpack(head).offset).key
                                    : InlineKeyAt(writer_, entry.words_at);
  return HashKey(key, hash_seed_).home();
}

}  // namespace osprey::index
