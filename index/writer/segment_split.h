// Lays out the two halves of a segment that splits, in private memory, before any of it is
// published.
//
// A key keeps its line number. It fits there, since the other half's keys leave space, and walks by
// line number meet it whatever splits (table.h, FlushStep). Only keys of a chain move, into their
// window while there is space.
//
//   segment      line 7: A b C d      line 8: e F        chain of 7: G h I
//   low half     line 7: A C G I      line 8: F
//   high half    line 7: b d h        line 8: e

#ifndef OSPREY_INDEX_WRITER_SEGMENT_SPLIT_H_
#define OSPREY_INDEX_WRITER_SEGMENT_SPLIT_H_

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "index/layout/layout.h"
#include "index/space/item_store.h"
#include "index/space/region_writer.h"
#include "index/writer/chains.h"
#include "index/writer/clock_counters.h"

namespace osprey::index {

// Not thread-safe. It is reused from split to split, for its memory: 64 KiB and some for each key.
class SegmentSplit {
 public:
  struct Half {
    std::vector<Line> lines;         // kLinesPerUnit of them: words only, no links
    std::vector<LineClocks> clocks;  // of each
    std::vector<uint32_t> used;      // words of each
    // Slots that did not fit into their window, by home.
    struct Chained {
      uint32_t home = 0;
      Chains::Key key;
    };
    std::vector<Chained> chained;
    uint32_t keys = 0;
    uint32_t small_items = 0;  // that might be inline
    uint32_t expiring = 0;     // keys with an expiry

    uint64_t words() const;  // all that keys take, chains included
    uint64_t chain_lines() const;
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
  };

  // All must outlive this.
  SegmentSplit(const RegionWriter& writer, const ItemStore& items, const ClockCounters& clocks,
               uint64_t hash_seed)
      : writer_(writer), items_(items), clocks_(clocks), hash_seed_(hash_seed) {}

  // Reads the segment at `segment` and divides its keys by bit `depth` of their hashes.
  void Read(uint64_t segment, uint32_t depth);

  // 0: the keys whose bit is 0.
  const Half& half(uint32_t bit) const { return halves_[bit]; }

 private:
  struct Entry {
    uint64_t words_at = 0;  // offset of its first word
    uint32_t words = 0;
    uint32_t clock = 0;
    uint32_t line = 0;  // its number; of a chained one, its home's
    bool chained = false;
  };
  void Collect(uint64_t line_offset, uint32_t line, bool chained);
  void Part(const Entry& entry, uint32_t depth);
  void Place(const Entry& entry, Half& half);

  const RegionWriter& writer_;
  const ItemStore& items_;
  const ClockCounters& clocks_;
  uint64_t hash_seed_;
  Half halves_[2];
  std::vector<Entry> entries_;
};

}  // namespace osprey::index

#endif  // OSPREY_INDEX_WRITER_SEGMENT_SPLIT_H_
