// Growth of the table: which segments are too full and split, and when the directory doubles.

#ifndef OSPREY_INDEX_WRITER_GROWER_H_
#define OSPREY_INDEX_WRITER_GROWER_H_

#include <cstdint>
#include <deque>

#include "absl/time/time.h"
#include "index/segments/segment_split.h"
#include "index/writer/keys/evictor.h"
#include "index/writer/keys/expirer.h"
#include "index/writer/keys/keys.h"
#include "index/writer/keys/placement.h"
#include "index/writer/line_walk.h"
#include "index/writer/segments.h"

namespace osprey::index {

// Not thread-safe.
class Grower {
 public:
  // All must outlive this.
  Grower(Keys& keys, Placement& placement, Expirer& expirer, Evictor& evictor, Segments& segments);

  // After a write that may have filled the key's segment.
  void NoteLoad(const Location& at);
  bool Wanted() const { return keys_.directory.doubling() || !wants_split_.empty(); }
  // As Table::GrowStep. True if there is more to do now.
  bool Step(absl::Time now);
  // As Table::DepthOf.
  static uint32_t DepthOf(uint64_t keys);
  // As Table::RestoreDepths.
  void GrowTo(KeyHash hash, const SegmentDepths& depths, absl::Time now);

 private:
  bool MayDouble() const;
  bool Deepen(uint32_t hash_bits, absl::Time now);
  bool Split(uint32_t hash_bits, DirectoryEntry old, absl::Time now);
  void PromoteIn(DirectoryEntry entry, absl::Time now);

  Keys& keys_;
  Placement& placement_;
  Expirer& expirer_;
  Evictor& evictor_;
  Segments& segments_;
  SegmentSplit split_;
  std::deque<uint32_t> wants_split_;  // the low hash bits of a key in each
};

}  // namespace osprey::index

#endif  // OSPREY_INDEX_WRITER_GROWER_H_
