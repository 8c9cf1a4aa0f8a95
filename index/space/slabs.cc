#include "index/space/slabs.h"

#include <algorithm>
#include <bit>
#include <cassert>

namespace osprey::index {
namespace {

constexpr uint64_t kSlabPagesMin = 4;  // keeps the number of slabs low
constexpr uint64_t kSlabPagesMax = 16;
// Of a small region, a slab takes at most this part: each class leaves part of a slab unused.
constexpr uint64_t kSlabShareInverse = 64;
constexpr uint64_t kSlabChunksMin = 8;

// The fewest pages of a slab that leave at most one `share` of them unused.
constexpr uint64_t SlabPagesFor(uint64_t chunk_bytes, uint64_t pages_min, uint64_t chunks_min,
                                uint64_t share) {
  for (uint64_t pages = pages_min; pages < kSlabPagesMax; ++pages) {
    const uint64_t bytes = pages * kPageBytes;
    if (bytes / chunk_bytes >= chunks_min && bytes % chunk_bytes * share <= bytes) return pages;
  }
  return kSlabPagesMax;
}
// The pages of a slab of such chunks, and the minimum if no such run is free.
constexpr uint64_t SlabPages(uint64_t chunk_bytes) {
  return SlabPagesFor(chunk_bytes, kSlabPagesMin, kSlabChunksMin, 16);
}
constexpr uint64_t SlabPagesLeast(uint64_t chunk_bytes) {
  return SlabPagesFor(chunk_bytes, 1, 1, 8);
}
// Of up to so many pages: as many as leave at most an eighth of them unused, if there are.
constexpr uint64_t SlabPagesUpTo(uint64_t chunk_bytes, uint64_t pages_max) {
  uint64_t pages = std::min(SlabPages(chunk_bytes), pages_max);
  const uint64_t least = SlabPagesLeast(chunk_bytes);
  while (pages > least && pages * kPageBytes % chunk_bytes * 8 > pages * kPageBytes) --pages;
  return std::max(pages, least);
}
static_assert(SlabPages(kSmallestChunkBytes) * kPageBytes / kSmallestChunkBytes <= 384);
static_assert(SlabPages(kChunkBytesMax) * kPageBytes / kChunkBytesMax == kSlabChunksMin);

}  // namespace

Slabs::Slabs(RegionSpace& space)
    : pages_(space),
      slab_pages_max_(std::clamp<uint64_t>(space.pages() / kSlabShareInverse, 1, kSlabPagesMax)) {}

uint64_t Slabs::PagesFor(uint32_t length_class) const {
  return SlabPagesUpTo(ReadLengthOf(length_class), slab_pages_max_);
}

uint64_t Slabs::FewestPages(uint32_t length_class) {
  return SlabPagesLeast(ReadLengthOf(length_class));
}

absl::optional<uint64_t> Slabs::Take(uint32_t length_class) {
  if (partial_[length_class].empty() && !Add(length_class)) return absl::nullopt;
  return TakeFrom(pages_.OwnerOf(*partial_[length_class].rbegin()) - 1);
}

// Used if there are no pages for another slab.
absl::optional<uint64_t> Slabs::TakeLarger(uint32_t length_class, uint64_t bytes_max) {
  for (uint32_t larger = length_class + 1; larger <= LengthClassOf(bytes_max); ++larger) {
    if (!partial_[larger].empty()) return TakeFrom(pages_.OwnerOf(*partial_[larger].rbegin()) - 1);
  }
  return absl::nullopt;
}

bool Slabs::Add(uint32_t length_class) {
  const uint64_t chunk_bytes = ReadLengthOf(length_class);
  const bool recycled = !unused_slabs_.empty();
  const uint32_t number = recycled ? unused_slabs_.back() : static_cast<uint32_t>(slabs_.size());
  uint64_t pages = PagesFor(length_class);
  absl::optional<uint64_t> offset = pages_.Take(pages, number + 1);
  if (!offset.has_value() && pages > SlabPagesLeast(chunk_bytes)) {
    // A shorter run still holds a few chunks.
    pages = SlabPagesUpTo(chunk_bytes, std::min(pages - 1, pages_.largest_run()));
    offset = pages_.Take(pages, number + 1);
  }
  if (!offset.has_value()) return false;
  if (recycled) {
    unused_slabs_.pop_back();
  } else {
    slabs_.emplace_back();
  }
  Slab& slab = slabs_[number];
  slab.offset = *offset;
  slab.length_class = static_cast<uint16_t>(length_class);
  slab.pages = static_cast<uint16_t>(pages);
  slab.chunks = static_cast<uint16_t>(pages * kPageBytes / chunk_bytes);
  slab.free_chunks = slab.chunks;
  for (uint32_t i = 0; i < slab.free_chunks; ++i) slab.free[i / 64] |= uint64_t{1} << i % 64;
  slab.closed = true;  // not yet counted
  SetClosed(number, false);
  return true;
}

uint64_t Slabs::TakeFrom(uint32_t slab_number) {
  Slab& slab = slabs_[slab_number];
  assert(slab.free_chunks > 0);
  uint32_t word = 0;
  while (slab.free[word] == 0) ++word;
  const uint32_t chunk = word * 64 + static_cast<uint32_t>(std::countr_zero(slab.free[word]));
  slab.free[word] &= slab.free[word] - 1;
  --free_chunks_[slab.length_class];
  free_chunk_bytes_ -= ReadLengthOf(slab.length_class);
  if (--slab.free_chunks == 0) partial_[slab.length_class].erase(slab.offset);
  return slab.offset + chunk * ReadLengthOf(slab.length_class);
}

void Slabs::TakeAt(uint64_t offset) {
  Slab& slab = slabs_[pages_.OwnerOf(offset) - 1];
  assert(!slab.closed && IsFree(offset));
  const uint64_t chunk_bytes = ReadLengthOf(slab.length_class);
  const uint64_t chunk = (offset - slab.offset) / chunk_bytes;
  slab.free[chunk / 64] &= ~(uint64_t{1} << chunk % 64);
  --free_chunks_[slab.length_class];
  free_chunk_bytes_ -= chunk_bytes;
  if (--slab.free_chunks == 0) partial_[slab.length_class].erase(slab.offset);
}

void Slabs::Free(uint64_t offset, uint32_t slab_number) {
  Slab& slab = slabs_[slab_number];
  const uint64_t chunk_bytes = ReadLengthOf(slab.length_class);
  const uint64_t chunk = (offset - slab.offset) / chunk_bytes;
  assert((offset - slab.offset) % chunk_bytes == 0);
  assert((slab.free[chunk / 64] >> chunk % 64 & 1) == 0);  // freed twice
  slab.free[chunk / 64] |= uint64_t{1} << chunk % 64;
  if (!slab.closed) {
    if (slab.free_chunks == 0) partial_[slab.length_class].insert(slab.offset);
    ++free_chunks_[slab.length_class];
    free_chunk_bytes_ += chunk_bytes;
  }
  if (++slab.free_chunks < slab.chunks) return;
  SetClosed(slab_number, true);
  pages_.Free(slab.offset, slab.pages);
  slab = {};
  unused_slabs_.push_back(slab_number);
}

// A closed slab's free chunks are neither counted nor used.
void Slabs::SetClosed(uint32_t slab_number, bool closed) {
  Slab& slab = slabs_[slab_number];
  if (slab.closed == closed) return;
  slab.closed = closed;
  if (slab.free_chunks == 0) return;
  const uint64_t bytes = slab.free_chunks * ReadLengthOf(slab.length_class);
  if (closed) {
    partial_[slab.length_class].erase(slab.offset);
    free_chunks_[slab.length_class] -= slab.free_chunks;
    free_chunk_bytes_ -= bytes;
  } else {
    partial_[slab.length_class].insert(slab.offset);
    free_chunks_[slab.length_class] += slab.free_chunks;
    free_chunk_bytes_ += bytes;
  }
}

}  // namespace osprey::index
