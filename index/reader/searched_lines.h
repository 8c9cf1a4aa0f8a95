// The lines that a lookup has searched since it began or restarted, and what they hold of its key.
//
//   SearchedLines lines(key, hash)
//   lines.Clear(home)
//   lines.Search(bytes, offset, …)                     line 0 and 1 of the window, then the chain's
//   while (lines.candidate() != nullptr) …             slots that may lead to the key
//   lines.next_link()                                  where the chain goes on
//   lines.NextToConfirm(i), lines.IsUnchanged(i, …)    before a miss

#ifndef OSPREY_INDEX_READER_SEARCHED_LINES_H_
#define OSPREY_INDEX_READER_SEARCHED_LINES_H_

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "index/layout/hash.h"
#include "index/layout/layout.h"
#include "index/layout/line_search.h"
#include "index/layout/record.h"
#include "index/reader/directory_cache.h"

namespace osprey::index {

// Not thread-safe. Lines have numbers: 0 and 1 are the window's, the others the chain's.
class SearchedLines {
 public:
  static constexpr uint32_t kLinesMax = 2 + kChainLinesMax;

  // A slot with the key's fingerprint, and the number of its line.
  struct Candidate {
    uint64_t slot;
    uint32_t line;
  };

  SearchedLines(absl::string_view key, KeyHash hash) : pattern_(key, hash) {}

  // Forgets all lines. `home` is the offset of the window.
  void Clear(uint64_t home) {
    home_ = home;
    count_ = candidate_count_ = candidate_next_ = 0;
    next_link_ = 0;
  }

  // Searches one more line, at `offset`, for `key`: the same one, at any address. kKey: the line
  // holds it inline, as `item`. Its slots are added to slots_seen(), and the candidates to those
  // not yet taken. REQUIRES: !full().
  InLine Search(ByteSpan line_bytes, uint64_t offset, const DirectoryCache& map,
                absl::string_view key, InlineItem& item);

  uint32_t count() const { return count_; }
  bool full() const { return count_ == kLinesMax; }
  uint64_t offset(uint32_t number) const { return lines_[number].offset; }
  // The offset of the next line of the chain; 0: it ends here.
  uint64_t next_link() const { return next_link_; }

  // The first candidate that was not passed over; null: none is left.
  const Candidate* candidate() const {
    return candidate_next_ < candidate_count_ ? &candidates_[candidate_next_] : nullptr;
  }
  // The item of the candidate has another key. Before a miss, a READ must confirm that the slot led
  // there all the while.
  void PassOver(bool confirm) { lines_[candidates_[candidate_next_++].line].doubtful = confirm; }
  // The next line begins without the candidates of those before.
  void DropCandidates() { candidate_count_ = candidate_next_ = 0; }

  // SlotSeen::line of a line.
  uint64_t FiledUnder(uint32_t number) const { return number < 2 ? lines_[number].offset : home_; }
  // The slots in the lines of the last READ.
  absl::Span<const SlotSeen> slots_seen() const { return {slots_seen_, slots_seen_count_}; }
  void DropSlotsSeen() { slots_seen_count_ = 0; }

  // The first line from number `from` on whose candidate was passed over; count(): none.
  uint32_t NextToConfirm(uint32_t from) const {
    while (from < count_ && !lines_[from].doubtful) ++from;
    return from;
  }
  // Whether the line's header, which `header_bytes` begin with, is the one that was searched. All 16
  // bytes are compared. The version alone would suffice if it were copied at once. For bytes of
  // different moments the checksum is better evidence.
  bool IsUnchanged(uint32_t number, ByteSpan header_bytes) const {
    return std::memcmp(&lines_[number].header, header_bytes.data(), sizeof(RecordHeader)) == 0;
  }
  // Whether the line still holds the candidates that were found in it. For a mutant.
  bool HoldsCandidates(uint32_t number, ByteSpan line_bytes) const {
    Line line;
    std::memcpy(&line, line_bytes.data(), sizeof(line));
    for (uint32_t i = 0; i < candidate_count_; ++i) {
      if (candidates_[i].line != number) continue;
      if (std::count(line.words, line.words + kLineWordsUsable, candidates_[i].slot) == 0)
        return false;
    }
    return true;
  }

 private:
  struct Searched {
    uint64_t offset;
    RecordHeader header;
    bool doubtful;
  };

  const KeyPattern pattern_;
  uint64_t home_ = 0;
  uint64_t next_link_ = 0;
  uint32_t count_ = 0;
  uint32_t candidate_count_ = 0;
  uint32_t candidate_next_ = 0;
  uint32_t slots_seen_count_ = 0;
  // Valid up to their counts and not initialised beyond: most lookups need few of them, and stay
  // cheap to construct.
  Searched lines_[kLinesMax];
  Candidate candidates_[2 * kLineWordsUsable];
  SlotSeen slots_seen_[2 * kLineWordsUsable];
};

}  // namespace osprey::index

#endif  // OSPREY_INDEX_READER_SEARCHED_LINES_H_
