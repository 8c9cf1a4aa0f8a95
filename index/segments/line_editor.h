// A private copy of one line, edited and then published as one record.

#ifndef OSPREY_INDEX_SEGMENTS_LINE_EDITOR_H_
#define OSPREY_INDEX_SEGMENTS_LINE_EDITOR_H_

#include <cstdint>

#include "absl/strings/string_view.h"
#include "index/layout/layout.h"
#include "index/layout/line.h"
#include "index/segments/clock_counters.h"
#include "index/segments/line_view.h"
#include "index/space/region_writer.h"

namespace osprey::index {

// Not thread-safe. A line has at most one editor at a time. An editor is not used after another
// one's Publish.
class LineEditor {
 public:
  // Copies the line at `offset` and its CLOCK counters. `writer` and `clocks` must outlive this.
  LineEditor(RegionWriter& writer, ClockCounters& clocks, uint64_t offset);
  // An empty line of `generation`, whatever the region holds at `offset`.
  static LineEditor Empty(RegionWriter& writer, ClockCounters& clocks, uint64_t offset,
                          uint32_t generation);

  uint64_t offset() const { return offset_; }
  uint32_t generation() const { return line_.record.tag; }
  const Line& line() const { return line_; }
  uint32_t used() const { return used_; }                // words, without the link's
  uint32_t used_before() const { return used_before_; }  // of the published line
  uint32_t free() const { return kLineWordsUsable - used_; }
  uint64_t link() const { return LinkOf(line_); }

  // REQUIRES: free() >= 1.
  void AddSlot(uint64_t slot, uint32_t clock = kClockNew);
  // REQUIRES: free() >= InlineWords(key.size(), value.size()) <= kInlineWordsMax.
  void AddInline(absl::string_view key, ByteSpan value, uint64_t cas_version,
                 uint32_t clock = kClockNew);
  // Removes the key's `words` words from `at` on; the words after them move up. Returns the key's
  // CLOCK counter, for its replacement.
  uint32_t Remove(uint32_t at, uint32_t words);
  // 0: none.
  void SetLink(uint64_t line_offset) {
    line_.words[kLinkWord] = line_offset == 0 ? 0 : PackLink(line_offset);
  }

  // W1. From here on readers see all of the edits, or none.
  void Publish();

 private:
  LineEditor(RegionWriter& writer, ClockCounters& all_lives, uint64_t offset, const Line& line,
             LineClocks clocks);

  RegionWriter* writer_;
  ClockCounters* all_clocks_;
  uint64_t offset_;
  Line line_;
  LineClocks clocks_;
  uint32_t used_;
  uint32_t used_before_;
};

}  // namespace osprey::index

#endif  // OSPREY_INDEX_SEGMENTS_LINE_EDITOR_H_
