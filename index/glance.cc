#include "index/glance.h"

#include <cstring>

namespace osprey::index {

namespace {

constexpr int kKeyLengthShift = 55;
static_assert(InlineHead{127, 0, 0}.Pack() >> kKeyLengthShift == (3u << 7 | 127));

uint64_t WordAt(const std::byte* words, uint32_t at) {
  uint64_t word;
  std::memcpy(&word, words + size_t{at} * kWordBytes, sizeof(word));
  return word;
}

// Most keys differ in their first word, and many have no other: to call memcmp takes longer.
bool IsAt(const std::byte* bytes, absl::string_view key) {
  if (key.size() >= kWordBytes) {
    uint64_t first, wanted;
    std::memcpy(&first, bytes, kWordBytes);
    std::memcpy(&wanted, key.data(), kWordBytes);
    if (first != wanted || key.size() == kWordBytes) return first == wanted;
  }
  return std::memcmp(bytes, key.data(), key.size()) == 0;
}

}  // namespace

// A hit is what Lookup::OnWindow believes, and for the same reason (ARGUMENT.md): the line that
// holds the key, whole and of the right generation, says so by itself. Slots are shown only if the
// line before it, which was searched first, is believed, too.
Glance::Glance(ByteSpan window_bytes, const RegionMap::Window& window, uint64_t incarnation,
               absl::string_view key) {
  const auto is_believed = [&](uint32_t number) {
    const ByteSpan line_bytes = window_bytes.subspan(number * kLineBytes, kLineBytes);
    return IsOfGeneration(line_bytes, number, window.generation) &&
           RecordIsWhole(line_bytes, {window.offset + number * kLineBytes, incarnation});
  };
  for (uint32_t number = 0; number < 2; ++number) {
    const uint64_t line = window.offset + number * kLineBytes;
    const Found found =
        Search(window_bytes.data() + number * kLineBytes + offsetof(Line, words), line, key);
    if (found == Found::kNonsense) return;
    if (found == Found::kNothing) continue;
    if (!is_believed(number)) return;
    if (number == 1 && slots_seen_count_ > 0 && !is_believed(0)) slots_seen_count_ = 0;
    line_ = line;
    return;
  }
}

// The words are nobody's yet: each length is held against the line's end.
Glance::Found Glance::Search(const std::byte* words, uint64_t line, absl::string_view key) {
  const uint64_t front = key.size() <= 127 ? uint64_t{3} << 7 | key.size() : 0;
  for (uint32_t at = 0; at < kLineWordsUsable;) {
    const uint64_t head = WordAt(words, at);
    if (head == 0) break;  // no gaps: the rest is empty
    if (KindOf(head) == WordKind::kSlot) {
      slots_seen_[slots_seen_count_++] = {line, head};
      ++at;
      continue;
    }
    if (KindOf(head) != WordKind::kInline) return Found::kNonsense;
    const InlineHead inline_head = InlineHead::Unpack(head);
    const uint32_t item_words = inline_head.words();
    if (item_words > kLineWordsUsable - at) return Found::kNonsense;
    const std::byte* const bytes = words + size_t{at + 1} * kWordBytes;
    if (head >> kKeyLengthShift == front && IsAt(bytes, key)) {
      head_ = head;
      value_ = ByteSpan(bytes + key.size(), inline_head.value_length);
      return Found::kKey;
    }
    at += item_words;
  }
  return Found::kNothing;
}

}  // namespace osprey::index
