// The writer's access to its own lines. They are well-formed, so it steps from head to head and
// compares keys by whole words. (Readers check each word: line.h, line_search.h.)

#ifndef OSPREY_INDEX_SEGMENTS_LINE_VIEW_H_
#define OSPREY_INDEX_SEGMENTS_LINE_VIEW_H_

#include <bit>
#include <cassert>
#include <cstdint>

#include "absl/strings/string_view.h"
#include "index/layout/layout.h"
#include "index/layout/line.h"
#include "index/layout/line_search.h"
#include "index/segments/line_masks.h"
#include "index/space/region_writer.h"

namespace osprey::index {

// The line at `offset` of the writer's own region.
inline const Line& LineAt(const RegionWriter& writer, uint64_t offset) {
  return *reinterpret_cast<const Line*>(writer.Bytes(offset, kLineBytes).data());
}

// The window at `home`: two lines.
inline const Line* WindowAt(const RegionWriter& writer, uint64_t home) {
  return reinterpret_cast<const Line*>(writer.Bytes(home, kWindowBytes).data());
}

// The words of the entry that begins with `head`, of a slot or an inline item.
constexpr uint32_t EntryWords(uint64_t head) {
  return KindOf(head) == WordKind::kInline ? InlineHead::Unpack(head).words() : 1;
}

// The words of a line that keys use, without the link's.
inline uint32_t UsedWords(const Line& line) {
  uint32_t used = 0;
  while (used < kLineWordsUsable && line.words[used] != 0) used += EntryWords(line.words[used]);
  assert(used <= kLineWordsUsable);
  return used;
}

// The bytes that a line's checksum covers.
inline ByteSpan WordBytesOf(const Line& line) {
  return {reinterpret_cast<const std::byte*>(line.words), sizeof(line.words)};
}

// The offset of the next line of the chain; 0: none.
inline uint64_t LinkOf(const Line& line) {
  return line.words[kLinkWord] == 0 ? 0 : LinkOffset(line.words[kLinkWord]);
}

inline LineEntry EntryAt(const Line& line, uint32_t at) {
  LineEntry entry;
  entry.head = line.words[at];
  entry.kind = KindOf(entry.head);
  entry.at = at;
  entry.words = EntryWords(entry.head);
  if (entry.kind != WordKind::kInline) return entry;
  const InlineHead head = InlineHead::Unpack(entry.head);
  const auto* const bytes = reinterpret_cast<const std::byte*>(&line.words[at + 1]);
  entry.key = {reinterpret_cast<const char*>(bytes), head.key_length};
  entry.value = {bytes + head.key_length, head.value_length};
  return entry;
}

// What may be a key's entry in a line.
class LineSearch {
 public:
  LineSearch(const Line& line, uint32_t fingerprint)
      : line_(line), slots_(LineMasks::Slots(line, fingerprint)) {}

  // The words that look like a slot of that fingerprint, one bit each.
  uint32_t slots() const { return slots_; }
  // Likewise, the head of an inline item. Each call computes them.
  uint32_t inline_heads() const { return LineMasks::InlineHeads(line_); }
  // Whether that word, which looks like one of them, is no part of an inline item's key or value.
  bool IsHead(uint32_t at) const {
    // Up to the end of an entry only heads look like heads.
    uint32_t end = 0;
    for (uint32_t rest = inline_heads() & ((1u << at) - 1); rest != 0; rest = rest >> end << end) {
      const auto head = static_cast<uint32_t>(std::countr_zero(rest));
      end = head + InlineHead::Unpack(line_.words[head]).words();
    }
    return end <= at;
  }

 private:
  const Line& line_;
  uint32_t slots_;
};

// Finds the entry of a key in lines.
class EntrySearch {
 public:
  // `key` must outlive this.
  EntrySearch(absl::string_view key, KeyHash hash)
      : key_(key), fingerprint_(hash.fingerprint()), pattern_(key, hash) {}

  // The index of the key's entry in `line`; kLineWords: none. `is_its_item(head)` returns whether
  // the item of a slot with the key's fingerprint is the key's own.
  template <typename IsItsItem>
  uint32_t FindIn(const Line& line, IsItsItem&& is_its_item) const {
    if (KindOf(line.words[0]) != WordKind::kInline) {
      const LineSearch search(line, fingerprint_);
      if (search.inline_heads() == 0) {
        for (uint32_t slots = search.slots(); slots != 0; slots &= slots - 1) {
          const auto at = static_cast<uint32_t>(std::countr_zero(slots));
          if (is_its_item(line.words[at])) return at;
        }
        return kLineWords;
      }
    }
    return FindByHeads(line, is_its_item);
  }

 private:
  template <typename IsItsItem>
  [[gnu::always_inline]] uint32_t FindByHeads(const Line& line, IsItsItem&& is_its_item) const {
    for (uint32_t at = 0; at < kLineWordsUsable;) {
      const uint64_t head = line.words[at];
      if (head == 0) break;  // no gaps: the rest is empty
      if (KindOf(head) == WordKind::kInline) {
        const uint64_t* const words = &line.words[at + 1];
        if (pattern_.MayBeInline(head, *words) && KeyPattern::HoldsRest(words, key_)) return at;
        at += InlineHead::Unpack(head).words();
      } else {
        if (pattern_.MayBeSlot(head) && is_its_item(head)) return at;
        ++at;
      }
    }
    return kLineWords;
  }

  absl::string_view key_;
  uint32_t fingerprint_;
  KeyPattern pattern_;
};

}  // namespace osprey::index

#endif  // OSPREY_INDEX_SEGMENTS_LINE_VIEW_H_
