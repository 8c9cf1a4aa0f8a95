// How the index gives back space: segments with few keys merge, the directory halves, and segments
// move so that their units become free.
//
// After many keys have gone, a *pass* visits the segments in the order in which they split. Two
// neighbours there, the halves of a former segment, merge if their keys fill at most a part of one.
//
//   position   0           1/4          1/2                       1
//              |  A (full) |  B (sparse) |  C (sparse) | D (empty) |
//              |  A        |  B          |  E                      |     A and B: too many keys
//
// The result may merge with its own neighbour next. Each step merges one pair at most. Passes follow
// each other until one merges nothing.

#ifndef OSPREY_INDEX_WRITER_MERGER_H_
#define OSPREY_INDEX_WRITER_MERGER_H_

#include <algorithm>
#include <cstdint>

#include "absl/time/time.h"
#include "index/layout/layout.h"
#include "index/layout/test_hooks.h"
#include "index/segments/segment_merge.h"
#include "index/writer/keys/expirer.h"
#include "index/writer/keys/keys.h"
#include "index/writer/keys/placement.h"
#include "index/writer/segments.h"

namespace osprey::index {

// Not thread-safe.
class Merger {
 public:
  // All must outlive this.
  Merger(Keys& keys, Placement& placement, Expirer& expirer, Segments& segments);

  // Whether enough keys have gone for a pass, or one is under way.
  bool Wanted(absl::Time now) {
    words_most_ = std::max(words_most_, keys_.occupied_words);
    const uint64_t words_freed = words_most_ - keys_.occupied_words;
    const bool may_start = words_freed >= Segments::Words(segments_.count()) / kFreedShareInverse ||
                           IsShort() || MergingForced() || SegmentMovesForced();
    return passing_ || (may_start && MayStart(now));
  }
  // Merges one pair, and halves the directory if it can; or looks at some segments. True if there is
  // more to do now.
  bool Step(absl::Time now);

  // Moves what the unit at that offset holds: a segment; or, of overflow lines, the segment of one of
  // them. The unit is free when all have moved. False: there is no space, or nothing to move.
  bool MoveUnit(uint64_t unit);

 private:
  bool LayOut(DirectoryEntry low, DirectoryEntry high, absl::Time now);
  bool FitPending(DirectoryEntry low, DirectoryEntry high);
  bool MergeAt(uint32_t hash_bits, DirectoryEntry low, DirectoryEntry high, absl::Time now);
  bool MoveSegment(uint32_t hash_bits);
  // A pass begins when this part of all words has become free since the last one.
  static constexpr uint64_t kFreedShareInverse = 32;
  // Pages are short when less than this part of item space is free. With eviction they always are.
  static constexpr uint64_t kShortShareInverse = 32;
  bool IsShort() const {
    return !keys_.options.evict &&
           keys_.space.free_pages() * kShortShareInverse < keys_.space.pages();
  }
  bool MayStart(absl::Time now) const;
  uint32_t PercentMax() const;
  void EndPass(absl::Time now);

  Keys& keys_;
  Placement& placement_;
  Expirer& expirer_;
  Segments& segments_;
  SegmentMerge merge_;
  bool passing_ = false;
  bool merged_ = false;      // in this pass
  uint64_t position_ = 0;    // of the pass: hash bits, reversed; above 32 bits: the end
  uint64_t words_most_ = 0;  // occupied at some time since the last pass
  absl::Time short_pass_from_ = absl::InfinitePast();
};

}  // namespace osprey::index

#endif  // OSPREY_INDEX_WRITER_MERGER_H_
