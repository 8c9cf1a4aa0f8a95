// The lines of a segment that is about to begin, laid out in private memory before any of it is
// published.

#ifndef OSPREY_INDEX_SEGMENTS_SEGMENT_IMAGE_H_
#define OSPREY_INDEX_SEGMENTS_SEGMENT_IMAGE_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "index/layout/layout.h"
#include "index/segments/chains.h"
#include "index/segments/clock_counters.h"
#include "index/segments/line_editor.h"
#include "index/segments/line_view.h"
#include "index/space/item_store.h"
#include "index/space/region_writer.h"

namespace osprey::index {

// A key in a line of a segment, or in a chain of one.
struct SegmentEntry {
  uint64_t words_at = 0;  // offset of its first word
  uint32_t words = 0;
  uint32_t clock = 0;
  uint32_t line = 0;  // its number; of a chained key, its home's
  bool chained = false;
};

// Calls fn(entry) for each key of the segment at that offset, chained keys last, by home.
template <typename Fn>
void ForEachEntry(const RegionWriter& writer, const ClockCounters& clocks, uint64_t segment,
                  Fn fn) {
  const auto visit = [&](uint64_t line_offset, uint32_t line, bool chained) {
    const LineClocks of_line = clocks.Of(line_offset);
    for (LineCursor cursor(LineAt(writer, line_offset)); cursor.Next();) {
      const LineEntry& entry = cursor.entry();
      fn(SegmentEntry{line_offset + offsetof(Line, words) + entry.at * kWordBytes, entry.words,
                      of_line.At(entry.at), line, chained});
    }
  };
  for (uint32_t i = 0; i < kLinesPerUnit; ++i) visit(segment + i * kLineBytes, i, false);
  for (uint32_t i = 0; i < kHomesPerSegment; ++i) {
    uint64_t link = LinkOf(LineAt(writer, segment + i * kLineBytes));
    for (; link != 0; link = LinkOf(LineAt(writer, link))) visit(link, i, true);
  }
}

// Items are scattered in memory, so their headers and keys are prefetched this many keys ahead.
inline constexpr size_t kSegmentPrefetchDistance = 24;
void PrefetchItemOf(const RegionWriter& writer, const ItemStore& items, const SegmentEntry& entry);

// The key of an inline item at that offset.
absl::string_view InlineKeyAt(const RegionWriter& writer, uint64_t words_at);

// Not thread-safe.
struct SegmentImage {
  // A slot that did not fit into its window.
  struct Chained {
    uint32_t home = 0;
    Chains::Key key;
  };

  // Becomes an image without keys.
  void Clear();
  uint32_t free(uint32_t line) const { return kLineWordsUsable - used[line]; }
  // Copies the key's words to that line. REQUIRES: the line has so many free.
  void Place(const RegionWriter& writer, const SegmentEntry& entry, uint32_t line);
  // Copies the slot to its home `entry.line`, the line after it, or the home's chain, whichever is
  // the first with space. REQUIRES: a slot, and those of one home come one after the other.
  void PlaceChained(const RegionWriter& writer, const SegmentEntry& entry);

  uint64_t words() const;  // all that keys take, chains included
  uint64_t chain_lines() const;
  // Whether no chain is longer than kChainLinesMax.
  bool chains_fit() const;
  // Calls fn(home, chain) for each home that needs a chain.
  template <typename Fn>
  void ForEachChain(Fn fn) const {
    std::vector<Chains::Key> chain;
    for (size_t i = 0; i < chained.size(); ++i) {
      chain.push_back(chained[i].key);
      if (i + 1 < chained.size() && chained[i + 1].home == chained[i].home) continue;
      fn(chained[i].home, absl::MakeConstSpan(chain));
      chain.clear();
    }
  }

  std::vector<Line> lines;         // kLinesPerUnit of them: words only, no links
  std::vector<LineClocks> clocks;  // of each
  std::vector<uint32_t> used;      // words of each
  std::vector<Chained> chained;    // by home
  uint32_t keys = 0;
  uint32_t small_items = 0;               // that might be inline
  uint32_t expiring = 0;                  // keys with an expiry
  uint64_t expires_from_ns = UINT64_MAX;  // none expires before that
};

}  // namespace osprey::index

#endif  // OSPREY_INDEX_SEGMENTS_SEGMENT_IMAGE_H_
