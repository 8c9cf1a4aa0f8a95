// Growth of the table (W7): which segments are too full, how one splits, and how the directory
// doubles.

#ifndef OSPREY_INDEX_WRITER_GROWER_H_
#define OSPREY_INDEX_WRITER_GROWER_H_

#include <cstdint>
#include <deque>
#include <vector>

#include "absl/time/time.h"
#include "index/writer/evictor.h"
#include "index/writer/expirer.h"
#include "index/writer/keys.h"
#include "index/writer/placement.h"
#include "index/writer/segment_split.h"

namespace osprey::index {

class Table;

// Not thread-safe.
class Grower {
 public:
  // All must outlive this. `table`: for the observers of tests alone.
  Grower(Keys& keys, Placement& placement, Expirer& expirer, Evictor& evictor, Table& table);

  // Writes the first segment and the directory. REQUIRES: nothing has been written.
  void LayOut();
  // After a write that may have filled the key's segment.
  void NoteLoad(const Location& at);
  // As Table::GrowStep and Table::GrowthWanted.
  bool Step(absl::Time now);
  bool Wanted() const { return keys_.directory.doubling() || !wants_split_.empty(); }

  uint64_t segments() const;

 private:
  DirectoryEntry NewSegment(uint32_t depth);
  bool MayDouble() const;
  bool Split(uint32_t hash_bits, DirectoryEntry old, absl::Time now);
  void PromoteIn(DirectoryEntry entry, absl::Time now);
  void WriteHalf(const SegmentSplit::Half& half, DirectoryEntry entry, uint64_t expires_from_ns);
  void WriteEmptyHalf(DirectoryEntry entry);
  void Poison(DirectoryEntry old);

  Keys& keys_;
  Placement& placement_;
  Expirer& expirer_;
  Evictor& evictor_;
  Table& table_;
  SegmentSplit split_;
  uint32_t generation_ = 0;  // the last used
  std::vector<uint64_t> segments_of_depth_;
  std::deque<uint32_t> wants_split_;  // the low hash bits of a key in each
};

}  // namespace osprey::index

#endif  // OSPREY_INDEX_WRITER_GROWER_H_
