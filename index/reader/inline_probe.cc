#include "index/reader/inline_probe.h"

namespace osprey::index {

// A hit satisfies the conditions of Lookup::OnWindow, for the same reason (ARGUMENT.md). The line
// that holds the key is whole and of the right generation, which suffices. Slots are returned only
// if the line before it, which was searched first, is valid too.
InlineProbe::InlineProbe(ByteSpan window_bytes, const DirectoryCache::Window& window,
                         uint64_t incarnation, absl::string_view key) {
  const auto is_believed = [&](uint32_t number) {
    const ByteSpan line_bytes = window_bytes.subspan(number * kLineBytes, kLineBytes);
    return IsOfGeneration(line_bytes, number, window.generation) &&
           RecordIsWhole(line_bytes, {window.offset + number * kLineBytes, incarnation});
  };
  for (uint32_t number = 0; number < 2; ++number) {
    const uint64_t line = window.offset + number * kLineBytes;
    LineCursor cursor(window_bytes.subspan(number * kLineBytes, kLineBytes));
    if (!Search(cursor, line, key)) {
      if (cursor.malformed()) return;
      continue;
    }
    if (!is_believed(number)) return;
    if (number == 1 && slots_seen_count_ > 0 && !is_believed(0)) slots_seen_count_ = 0;
    value_ = cursor.value();
    head_ = cursor.head();
    line_ = line;
    return;
  }
}

bool InlineProbe::Search(LineCursor& cursor, uint64_t line, absl::string_view key) {
  while (cursor.Next()) {
    if (cursor.HoldsInline(key)) return true;
    if (cursor.kind() == WordKind::kSlot) slots_seen_[slots_seen_count_++] = {line, cursor.head()};
  }
  return false;
}

}  // namespace osprey::index
