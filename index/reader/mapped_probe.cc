#include "index/reader/mapped_probe.h"

#include <algorithm>
#include <cassert>
#include <cstddef>

#include "index/layout/atomic_word.h"
#include "index/layout/item.h"
#include "index/layout/line.h"
#include "index/layout/line_search.h"
#include "index/layout/record.h"
#include "index/layout/test_hooks.h"

namespace osprey::index {

bool MappedProbe::Look(const std::byte* window_in_place, const DirectoryCache& map,
                       const DirectoryCache::Window& window, KeyHash hash, absl::string_view key,
                       uint32_t read_bytes_max) {
  assert(read_bytes_max >= kLineBytes);
  read_.length = 0;
  if (window.generation == kGenerationNone) return false;
  generation_ = window.generation;
  const KeyPattern pattern(key, hash);
  for (line_ = 0; line_ < 2; ++line_) {
    const uint64_t line = line_ * kLineBytes;
    const std::byte* const words = window_in_place + line + offsetof(Line, words);
    for (uint32_t at = 0; at < kLineWordsUsable;) {
      const uint64_t word = GlimpseOf(words + at * kWordBytes);
      if (KindOf(word) == WordKind::kSlot) {
        if (pattern.MayBeSlot(word)) return SeeSlot(word, map, read_bytes_max);
        ++at;
        continue;
      }
      if (KindOf(word) != WordKind::kInline) break;  // no gaps: the rest is empty
      // (The last word is the link's, but may be read.)
      if (pattern.MayBeInline(word, GlimpseOf(words + (at + 1) * kWordBytes)))
        return See(window.offset + line, kLineBytes, /*is_item=*/false);
      at += InlineHead::Unpack(word).words();
    }
  }
  return false;
}

// The slot comes from remote bytes. It is checked here, before the READ of its place.
bool MappedProbe::SeeSlot(uint64_t word, const DirectoryCache& map, uint32_t read_bytes_max) {
  const Slot slot = Slot::Unpack(word);
  const ReadSpan item = map.ItemSpan(word);
  const bool inside = item.length != 0 && item.length >= ReadLengthOf(slot.length_class);
  if (!inside || slot.has_expiry || item.length > read_bytes_max) return false;
  return See(item.offset, item.length, /*is_item=*/true);
}

MappedProbe::Found MappedProbe::Judge(ByteSpan bytes, uint64_t incarnation,
                                      absl::string_view key) const {
  assert(seen() && bytes.size() == read_.length);
  const RecordPlace place = {read_.offset, incarnation};
  if (is_item_) {
    const ItemReading item = ReadItem(bytes, place, key);
    if (item.verdict != ItemVerdict::kLive || item.expiry_ns != 0) return {};
    return {true, item.value, item.cas_version};
  }
  InlineItem item;
  // (Its slots, of whatever fingerprint, are of no interest.)
  if (SearchLine(bytes, KeyPattern(key, KeyHash()), key, item, [](uint64_t) {}) != InLine::kKey)
    return {};
  const bool believed = IsOfGeneration(bytes, line_, generation_) && RecordIsWhole(bytes, place);
  if (!believed && !IsMutant(Mutant::kMappedProbeTrusted)) return {};
  return {true, item.value, item.cas_version};
}

}  // namespace osprey::index
