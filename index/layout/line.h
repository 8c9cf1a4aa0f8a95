// Interprets the words of a line. The reader uses it on copies of remote bytes, the writer on its
// own.

#ifndef OSPREY_INDEX_LAYOUT_LINE_H_
#define OSPREY_INDEX_LAYOUT_LINE_H_

#include <cassert>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "absl/strings/string_view.h"
#include "index/layout/layout.h"

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
//   LineCursor cursor(line);                // or of a copy's bytes, wherever they stand
//   while (cursor.Next()) … cursor.entry() …
//   if (cursor.malformed()) … no writer wrote these words …
//
// Never reads outside the line, whatever the line contains. `line` must outlive it.
class LineCursor {
 public:
  explicit LineCursor(const Line& line)
      : line_words_(reinterpret_cast<const std::byte*>(line.words)) {}
  explicit LineCursor(ByteSpan line_bytes)
      : line_words_(line_bytes.data() + offsetof(Line, words)) {
    assert(line_bytes.size() == sizeof(Line));
  }

  bool Next() {
    at_ += words_;
    if (at_ >= kLineWordsUsable) return false;
    std::memcpy(&head_, line_words_ + at_ * kWordBytes, sizeof(head_));
    if (head_ == 0) return false;  // no gaps: the rest is empty
    switch (kind()) {
      case WordKind::kSlot:
        words_ = 1;
        return true;
      case WordKind::kInline:
        words_ = InlineHead::Unpack(head_).words();
        if (words_ <= kLineWordsUsable - at_) return true;
        break;
      case WordKind::kEmpty:
      case WordKind::kLink:
        break;
    }
    malformed_ = true;
    at_ = kLineWordsUsable;
    return false;
  }

  // The current entry: the whole entry, or a part of it.
  LineEntry entry() const {
    if (kind() == WordKind::kSlot) return {WordKind::kSlot, at_, 1, head_, {}, {}};
    const auto* const key = reinterpret_cast<const char*>(bytes());
    return {WordKind::kInline,
            at_,
            words_,
            head_,
            {key, InlineHead::Unpack(head_).key_length},
            value()};
  }
  WordKind kind() const { return KindOf(head_); }
  uint64_t head() const { return head_; }
  // The value of an inline item.
  ByteSpan value() const {
    const InlineHead inline_head = InlineHead::Unpack(head_);
    return ByteSpan(bytes() + inline_head.key_length, inline_head.value_length);
  }
  bool malformed() const { return malformed_; }

 private:
  const std::byte* bytes() const { return line_words_ + (at_ + 1) * kWordBytes; }

  const std::byte* line_words_;
  uint64_t head_ = 0;
  uint32_t at_ = 0;
  uint32_t words_ = 0;
  bool malformed_ = false;
};

// Words that an inline item takes, or would take.
constexpr uint64_t InlineWords(uint64_t key_length, uint64_t value_length) {
  return 1 + (key_length + value_length + kWordBytes - 1) / kWordBytes;
}
constexpr bool MayBeInline(absl::string_view key, ByteSpan value) {
  return InlineWords(key.size(), value.size()) <= kInlineWordsMax;
}
// Slots with a longer READ lead to items that cannot be inline.
inline constexpr uint32_t kInlineItemClassMax =
    LengthClassOf(sizeof(ItemHeader) + (kInlineWordsMax - 1) * kWordBytes);
static_assert((kInlineWordsMax - 1) * kWordBytes < 128, "an inline item's lengths have 7 bits");

}  // namespace osprey::index

#endif  // OSPREY_INDEX_LAYOUT_LINE_H_
