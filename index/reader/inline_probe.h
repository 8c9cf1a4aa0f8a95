// The inline probe: answers the most common GET, of a key in its window, without a Lookup. If it
// finds no hit, a Lookup takes the same bytes.
//
//   bytes = READ(window.offset, kWindowBytes)
//   InlineProbe inline_probe(bytes, window, incarnation, key);
//   if (inline_probe.hit()) … inline_probe.value() …
//   else … lookup.Start(); step = lookup.Resume(bytes) …

#ifndef OSPREY_INDEX_READER_INLINE_PROBE_H_
#define OSPREY_INDEX_READER_INLINE_PROBE_H_

#include <cstdint>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "index/layout/layout.h"
#include "index/layout/line.h"
#include "index/layout/record.h"
#include "index/layout/test_hooks.h"
#include "index/reader/directory_cache.h"

namespace osprey::index {

// A slot that a line held, of this key or another: input of the location cache. `line` is the line
// by whose window a reader finds it. For a slot in a window it is the slot's own line, for a
// chained one the home.
struct SlotSeen {
  uint64_t line;
  uint64_t slot;
};

// Never reads outside `window_bytes`, a private copy of `window`, which must outlive this.
class InlineProbe {
 public:
  InlineProbe(ByteSpan window_bytes, const DirectoryCache::Window& window, uint64_t incarnation,
              absl::string_view key);

  // Whether the key is inline in the window; a Lookup would then return the same. False says
  // nothing about the key.
  bool hit() const { return line_ != 0; }
  // Of a hit. `value` is within the bytes given.
  ByteSpan value() const { return value_; }
  uint64_t cas_version() const { return InlineHead::Unpack(head_).cas_version; }
  uint64_t line() const { return line_; }  // its offset
  // Of a hit: the slots before the key, as Lookup::slots_seen.
  absl::Span<const SlotSeen> slots_seen() const { return {slots_seen_, slots_seen_count_}; }

 private:
  // Walks the entries up to the key. True if it is found.
  bool Search(LineCursor& cursor, uint64_t line, absl::string_view key);

  ByteSpan value_;
  uint64_t head_ = 0;
  uint64_t line_ = 0;  // 0: no hit
  uint32_t slots_seen_count_ = 0;
  SlotSeen slots_seen_[2 * kLineWordsUsable];
};

// Whether line 0 or 1 of a window belongs to the segment of that window.
inline bool IsOfGeneration(ByteSpan line_bytes, [[maybe_unused]] uint32_t number,
                           uint32_t generation) {
  if (IsMutant(Mutant::kGenerationUnchecked)) return true;
  if (IsMutant(Mutant::kGenerationOfOneLine) && number == 1) return true;
  return HeaderOf(line_bytes).tag == generation;
}

}  // namespace osprey::index

#endif  // OSPREY_INDEX_READER_INLINE_PROBE_H_
