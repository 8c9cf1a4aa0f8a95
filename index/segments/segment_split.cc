#include "index/segments/segment_split.h"

#include "absl/strings/string_view.h"
#include "index/layout/hash.h"
#include "index/segments/line_view.h"

namespace osprey::index {
void SegmentSplit::Read(uint64_t segment, uint32_t depth) {
  entries_.clear();
  for (SegmentImage& half : halves_) half.Clear();
  ForEachEntry(writer_, clocks_, segment,
               [this](const SegmentEntry& entry) { entries_.push_back(entry); });
  for (size_t i = 0; i < entries_.size(); ++i) {
    if (i + kSegmentPrefetchDistance < entries_.size())
      PrefetchItemOf(writer_, items_, entries_[i + kSegmentPrefetchDistance]);
    SegmentImage& half = HalfOf(entries_[i], depth);
    if (entries_[i].chained) {
      half.PlaceChained(writer_, entries_[i]);
    } else {
      half.Place(writer_, entries_[i], entries_[i].line);
    }
  }
}

// The key, possibly in an item, determines its half.
SegmentImage& SegmentSplit::HalfOf(const SegmentEntry& entry, uint32_t depth) {
  const uint64_t head = writer_.Word(entry.words_at);
  absl::string_view key;
  bool small_item = false;
  bool expires = false;
  if (KindOf(head) == WordKind::kSlot) {
    const StoredItem item = items_.At(Slot::Unpack(head).offset);
    key = item.key;
    expires = item.expiry_ns != 0;
    small_item = !expires && MayBeInline(item.key, item.value);
  } else {
    key = InlineKeyAt(writer_, entry.words_at);
  }
  SegmentImage& half = halves_[HashKey(key, hash_seed_).bits >> depth & 1];
  ++half.keys;
  half.small_items += small_item;
  half.expiring += expires;
  return half;
}

}  // namespace osprey::index
