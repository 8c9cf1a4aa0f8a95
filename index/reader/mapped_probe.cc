#include "index/reader/mapped_probe.h"

#include <algorithm>
#include <cassert>
#include <cstddef>
#include <cstring>

#include "index/layout/atomic_word.h"
#include "index/layout/item.h"
#include "index/layout/line.h"
#include "index/layout/record.h"
#include "index/layout/test_hooks.h"
#include "index/reader/inline_probe.h"

namespace osprey::index {

namespace {

// The first word after an inline item's head.
struct KeyBegin {
  uint64_t bits = 0;
  uint64_t mask = ~uint64_t{0};

  explicit KeyBegin(absl::string_view key) {
    std::memcpy(&bits, key.data(), std::min<size_t>(key.size(), kWordBytes));
    if (key.size() < kWordBytes) mask = (uint64_t{1} << 8 * key.size()) - 1;
  }
};

}  // namespace

bool MappedProbe::Look(const std::byte* window_in_place, const DirectoryCache& map,
                       const DirectoryCache::Window& window, KeyHash hash, absl::string_view key,
                       uint32_t read_bytes_max) {
  assert(read_bytes_max >= kLineBytes);
  read_.length = 0;
  if (window.generation == kGenerationNone) return false;
  generation_ = window.generation;
  const KeyBegin begin(key);
  for (line_ = 0; line_ < 2; ++line_) {
    const uint64_t line = line_ * kLineBytes;
    const std::byte* const words = window_in_place + line + offsetof(Line, words);
    for (uint32_t at = 0; at < kLineWordsUsable;) {
      const uint64_t word = GlimpseOf(words + at * kWordBytes);
      if (KindOf(word) == WordKind::kSlot) {
        if (Slot::Unpack(word).fingerprint == hash.fingerprint())
          return SeeSlot(word, map, read_bytes_max);
        ++at;
        continue;
      }
      if (KindOf(word) != WordKind::kInline) break;  // no gaps: the rest is empty
      const InlineHead head = InlineHead::Unpack(word);
      // (The last word is the link's, but may be read.)
      const uint64_t first = GlimpseOf(words + (at + 1) * kWordBytes);
      if (head.key_length == key.size() && ((first ^ begin.bits) & begin.mask) == 0)
        return See(window.offset + line, kLineBytes, /*is_item=*/false);
      at += head.words();
    }
  }
  return false;
}

// The slot comes from remote bytes. It is checked here, before the READ of its place.
bool MappedProbe::SeeSlot(uint64_t word, const DirectoryCache& map, uint32_t read_bytes_max) {
  const Slot slot = Slot::Unpack(word);
  const uint64_t length = std::max(ReadLengthOf(slot.length_class), sizeof(ItemHeader));
  if (slot.has_expiry || length > read_bytes_max || !map.Contains(slot.offset, length))
    return false;
  return See(slot.offset, length, /*is_item=*/true);
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
  LineCursor cursor(bytes);
  while (cursor.Next()) {
    if (!cursor.HoldsInline(key)) continue;
    const bool believed = IsOfGeneration(bytes, line_, generation_) && RecordIsWhole(bytes, place);
    if (!believed && !IsMutant(Mutant::kMappedProbeTrusted)) return {};
    return {true, cursor.value(), InlineHead::Unpack(cursor.head()).cas_version};
  }
  return {};
}

}  // namespace osprey::index
