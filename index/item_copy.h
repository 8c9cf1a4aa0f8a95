// A copy of an item on its way: made piece by piece beside the original, which lives on until the
// copy takes its place. Nobody can read the copy before it is sealed.

#ifndef OSPREY_INDEX_ITEM_COPY_H_
#define OSPREY_INDEX_ITEM_COPY_H_

#include <cstdint>
#include <memory>

#include "absl/types/optional.h"
#include "index/hash.h"
#include "index/item_store.h"
#include "index/layout.h"
#include "index/record.h"
#include "index/writer.h"

namespace osprey::index {

// Not thread-safe. Between two calls anything may be written to the region: what became of the
// original is seen by unchanged().
class ItemCopy {
 public:
  // Begins a copy of the live item at `from` to the `to` that was allocated for it. Draws a cas
  // version, so that the copy's record is another than any that was at `to` before (W1). `writer`
  // must outlive this.
  ItemCopy(RegionWriter& writer, uint64_t from, uint64_t to, uint64_t item_bytes);

  uint64_t from() const { return from_; }
  uint64_t to() const { return to_; }
  uint64_t bytes() const { return bytes_; }
  // The original is still the record that it was.
  bool unchanged() const;
  bool complete() const { return done_ == bytes_; }
  // Copies at most about `bytes_max` more. REQUIRES: unchanged(), !complete().
  uint64_t Continue(uint64_t bytes_max);
  // REQUIRES: complete().
  Sealing Finish();

 private:
  RegionWriter* writer_;
  uint64_t from_;
  uint64_t to_;
  uint64_t bytes_;  // of the whole record
  uint64_t done_ = sizeof(ItemHeader);
  ItemHeader original_;
  uint64_t hash_ = 0;                    // of data copied in one piece
  std::unique_ptr<BytesHasher> hasher_;  // of several
};

}  // namespace osprey::index

#endif  // OSPREY_INDEX_ITEM_COPY_H_
