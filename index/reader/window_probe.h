// The window probe: answers the GETs that the window's READ decides, without a Lookup. If it has no
// answer, a Lookup takes the same bytes.
//
//   bytes = READ(window.offset, kWindowBytes)
//   WindowProbe probe(bytes, map, window, {key, hash});
//   kHit    the key is inline: probe.item()
//   kMiss   the key is absent
//   kOther  lookup.Start(); step = lookup.Resume(bytes) …

#ifndef OSPREY_INDEX_READER_WINDOW_PROBE_H_
#define OSPREY_INDEX_READER_WINDOW_PROBE_H_

#include <cassert>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "absl/types/span.h"
#include "index/layout/hash.h"
#include "index/layout/layout.h"
#include "index/layout/line_search.h"
#include "index/layout/record.h"
#include "index/reader/directory_cache.h"

namespace osprey::index {

// Never reads outside `window_bytes`, a private copy of `window`, which must outlive this.
class WindowProbe {
 public:
  enum class Kind {
    kOther,  // says nothing of the key
    kHit,
    kMiss,
  };

  // `window` is map.WindowOf(key.hash), now or earlier. `key.key` is not empty.
  // (Inlined: it is in the middle of most GETs.)
  [[gnu::always_inline]] WindowProbe(ByteSpan window_bytes, const DirectoryCache& map,
                                     const DirectoryCache::Window& window, const HashedKey& key);

  // Of the same bytes a Lookup would say the same.
  Kind kind() const { return kind_; }
  // Of a hit: the item, within the bytes given, and the offset of its line.
  const InlineItem& item() const { return item_; }
  uint64_t line() const { return line_; }
  // As Lookup::slots_seen. Of a hit: those before the key.
  absl::Span<const SlotSeen> slots_seen() const { return {slots_seen_, slots_seen_count_}; }

 private:
  Kind kind_ = Kind::kOther;
  uint32_t slots_seen_count_ = 0;
  uint64_t line_ = 0;
  InlineItem item_;
  SlotSeen slots_seen_[2 * kLineWordsUsable];
};

// The conditions are those of Lookup::OnWindow, for the same reasons (ARGUMENT.md). For a hit, the
// line that holds the key must be whole and of the right generation; the other line may be in any
// state. For a miss, both lines must be. Slots seen are kept only if their lines are.
inline WindowProbe::WindowProbe(ByteSpan window_bytes, const DirectoryCache& map,
                                const DirectoryCache::Window& window, const HashedKey& key) {
  assert(window_bytes.size() == kWindowBytes && !key.key.empty());
  const KeyPattern pattern(key.key, key.hash);
  const auto copy_of = [window_bytes](uint32_t number) {
    return ByteSpan(window_bytes.data() + number * kLineBytes, kLineBytes);
  };
  const auto is_believed = [&](uint32_t number) __attribute__((always_inline)) {
    return window.IsBelieved(copy_of(number), number, map.incarnation());
  };
  bool may_be_there = false;
  for (uint32_t number = 0; number < 2; ++number) {
    const uint64_t line = window.OffsetOf(number);
    const InLine found = SearchLine(copy_of(number), pattern, key.key, item_, [&](uint64_t slot) {
      slots_seen_[slots_seen_count_++] = {line, slot};
      may_be_there |= pattern.MayBeSlot(slot);
    });
    if (found == InLine::kNonsense) return;
    if (found == InLine::kNothing) continue;
    if (!is_believed(number)) return;
    if (number == 1 && slots_seen_count_ > 0 && !is_believed(0)) slots_seen_count_ = 0;
    line_ = line;
    kind_ = Kind::kHit;
    return;
  }
  uint64_t link;
  std::memcpy(&link, window_bytes.data() + offsetof(Line, words[kLinkWord]), sizeof(link));
  if (may_be_there || link != 0) return;
  if (is_believed(0) && is_believed(1)) kind_ = Kind::kMiss;
}

}  // namespace osprey::index

#endif  // OSPREY_INDEX_READER_WINDOW_PROBE_H_
