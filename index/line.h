// What the words of a line mean. Used by the reader on copies of remote bytes and by the writer on
// its own.

#ifndef OSPREY_INDEX_LINE_H_
#define OSPREY_INDEX_LINE_H_

#include <cstdint>

#include "absl/strings/string_view.h"
#include "index/layout.h"

namespace osprey::index {

// One key's place in a line: a slot, or an inline item.
struct LineEntry {
  WordKind kind = WordKind::kEmpty;
  uint32_t at = 0;        // its first word
  uint32_t words = 0;     // how many it takes
  uint64_t head = 0;      // the first word itself
  absl::string_view key;  // inline items only: within the line
  ByteSpan value;         // likewise
};

// Walks the entries of a line:
//
//   LineCursor cursor(line);
//   while (cursor.Next()) … cursor.entry() …
//   if (cursor.malformed()) … these are no words that a writer wrote …
//
// Never reads outside the line, whatever it holds. `line` must outlive it.
class LineCursor {
 public:
  explicit LineCursor(const Line& line) : line_(line) {}

  bool Next() {
    at_ += entry_.words;
    if (malformed_ || at_ >= kLineWordsUsable) return false;
    const uint64_t head = line_.words[at_];
    if (head == 0) return false;  // no gaps: the rest is empty
    switch (KindOf(head)) {
      case WordKind::kSlot:
        entry_ = {WordKind::kSlot, at_, 1, head, {}, {}};
        return true;
      case WordKind::kInline:
        return TakeInline(head);
      case WordKind::kEmpty:
      case WordKind::kLink:
        break;
    }
    malformed_ = true;
    return false;
  }

  const LineEntry& entry() const { return entry_; }
  bool malformed() const { return malformed_; }

 private:
  bool TakeInline(uint64_t head) {
    const InlineHead inline_head = InlineHead::Unpack(head);
    const uint32_t words = inline_head.words();
    if (words > kLineWordsUsable - at_) {
      malformed_ = true;
      return false;
    }
    const std::byte* const bytes = reinterpret_cast<const std::byte*>(&line_.words[at_ + 1]);
    entry_ = {WordKind::kInline,
              at_,
              words,
              head,
              absl::string_view(reinterpret_cast<const char*>(bytes), inline_head.key_length),
              ByteSpan(bytes + inline_head.key_length, inline_head.value_length)};
    return true;
  }

  const Line& line_;
  LineEntry entry_;
  uint32_t at_ = 0;
  bool malformed_ = false;
};

// Words that an inline item takes, or would.
constexpr uint64_t InlineWords(uint64_t key_length, uint64_t value_length) {
  return 1 + (key_length + value_length + kWordBytes - 1) / kWordBytes;
}
constexpr bool MayBeInline(absl::string_view key, ByteSpan value) {
  return InlineWords(key.size(), value.size()) <= kInlineWordsMax;
}
// Slots of longer READs lead to items that cannot be inline.
inline constexpr uint32_t kInlineItemClassMax =
    LengthClassOf(sizeof(ItemHeader) + (kInlineWordsMax - 1) * kWordBytes);
static_assert((kInlineWordsMax - 1) * kWordBytes < 128, "an inline item's lengths have 7 bits");

}  // namespace osprey::index

#endif  // OSPREY_INDEX_LINE_H_
