// Slabs: runs of pages, each in chunks of one size class, with a bitmap of the free ones. An item of up
// to 8 KiB takes a chunk (item_space.h).

#ifndef OSPREY_INDEX_SPACE_SLABS_H_
#define OSPREY_INDEX_SPACE_SLABS_H_

#include <array>
#include <cstdint>
#include <vector>

#include "absl/container/btree_set.h"
#include "absl/types/optional.h"
#include "index/layout/layout.h"
#include "index/space/region_space.h"

namespace osprey::index {

// The largest chunk of a slab. Above it, rounding up to pages costs no more than a slab of few
// chunks.
inline constexpr uint64_t kChunkBytesMax = 8192;
inline constexpr uint64_t kSmallestChunkBytes =
    48;  // a header, a key of one byte, rounded to a class

// A page of a slab belongs to the owner 1 + the slab's number. Not thread-safe. Offsets are from the
// start of the region.
class Slabs {
 public:
  static constexpr uint32_t kClasses = LengthClassOf(kChunkBytesMax) + 1;
  // The smallest chunks (48 B) in 16 KiB.
  static constexpr uint32_t kChunksMax = 384;

  struct Slab {
    uint64_t offset = 0;
    uint16_t length_class = 0;
    uint16_t pages = 0;
    uint16_t chunks = 0;
    uint16_t free_chunks = 0;
    bool closed = false;                  // its free chunks are not counted
    uint64_t free[kChunksMax / 64] = {};  // a bit per chunk
    bool is_free(uint64_t chunk) const { return (free[chunk / 64] >> chunk % 64 & 1) != 0; }
  };

  // `space` must outlive this.
  explicit Slabs(RegionSpace& space);

  // Pages of a new slab, and the smallest number of them.
  uint64_t PagesFor(uint32_t length_class) const;
  static uint64_t FewestPages(uint32_t length_class);

  // Allocates a chunk of the class, of a new slab if there is none; nullopt if there are no pages.
  absl::optional<uint64_t> Take(uint32_t length_class);
  // The same of the next larger class that has one, up to `bytes_max`, of present slabs only.
  absl::optional<uint64_t> TakeLarger(uint32_t length_class, uint64_t bytes_max);
  // REQUIRES: it is free, and its slab is not closed.
  void TakeAt(uint64_t offset);
  // Frees the chunk at `offset`, of that slab. A slab without used chunks gives its pages back.
  void Free(uint64_t offset, uint32_t slab_number);

  // REQUIRES: there is a slab of that number; a slab contains `offset`.
  const Slab& operator[](uint32_t slab_number) const { return slabs_[slab_number]; }
  const Slab& At(uint64_t offset) const { return slabs_[pages_.OwnerOf(offset) - 1]; }
  bool IsFree(uint64_t offset) const {
    const Slab& slab = At(offset);
    const uint64_t chunk = (offset - slab.offset) / ReadLengthOf(slab.length_class);
    return slab.is_free(chunk);
  }
  // A closed slab's free chunks are neither counted nor used.
  void SetClosed(uint32_t slab_number, bool closed);

  // Of those that are not closed: offsets of the class's slabs with a free chunk; free chunks of the
  // class; and their bytes, of all classes.
  const absl::btree_set<uint64_t>& with_free(uint32_t length_class) const {
    return partial_[length_class];
  }
  uint64_t free_chunks(uint32_t length_class) const { return free_chunks_[length_class]; }
  uint64_t free_bytes() const { return free_chunk_bytes_; }
  uint64_t count() const { return slabs_.size() - unused_slabs_.size(); }

 private:
  bool Add(uint32_t length_class);
  uint64_t TakeFrom(uint32_t slab_number);

  RegionSpace& pages_;
  const uint64_t slab_pages_max_;
  std::vector<Slab> slabs_;
  std::vector<uint32_t> unused_slabs_;  // numbers
  // The highest is used first, so that those next to the index become empty.
  std::array<absl::btree_set<uint64_t>, kClasses> partial_;
  std::array<uint64_t, kClasses> free_chunks_{};  // in the slabs of partial_
  uint64_t free_chunk_bytes_ = 0;                 // likewise, of all classes
};

}  // namespace osprey::index

#endif  // OSPREY_INDEX_SPACE_SLABS_H_
