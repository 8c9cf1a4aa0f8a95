// A private copy of one line: edited at leisure, then published as one record.

#ifndef OSPREY_INDEX_LINE_EDITOR_H_
#define OSPREY_INDEX_LINE_EDITOR_H_

#include <cstdint>

#include "absl/strings/string_view.h"
#include "index/layout.h"
#include "index/line.h"
#include "index/line_lives.h"
#include "index/own_line.h"
#include "index/writer.h"

namespace osprey::index {

// Not thread-safe. Of one line there is one editor at a time, and none is kept over another's
// Publish.
class LineEditor {
 public:
  // The line at `offset` as it is, and the lives of its keys. Both must outlive this.
  LineEditor(RegionWriter& writer, LineLives& lives, uint64_t offset);
  // An empty line of `generation`, whatever is there.
  static LineEditor Empty(RegionWriter& writer, LineLives& lives, uint64_t offset,
                          uint32_t generation);

  uint64_t offset() const { return offset_; }
  uint32_t generation() const { return line_.record.tag; }
  const Line& line() const { return line_; }
  uint32_t used() const { return used_; }                // words, without the link's
  uint32_t used_before() const { return used_before_; }  // of the line as it is published
  uint32_t free() const { return kLineWordsUsable - used_; }
  uint64_t link() const { return LinkOf(line_); }

  // REQUIRES: free() >= 1.
  void AddSlot(uint64_t slot, uint32_t lives = kLivesNew);
  // REQUIRES: free() >= InlineWords(key.size(), value.size()) <= kInlineWordsMax.
  void AddInline(absl::string_view key, ByteSpan value, uint64_t cas_version,
                 uint32_t lives = kLivesNew);
  // Takes the key's `words` words from `at` out; what follows moves up. Returns the lives that it
  // had, for whatever takes its place.
  uint32_t Remove(uint32_t at, uint32_t words);
  // 0: none.
  void SetLink(uint64_t line_offset) {
    line_.words[kLinkWord] = line_offset == 0 ? 0 : PackLink(line_offset);
  }

  // W1. Readers see all of the edits from here on, or none.
  void Publish();

 private:
  LineEditor(RegionWriter& writer, LineLives& all_lives, uint64_t offset, const Line& line,
             Lives lives);

  RegionWriter* writer_;
  LineLives* all_lives_;
  uint64_t offset_;
  Line line_;
  Lives lives_;
  uint32_t used_;
  uint32_t used_before_;
};

}  // namespace osprey::index

#endif  // OSPREY_INDEX_LINE_EDITOR_H_
