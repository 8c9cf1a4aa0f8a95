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

// The words of a line that may belong to a key. A comparison or two tell most of the others.
class KeyPattern {
 public:
  // `key` is not empty.
  KeyPattern(absl::string_view key, KeyHash hash)
      : slot_(Slot{0, 0, hash.fingerprint()}.Pack()),
        head_(InlineHead{static_cast<uint32_t>(key.size()), 0, 0}.Pack()) {
    if (key.size() >= kWordBytes) {
      std::memcpy(&first_, key.data(), kWordBytes);
    } else {
      std::memcpy(&first_, key.data(), key.size());
      mask_ = (uint64_t{1} << 8 * key.size()) - 1;
    }
  }

  // A slot with the key's fingerprint.
  bool MayBeSlot(uint64_t word) const { return (word ^ slot_) >> kSlotShift == 0; }
  // The head of an inline item with the key's length, and the word after it with the key's begin.
  bool MayBeInline(uint64_t word, uint64_t next_word) const {
    return (word ^ head_) >> kHeadShift == 0 && ((next_word ^ first_) & mask_) == 0;
  }

 private:
  static constexpr int kSlotShift = 46;  // below kind and fingerprint
  static constexpr int kHeadShift = 55;  // below kind and key length

  uint64_t slot_;
  uint64_t head_;
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
// wrote these words.
template <typename OnSlot>
InLine SearchLine(ByteSpan line_bytes, const KeyPattern& pattern, absl::string_view key,
                  InlineItem& item, OnSlot on_slot) {
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
    if (pattern.MayBeInline(word, word_at(at + 1)) &&
        (key.size() <= kWordBytes ||
         std::memcmp(bytes + kWordBytes, key.data() + kWordBytes, key.size() - kWordBytes) == 0)) {
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
