// A copy of an item, made piece by piece beside the original. The original stays live until the
// copy replaces it. No reader accepts the copy before it is sealed.

#ifndef OSPREY_INDEX_SPACE_ITEM_COPY_H_
#define OSPREY_INDEX_SPACE_ITEM_COPY_H_

#include <cstdint>
#include <memory>

#include "absl/types/optional.h"
#include "index/layout/hash.h"
#include "index/layout/layout.h"
#include "index/layout/record.h"
#include "index/space/item_store.h"
#include "index/space/region_writer.h"

namespace osprey::index {

// Not thread-safe. Between two calls anything may be written to the region. unchanged() shows
// whether the original is still the same.
class ItemCopy {
 public:
  // Begins a copy of the live item at `from` to `to`, which was allocated for it. Draws a cas
  // version, so that the copy's record differs from any earlier one at `to` (W1). `writer` must
  // outlive this.
  ItemCopy(RegionWriter& writer, uint64_t from, uint64_t to, uint64_t item_bytes);

  uint64_t from() const { return from_; }
  uint64_t to() const { return to_; }
  uint64_t bytes() const { return bytes_; }
  // Whether the original is still the same record.
  bool unchanged() const;
  bool complete() const { return done_ == bytes_; }
  // Copies about `bytes_max` more at most. REQUIRES: unchanged(), !complete().
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
  uint64_t hash_ = 0;                    // of data that was copied in one piece
  std::unique_ptr<BytesHasher> hasher_;  // of data that was copied in several pieces
};

}  // namespace osprey::index

#endif  // OSPREY_INDEX_SPACE_ITEM_COPY_H_
