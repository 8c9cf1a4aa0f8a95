// The writer's access to its own lines. They are well-formed, so it steps from head to head and
// compares keys by whole words. (Readers check each word: line.h, line_search.h.)

#ifndef OSPREY_INDEX_SEGMENTS_LINE_VIEW_H_
#define OSPREY_INDEX_SEGMENTS_LINE_VIEW_H_

#include <emmintrin.h>

#include <bit>
#include <cassert>
#include <cstdint>

#include "absl/strings/string_view.h"
#include "index/layout/layout.h"
#include "index/layout/line.h"
#include "index/layout/line_search.h"
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

// Compares all words of a line at once, with SSE2, which every x86-64 has. It executes the same
// instructions wherever a key is, so no branch depends on that.
class LineSearch {
 public:
  LineSearch(const Line& line, uint32_t fingerprint) : line_(line) {
    const __m128i a = UpperHalves(line, 0);
    const __m128i b = UpperHalves(line, 1);
    const __m128i c = UpperHalves(line, 2);
    const __m128i d = UpperHalves(line, 3);
    // Kind and fingerprint are the bits of an upper half above its 14 low ones.
    const __m128i wanted = _mm_set1_epi32(static_cast<int>(1u << 16 | fingerprint));
    const auto is_slot = [&](__m128i upper) {
      return _mm_cmpeq_epi32(_mm_srli_epi32(upper, 14), wanted);
    };
    slots_ = SignsOf(is_slot(a), is_slot(b), is_slot(c), is_slot(d));
  }

  // The words that look like a slot of that fingerprint, one bit each.
  uint32_t slots() const { return slots_; }
  // Likewise, the head of an inline item. Each call computes them.
  uint32_t inline_heads() const {
    const auto is_inline = [](__m128i upper) {
      return _mm_and_si128(upper, _mm_slli_epi32(upper, 1));
    };
    return SignsOf(is_inline(UpperHalves(line_, 0)), is_inline(UpperHalves(line_, 1)),
                   is_inline(UpperHalves(line_, 2)), is_inline(UpperHalves(line_, 3)));
  }
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
  static constexpr uint32_t kHeaderWords = sizeof(RecordHeader) / kWordBytes;
  static_assert(kHeaderWords + kLineWords == 16 && sizeof(Line) == 8 * sizeof(__m128i));
  static_assert(Slot{0, 0, 65535}.Pack() >> (32 + 14) == (1u << 16 | 65535));
  static_assert(InlineHead{}.Pack() >> 62 == 3);

  // The upper halves of four words of the line, header included.
  static __m128i UpperHalves(const Line& line, uint32_t quarter) {
    const auto* const pairs = reinterpret_cast<const __m128i*>(&line) + size_t{2} * quarter;
    return _mm_castps_si128(_mm_shuffle_ps(_mm_castsi128_ps(_mm_load_si128(pairs)),
                                           _mm_castsi128_ps(_mm_load_si128(pairs + 1)),
                                           _MM_SHUFFLE(3, 1, 3, 1)));
  }
  // One bit for each word of the line, without the header.
  static uint32_t SignsOf(__m128i a, __m128i b, __m128i c, __m128i d) {
    const __m128i all = _mm_packs_epi16(_mm_packs_epi32(a, b), _mm_packs_epi32(c, d));
    return static_cast<uint32_t>(_mm_movemask_epi8(all)) >> kHeaderWords;
  }

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
