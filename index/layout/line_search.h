// The search for a key in the words of a line.

#ifndef OSPREY_INDEX_LAYOUT_LINE_SEARCH_H_
#define OSPREY_INDEX_LAYOUT_LINE_SEARCH_H_

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "absl/strings/string_view.h"
#include "index/layout/hash.h"
#include "index/layout/layout.h"
#include "index/layout/record.h"
#include "index/layout/test_hooks.h"

namespace osprey::index {

// A slot that a line held, of this key or another: input of the location cache. `line` is the line
// by whose window a reader finds it. For a slot in a window it is the slot's own line, for a
// chained one the home.
struct SlotSeen {
  uint64_t line;
  uint64_t slot;
};

// The longest key that a writer stores inline.
inline constexpr uint64_t kInlineKeyBytesMax = (kInlineWordsMax - 1) * kWordBytes;

// The words of a line that may belong to a key. Two comparisons exclude nearly all others.
class KeyPattern {
 public:
  // A key that is empty, or too long to be inline, matches no inline item.
  KeyPattern(absl::string_view key, KeyHash hash)
      : slot_front_(Slot{0, 0, hash.fingerprint()}.Pack() >> kSlotShift),
        head_front_(!key.empty() && key.size() <= kInlineKeyBytesMax
                        ? InlineHead{static_cast<uint32_t>(key.size()), 0, 0}.Pack() >> kHeadShift
                        : 0) {
    if (key.size() >= kWordBytes) {
      std::memcpy(&first_, key.data(), kWordBytes);
    } else {
      if (!key.empty()) std::memcpy(&first_, key.data(), key.size());
      mask_ = (uint64_t{1} << 8 * key.size()) - 1;
    }
  }

  // A slot with the key's fingerprint.
  bool MayBeSlot(uint64_t word) const { return word >> kSlotShift == slot_front_; }
  // The head of an inline item with the key's length, and the word after it with the key's begin.
  bool MayBeInline(uint64_t word, uint64_t next_word) const {
    return word >> kHeadShift == head_front_ && (next_word & mask_) == first_;
  }
  // Whether the item of such a head has this key. `key` is the constructor's, `bytes` the item's
  // bytes after the head, at least key.size() of them.
  static bool HoldsRest(const void* bytes, absl::string_view key) {
    return key.size() <= kWordBytes ||
           std::memcmp(static_cast<const char*>(bytes) + kWordBytes, key.data() + kWordBytes,
                       key.size() - kWordBytes) == 0;
  }

 private:
  // The bits of a word from these on hold its kind, and the fingerprint or the key's length.
  static constexpr int kSlotShift = 46;
  static constexpr int kHeadShift = 55;
  static_assert(Slot{0, 0, 65535}.Pack() >> kSlotShift == (1u << 16 | 65535));
  static_assert(InlineHead{127, 0, 0}.Pack() >> kHeadShift == (3u << 7 | 127));

  uint64_t slot_front_;
  uint64_t head_front_;  // 0, which no inline item has: none matches
  uint64_t first_ = 0;
  uint64_t mask_ = ~uint64_t{0};
};

// The result of the search for a key in a line.
enum class InLine { kNothing, kKey, kNonsense };

// An inline item, within the line's bytes.
struct InlineItem {
  ByteSpan value;
  uint64_t cas_version = 0;
};

// Searches the words of one line, a private copy, and never reads outside them. kKey: the line has
// the key inline, as `item`. Calls on_slot(word) for each slot before that. kNonsense: no writer
// wrote these words. (Inlined: it is in the middle of most GETs.)
template <typename OnSlot>
[[gnu::always_inline]] inline InLine SearchLine(ByteSpan line_bytes, const KeyPattern& pattern,
                                                absl::string_view key, InlineItem& item,
                                                OnSlot on_slot) {
  const std::byte* const words = line_bytes.data() + offsetof(Line, words);
  const auto word_at = [&](uint32_t at) {
    uint64_t word;
    std::memcpy(&word, words + at * kWordBytes, sizeof(word));
    return word;
  };
  for (uint32_t at = 0; at < kLineWordsUsable;) {
    const uint64_t word = word_at(at);
    if (word == 0) break;  // no gaps: the rest is empty
    if (KindOf(word) == WordKind::kSlot) {
      on_slot(word);
      ++at;
      continue;
    }
    const InlineHead head = InlineHead::Unpack(word);
    const uint32_t end = at + head.words();
    if (KindOf(word) != WordKind::kInline || end > kLineWordsUsable) return InLine::kNonsense;
    const std::byte* const bytes = words + (at + 1) * kWordBytes;
    // (The last word is the link's, but may be read.)
    if (pattern.MayBeInline(word, word_at(at + 1)) && KeyPattern::HoldsRest(bytes, key)) {
      item = {ByteSpan(bytes + key.size(), head.value_length), head.cas_version};
      return InLine::kKey;
    }
    at = end;
  }
  return InLine::kNothing;
}

// Whether line 0 or 1 of a window belongs to the segment of that window.
inline bool IsOfGeneration(ByteSpan line_bytes, [[maybe_unused]] uint32_t number,
                           uint32_t generation) {
  if (IsMutant(Mutant::kGenerationUnchecked)) return true;
  if (IsMutant(Mutant::kGenerationOfOneLine) && number == 1) return true;
  return HeaderOf(line_bytes).tag == generation;
}

}  // namespace osprey::index

#endif  // OSPREY_INDEX_LAYOUT_LINE_SEARCH_H_
