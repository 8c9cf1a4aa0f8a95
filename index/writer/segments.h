// The segments of the index: how they begin and end (W7). A split, a merge and a move are one step
// each, which ends some segments and begins others in their place.
//
//              ends       begins
//   split      A          B, C       a segment that is full (grower.h)
//   merge      B, C       D          two halves with few keys (merger.h)
//   move       A          A'         so that its unit becomes free (merger.h)

#ifndef OSPREY_INDEX_WRITER_SEGMENTS_H_
#define OSPREY_INDEX_WRITER_SEGMENTS_H_

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "index/layout/layout.h"
#include "index/segments/segment_image.h"
#include "index/writer/keys/expirer.h"
#include "index/writer/keys/keys.h"

namespace osprey::index {

class Table;

// How much deeper the directory may be than its shallowest segment, which then has
// 2^kDepthSpreadMax entries. This bounds the pages that one split or merge writes. Segments of hashed
// keys differ by one or two.
inline constexpr uint32_t kDepthSpreadMax = 4;

// An upper bound of the cas versions that Replace draws, and then the promotions or before it the
// demotions of the same step: each may need one for its line and one for its item.
inline constexpr uint64_t kCasVersionsPerReplaceMax =
    2 * 2 * kLinesPerUnit * uint64_t{kLineWordsUsable};

// Not thread-safe.
class Segments {
 public:
  // All must outlive this. `table`: for the observers of tests alone.
  Segments(Keys& keys, Expirer& expirer, Table& table)
      : keys_(keys), expirer_(expirer), table_(table), of_depth_(kDirectoryDepthMax + 1) {}

  // Writes the first segment and the directory. REQUIRES: nothing has been written.
  void LayOut();

  // A segment that begins: its image, and the `depth` low bits that its keys' hashes share.
  struct Begun {
    const SegmentImage* image = nullptr;
    uint32_t hash_bits = 0;
    uint32_t depth = 0;
    DirectoryEntry entry;  // as Replace returns it
  };
  // Ends the segments `ended` and begins others with the same keys. Nothing else is written between
  // the first copy and the last rewrite. False: there is no space, and nothing has changed.
  // REQUIRES: kCasVersionsPerReplaceMax versions are left.
  bool Replace(absl::Span<const DirectoryEntry> ended, absl::Span<Begun> begun);

  uint64_t count() const { return count_; }
  uint64_t OfDepth(uint32_t depth) const { return of_depth_[depth]; }
  // The depth of the shallowest segment.
  uint32_t ShallowestDepth() const;
  // The words that the keys of `segments` segments can take.
  static constexpr uint64_t Words(uint64_t segments) {
    return segments * kLinesPerUnit * kLineWordsUsable;
  }

 private:
  DirectoryEntry Begin(uint32_t hash_bits, uint32_t depth);
  void Write(const SegmentImage& image, DirectoryEntry entry);
  void WriteEmpty(DirectoryEntry entry);
  void End(DirectoryEntry entry);

  Keys& keys_;
  Expirer& expirer_;
  Table& table_;
  uint32_t generation_ = 0;  // the last used
  uint64_t count_ = 0;
  std::vector<uint64_t> of_depth_;
};

}  // namespace osprey::index

#endif  // OSPREY_INDEX_WRITER_SEGMENTS_H_
