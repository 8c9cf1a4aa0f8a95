#include "index/item_space.h"

#include <algorithm>
#include <bit>
#include <cassert>

namespace osprey::index {
namespace {

// Retired items that one Allocate frees at most when their time has come: more than it takes, so
// that they do not pile up, and few, so that no write pays for many.
constexpr int kFreedPerAllocate = 4;
// Likewise ended leases.
constexpr int kLeasesEndedPerAllocate = 2;

constexpr uint64_t kSmallestChunkBytes = 48;  // a header, a key of one byte, rounded to a class
constexpr uint64_t kSlabPagesMin = 4;         // fewer slabs to keep account of
constexpr uint64_t kSlabPagesMax = 16;
constexpr uint64_t kSlabChunksMin = 8;

// How many pages a slab of such chunks has: the fewest that leave at most 1/16 unused.
constexpr uint64_t SlabPages(uint64_t chunk_bytes) {
  for (uint64_t pages = kSlabPagesMin; pages < kSlabPagesMax; ++pages) {
    const uint64_t bytes = pages * kPageBytes;
    if (bytes / chunk_bytes >= kSlabChunksMin && bytes % chunk_bytes * 16 <= bytes) return pages;
  }
  return kSlabPagesMax;
}
constexpr uint64_t SlabChunks(uint64_t chunk_bytes) {
  return SlabPages(chunk_bytes) * kPageBytes / chunk_bytes;
}
static_assert(SlabChunks(kSmallestChunkBytes) <= 384);
static_assert(SlabChunks(kChunkBytesMax) == kSlabChunksMin);

constexpr uint64_t PagesOf(uint64_t bytes) { return (bytes + kPageBytes - 1) / kPageBytes; }

}  // namespace

ItemSpace::ItemSpace(RegionSpace& space, absl::Duration grace) : pages_(space), grace_(grace) {}

absl::optional<uint64_t> ItemSpace::Allocate(uint64_t bytes, absl::Time now) {
  assert(bytes > 0 && bytes <= kItemBytesMax);
  Tidy(now);
  absl::optional<uint64_t> offset = TryAllocate(bytes);
  // Want of memory: what is dead is used before its time. Bounded by what waits.
  while (!offset.has_value() && FreeOldest(now)) offset = TryAllocate(bytes);
  if (offset.has_value()) allocated_bytes_ += CapacityOf(*offset);
  return offset;
}

absl::optional<uint64_t> ItemSpace::TryAllocate(uint64_t bytes) {
  if (bytes > kChunkBytesMax) return TryRun(bytes);
  const uint32_t length_class = LengthClassOf(std::max(bytes, kSmallestChunkBytes));
  const absl::optional<uint64_t> offset = TryChunk(length_class);
  return offset.has_value() ? offset : TryLargerChunk(length_class);
}

absl::optional<uint64_t> ItemSpace::TryRun(uint64_t bytes) {
  const absl::optional<uint64_t> offset = pages_.Take(PagesOf(bytes), kLargeOwner);
  if (offset.has_value()) runs_[*offset] = PagesOf(bytes);
  return offset;
}

absl::optional<uint64_t> ItemSpace::TryChunk(uint32_t length_class) {
  if (partial_[length_class].empty() && !AddSlab(length_class)) return absl::nullopt;
  return TakeChunk(pages_.OwnerOf(*partial_[length_class].rbegin()) - 1);
}

// When there are no pages for another slab: a free chunk of up to twice the size is better than
// none.
absl::optional<uint64_t> ItemSpace::TryLargerChunk(uint32_t length_class) {
  const uint64_t bytes_max = std::min(2 * ReadLengthOf(length_class), kChunkBytesMax);
  for (uint32_t larger = length_class + 1; larger <= LengthClassOf(bytes_max); ++larger) {
    if (!partial_[larger].empty()) return TakeChunk(pages_.OwnerOf(*partial_[larger].rbegin()) - 1);
  }
  return absl::nullopt;
}

bool ItemSpace::AddSlab(uint32_t length_class) {
  const uint64_t chunk_bytes = ReadLengthOf(length_class);
  const bool recycled = !unused_slabs_.empty();
  const uint32_t number = recycled ? unused_slabs_.back() : static_cast<uint32_t>(slabs_.size());
  const absl::optional<uint64_t> offset = pages_.Take(SlabPages(chunk_bytes), number + 1);
  if (!offset.has_value()) return false;
  if (recycled) {
    unused_slabs_.pop_back();
  } else {
    slabs_.emplace_back();
  }
  Slab& slab = slabs_[number];
  slab.offset = *offset;
  slab.length_class = static_cast<uint16_t>(length_class);
  slab.free_chunks = static_cast<uint16_t>(SlabChunks(chunk_bytes));
  for (uint32_t i = 0; i < slab.free_chunks; ++i) slab.free[i / 64] |= uint64_t{1} << i % 64;
  partial_[length_class].insert(*offset);
  return true;
}

uint64_t ItemSpace::TakeChunk(uint32_t slab_number) {
  Slab& slab = slabs_[slab_number];
  assert(slab.free_chunks > 0);
  uint32_t word = 0;
  while (slab.free[word] == 0) ++word;
  const uint32_t chunk = word * 64 + static_cast<uint32_t>(std::countr_zero(slab.free[word]));
  slab.free[word] &= slab.free[word] - 1;
  if (--slab.free_chunks == 0) partial_[slab.length_class].erase(slab.offset);
  return slab.offset + chunk * ReadLengthOf(slab.length_class);
}

void ItemSpace::FreeChunk(uint64_t offset, uint32_t slab_number) {
  Slab& slab = slabs_[slab_number];
  const uint64_t chunk_bytes = ReadLengthOf(slab.length_class);
  const uint64_t chunk = (offset - slab.offset) / chunk_bytes;
  assert((offset - slab.offset) % chunk_bytes == 0);
  assert((slab.free[chunk / 64] >> chunk % 64 & 1) == 0);  // freed twice
  slab.free[chunk / 64] |= uint64_t{1} << chunk % 64;
  if (slab.free_chunks++ == 0) partial_[slab.length_class].insert(slab.offset);
  if (slab.free_chunks < SlabChunks(chunk_bytes)) return;
  partial_[slab.length_class].erase(slab.offset);
  pages_.Release(slab.offset, SlabPages(chunk_bytes));
  slab = {};
  unused_slabs_.push_back(slab_number);
}

uint64_t ItemSpace::CapacityOf(uint64_t offset) const {
  const uint32_t owner = pages_.OwnerOf(offset);
  assert(owner != 0);
  if (owner == kLargeOwner) return runs_.find(offset)->second * kPageBytes;
  return ReadLengthOf(slabs_[owner - 1].length_class);
}

bool ItemSpace::IsAllocated(uint64_t offset) const {
  if (!pages_.IsTaken(offset)) return false;
  const uint32_t owner = pages_.OwnerOf(offset);
  if (owner == kLargeOwner) return runs_.contains(offset);
  const Slab& slab = slabs_[owner - 1];
  const uint64_t chunk_bytes = ReadLengthOf(slab.length_class);
  const uint64_t chunk = (offset - slab.offset) / chunk_bytes;
  return (offset - slab.offset) % chunk_bytes == 0 && chunk < SlabChunks(chunk_bytes) &&
         (slab.free[chunk / 64] >> chunk % 64 & 1) == 0;
}

void ItemSpace::Free(uint64_t offset) {
  allocated_bytes_ -= CapacityOf(offset);
  const uint32_t owner = pages_.OwnerOf(offset);
  if (owner != kLargeOwner) return FreeChunk(offset, owner - 1);
  const auto run = runs_.find(offset);
  pages_.Release(offset, run->second);
  runs_.erase(run);
}

void ItemSpace::Release(uint64_t offset) { Free(offset); }

void ItemSpace::Retire(uint64_t offset, absl::Time now) {
  waiting_bytes_ += CapacityOf(offset);
  waiting_.push_back({offset, now + grace_});
}

// Frees the item that has waited longest, or lets it wait for the end of its lease. False when none
// waits.
bool ItemSpace::FreeOldest(absl::Time now) {
  if (waiting_.empty()) return false;
  const uint64_t offset = waiting_.front().offset;
  waiting_.pop_front();
  const auto lease = leases_.find(offset);
  if (lease != leases_.end() && lease->second > now) {
    leased_dead_.insert(offset);
    return true;
  }
  waiting_bytes_ -= CapacityOf(offset);
  Free(offset);
  return true;
}

void ItemSpace::Tidy(absl::Time now) {
  for (int i = 0; i < kFreedPerAllocate; ++i) {
    if (waiting_.empty() || waiting_.front().until > now) break;
    FreeOldest(now);
  }
  for (int i = 0; i < kLeasesEndedPerAllocate; ++i) {
    if (lease_order_.empty() || lease_order_.front().until > now) break;
    const uint64_t offset = lease_order_.front().offset;
    lease_order_.pop_front();
    const auto lease = leases_.find(offset);
    if (lease == leases_.end() || lease->second > now) continue;  // renewed
    leases_.erase(lease);
    if (leased_dead_.erase(offset) == 0) continue;
    waiting_bytes_ -= CapacityOf(offset);
    Free(offset);
  }
}

void ItemSpace::Lease(uint64_t offset, absl::Time until) {
  absl::Time& lease = leases_.try_emplace(offset, absl::InfinitePast()).first->second;
  if (until <= lease) return;
  lease = until;
  lease_order_.push_back({offset, until});
}

ItemSpace::Stats ItemSpace::stats() const {
  Stats stats;
  stats.used_bytes = allocated_bytes_ - waiting_bytes_;
  stats.waiting_bytes = waiting_bytes_;
  stats.page_bytes = pages_.pages() * kPageBytes;
  stats.slabs = slabs_.size() - unused_slabs_.size();
  stats.free_page_bytes = pages_.free_pages() * kPageBytes;
  stats.free_runs = pages_.free_runs();
  return stats;
}

}  // namespace osprey::index
