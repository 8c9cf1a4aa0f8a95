#include "index/space/item_space.h"

#include <algorithm>
#include <bit>
#include <cassert>
#include <iterator>
#include <tuple>

namespace osprey::index {
namespace {

constexpr uint64_t kSmallestChunkBytes = 48;  // a header, a key of one byte, rounded to a class
constexpr uint64_t kSlabPagesMin = 4;         // keeps the number of slabs low
constexpr uint64_t kSlabPagesMax = 16;
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
static_assert(SlabPages(kSmallestChunkBytes) * kPageBytes / kSmallestChunkBytes <= 384);
static_assert(SlabPages(kChunkBytesMax) * kPageBytes / kChunkBytesMax == kSlabChunksMin);

// Chunks of one span, and so the most items that move for one write.
constexpr uint64_t kSpanChunksMax = 64;
// Slabs of a class that are searched for a span.
constexpr int kSpanSlabsSeenMax = 16;

// Of the region, so much may wait, but never less than the bytes. One key of 4 MiB that is rewritten
// without a pause would have more than a gigabyte wait otherwise.
constexpr uint64_t kWaitingShare = 16;
constexpr uint64_t kWaitingBytesLeast = 16 << 20;
// Items that are freed early for one that is retired.
constexpr int kFreedPerRetire = 4;

constexpr uint64_t PagesOf(uint64_t bytes) { return (bytes + kPageBytes - 1) / kPageBytes; }

}  // namespace

ItemSpace::ItemSpace(RegionSpace& space, absl::Duration grace)
    : pages_(space),
      quarantine_(grace, std::max(space.end() / kWaitingShare, kWaitingBytesLeast)) {}

absl::optional<uint64_t> ItemSpace::Allocate(uint64_t bytes, absl::Time now, Fit fit) {
  assert(bytes > 0 && bytes <= kItemBytesMax);
  FreeDue(now);
  absl::optional<uint64_t> offset = TakeFree(bytes, Fit::kTight);
  // Memory is short: dead space is reused before its grace period ends. Bounded by the items that
  // wait.
  while (!offset.has_value() && FreeOldest(now)) offset = TakeFree(bytes, Fit::kTight);
  if (!offset.has_value() && fit != Fit::kTight) offset = TakeFree(bytes, fit);
  return offset;
}

absl::optional<uint64_t> ItemSpace::AllocateForMove(uint64_t bytes, Fit fit) {
  return TakeFree(bytes, fit);
}

absl::optional<uint64_t> ItemSpace::TakeRun(uint64_t pages) {
  const absl::optional<uint64_t> offset = TryRun(pages * kPageBytes);
  if (offset.has_value()) allocated_bytes_ += pages * kPageBytes;
  return offset;
}

absl::optional<uint64_t> ItemSpace::TakeFree(uint64_t bytes, Fit fit) {
  const absl::optional<uint64_t> offset = TryAllocate(bytes, fit);
  if (offset.has_value()) allocated_bytes_ += CapacityOf(*offset);
  return offset;
}

absl::optional<uint64_t> ItemSpace::TryAllocate(uint64_t bytes, Fit fit) {
  if (bytes > kChunkBytesMax) return TryRun(bytes);
  const uint32_t length_class = LengthClassOf(std::max(bytes, kSmallestChunkBytes));
  absl::optional<uint64_t> offset = TryChunk(length_class);
  if (offset.has_value() || fit == Fit::kTight) return offset;
  offset = TryLargerChunk(length_class, std::min(2 * ReadLengthOf(length_class), kChunkBytesMax));
  if (offset.has_value() || fit == Fit::kLoose) return offset;
  offset = TryRun(bytes);
  return offset.has_value() ? offset : TryLargerChunk(length_class, kChunkBytesMax);
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

// Used if there are no pages for another slab.
absl::optional<uint64_t> ItemSpace::TryLargerChunk(uint32_t length_class, uint64_t bytes_max) {
  for (uint32_t larger = length_class + 1; larger <= LengthClassOf(bytes_max); ++larger) {
    if (!partial_[larger].empty()) return TakeChunk(pages_.OwnerOf(*partial_[larger].rbegin()) - 1);
  }
  return absl::nullopt;
}

bool ItemSpace::AddSlab(uint32_t length_class) {
  const uint64_t chunk_bytes = ReadLengthOf(length_class);
  const bool recycled = !unused_slabs_.empty();
  const uint32_t number = recycled ? unused_slabs_.back() : static_cast<uint32_t>(slabs_.size());
  uint64_t pages = SlabPages(chunk_bytes);
  absl::optional<uint64_t> offset = pages_.Take(pages, number + 1);
  if (!offset.has_value()) {
    // A shorter run still holds a few chunks.
    pages = std::min(pages - 1, LargestFreeRun());
    const uint64_t pages_least = SlabPagesLeast(chunk_bytes);
    while (pages > pages_least && pages * kPageBytes % chunk_bytes * 8 > pages * kPageBytes)
      --pages;
    if (pages >= pages_least) offset = pages_.Take(pages, number + 1);
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
  SetSlabClosed(number, false);
  return true;
}

uint64_t ItemSpace::TakeChunk(uint32_t slab_number) {
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

void ItemSpace::FreeChunk(uint64_t offset, uint32_t slab_number) {
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
  SetSlabClosed(slab_number, true);
  pages_.Free(slab.offset, slab.pages);
  slab = {};
  unused_slabs_.push_back(slab_number);
}

// A closed slab's free chunks are neither counted nor used.
void ItemSpace::SetSlabClosed(uint32_t slab_number, bool closed) {
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

uint64_t ItemSpace::CapacityOf(uint64_t offset) const {
  const uint32_t owner = pages_.OwnerOf(offset);
  assert(owner != 0);
  if (owner == kLargeOwner) return runs_.find(offset)->second * kPageBytes;
  if (!spans_.empty()) {
    const auto span = spans_.find(offset);
    if (span != spans_.end()) return span->second;
  }
  return ReadLengthOf(slabs_[owner - 1].length_class);
}

bool ItemSpace::IsAllocated(uint64_t offset) const {
  if (!pages_.IsTaken(offset)) return false;
  const uint32_t owner = pages_.OwnerOf(offset);
  if (owner == kLargeOwner) return runs_.contains(offset);
  const Slab& slab = slabs_[owner - 1];
  const uint64_t chunk_bytes = ReadLengthOf(slab.length_class);
  const uint64_t chunk = (offset - slab.offset) / chunk_bytes;
  return (offset - slab.offset) % chunk_bytes == 0 && chunk < slab.chunks &&
         (slab.free[chunk / 64] >> chunk % 64 & 1) == 0 &&
         (EndOfSpanAt(offset) == 0 || spans_.contains(offset));
}

void ItemSpace::Free(uint64_t offset) {
  const uint32_t owner = pages_.OwnerOf(offset);
  if (owner != kLargeOwner) {
    if (!spans_.empty()) return FreeSpan(offset, owner - 1);
    allocated_bytes_ -= ReadLengthOf(slabs_[owner - 1].length_class);
    return FreeChunk(offset, owner - 1);
  }
  const auto run = runs_.find(offset);
  allocated_bytes_ -= run->second * kPageBytes;
  pages_.Free(offset, run->second);
  runs_.erase(run);
}

// Several chunks, or one.
void ItemSpace::FreeSpan(uint64_t offset, uint32_t slab_number) {
  const uint64_t chunk_bytes = ReadLengthOf(slabs_[slab_number].length_class);
  const uint64_t end = offset + CapacityOf(offset);
  allocated_bytes_ -= end - offset;
  spans_.erase(offset);
  for (; offset < end; offset += chunk_bytes) FreeChunk(offset, slab_number);
}

void ItemSpace::Release(uint64_t offset) { Free(offset); }

void ItemSpace::Retire(uint64_t offset, absl::Time now) {
  quarantine_.Add(offset, CapacityOf(offset), now);
  for (int i = 0; i < kFreedPerRetire && quarantine_.is_full(); ++i) FreeOldest(now);
}

bool ItemSpace::FreeOldest(absl::Time now) {
  return quarantine_.FreeOldest(now, [this](uint64_t offset) { Free(offset); });
}

void ItemSpace::EndGrace(absl::Time now) { EndGraceOf(~uint64_t{0}, now); }

void ItemSpace::EndGraceOf(uint64_t count, absl::Time now) {
  while (count-- > 0 && FreeOldest(now)) {
  }
}

bool ItemSpace::FreeDue(absl::Time now) {
  return quarantine_.FreeDue(now, [this](uint64_t offset) { Free(offset); });
}

// --- For the compactor -------------------------------------------------------

uint64_t ItemSpace::PagesFor(uint64_t bytes) {
  if (bytes > kChunkBytesMax) return PagesOf(bytes);
  return SlabPages(ReadLengthOf(LengthClassOf(std::max(bytes, kSmallestChunkBytes))));
}

uint64_t ItemSpace::FewestSlabPages(uint32_t length_class) {
  return SlabPagesLeast(ReadLengthOf(length_class));
}

uint64_t ItemSpace::FreeBytes() const {
  return free_chunk_bytes_ + pages_.free_pages() * kPageBytes;
}

ItemSpace::Extent ItemSpace::ExtentAt(uint64_t offset) const {
  Extent extent;
  const uint32_t owner = pages_.OwnerOf(offset);
  if (owner == 0) {
    std::tie(extent.begin, extent.pages) = pages_.FreeRunAt(offset);
  } else if (owner == RegionSpace::kUnitOwner) {
    extent.kind = Extent::Kind::kUnit;
    extent.begin = pages_.UnitAt(offset);
    extent.pages = kPagesPerUnit;
    extent.used_bytes = kUnitBytes;
  } else if (owner == kLargeOwner) {
    extent.kind = Extent::Kind::kRun;
    std::tie(extent.begin, extent.pages) = *std::prev(runs_.upper_bound(offset));
    extent.used_bytes = extent.pages * kPageBytes;
  } else {
    const Slab& slab = slabs_[owner - 1];
    const uint64_t chunk_bytes = ReadLengthOf(slab.length_class);
    extent.kind = Extent::Kind::kSlab;
    extent.begin = slab.offset;
    extent.pages = slab.pages;
    extent.length_class = slab.length_class;
    extent.used_chunks = uint32_t{slab.chunks} - slab.free_chunks;
    extent.free_chunks = slab.closed ? 0 : slab.free_chunks;
    extent.used_bytes = extent.used_chunks * chunk_bytes;
  }
  return extent;
}

absl::optional<uint64_t> ItemSpace::NextItem(uint64_t from, uint64_t end) const {
  while (from < end) {
    const Extent extent = ExtentAt(from);
    if (extent.kind == Extent::Kind::kRun && extent.begin == from) return from;
    if (extent.kind == Extent::Kind::kSlab) {
      const Slab& slab = slabs_[pages_.OwnerOf(from) - 1];
      const uint64_t chunk_bytes = ReadLengthOf(slab.length_class);
      uint64_t chunk = (from - slab.offset + chunk_bytes - 1) / chunk_bytes;
      while (chunk < slab.chunks && (slab.free[chunk / 64] >> chunk % 64 & 1) != 0) ++chunk;
      if (chunk < slab.chunks) {
        const uint64_t offset = slab.offset + chunk * chunk_bytes;
        const uint64_t span_end = EndOfSpanAt(offset);
        if (span_end != 0 && !spans_.contains(offset)) {
          from = span_end;
          continue;
        }
        return offset < end ? absl::optional<uint64_t>(offset) : absl::nullopt;
      }
    }
    from = extent.end();
  }
  return absl::nullopt;
}

absl::optional<uint64_t> ItemSpace::NextUnit(uint64_t from, uint64_t end) const {
  while (from < end) {
    const Extent extent = ExtentAt(from);
    if (extent.kind == Extent::Kind::kUnit) return extent.begin;
    from = extent.end();
  }
  return absl::nullopt;
}

template <typename Function>
void ItemSpace::ForEachSlabIn(uint64_t begin, uint64_t end, Function&& function) {
  for (uint64_t at = begin; at < end;) {
    const Extent extent = ExtentAt(at);
    if (extent.kind == Extent::Kind::kSlab) function(pages_.OwnerOf(at) - 1);
    at = extent.end();
  }
}

// --- Spans -------------------------------------------------------------------

uint64_t ItemSpace::EndOfSpanAt(uint64_t offset) const {
  auto span = spans_.upper_bound(offset);
  if (span == spans_.begin()) return 0;
  --span;
  const uint64_t end = span->first + span->second;
  return offset < end ? end : 0;
}

bool ItemSpace::IsFreeChunk(uint64_t offset) const {
  const Slab& slab = slabs_[pages_.OwnerOf(offset) - 1];
  const uint64_t chunk = (offset - slab.offset) / ReadLengthOf(slab.length_class);
  return (slab.free[chunk / 64] >> chunk % 64 & 1) != 0;
}

void ItemSpace::TakeChunkAt(uint64_t offset) {
  Slab& slab = slabs_[pages_.OwnerOf(offset) - 1];
  assert(!slab.closed && IsFreeChunk(offset));
  const uint64_t chunk_bytes = ReadLengthOf(slab.length_class);
  const uint64_t chunk = (offset - slab.offset) / chunk_bytes;
  slab.free[chunk / 64] &= ~(uint64_t{1} << chunk % 64);
  --free_chunks_[slab.length_class];
  free_chunk_bytes_ -= chunk_bytes;
  if (--slab.free_chunks == 0) partial_[slab.length_class].erase(slab.offset);
  allocated_bytes_ += chunk_bytes;
}

// Longer chunks first: fewer items have to move.
absl::optional<ItemSpace::Span> ItemSpace::FindSpan(uint64_t bytes, absl::Time now) const {
  assert(bytes <= kChunkBytesMax);
  uint64_t free_chunks = 0;  // to which items of the class could move, or which are in the span
  for (uint32_t length_class = LengthClassOf(std::max(bytes, kSmallestChunkBytes));
       length_class-- > LengthClassOf(kSmallestChunkBytes);) {
    const uint64_t chunks = (bytes + ReadLengthOf(length_class) - 1) / ReadLengthOf(length_class);
    free_chunks += free_chunks_[length_class];
    if (chunks > kSpanChunksMax) break;
    if (free_chunks < chunks || partial_[length_class].empty()) continue;
    absl::optional<Span> best;
    int seen = 0;
    for (const uint64_t slab : partial_[length_class]) {
      if (++seen > kSpanSlabsSeenMax) break;
      absl::optional<Span> span = FindSpanIn(slabs_[pages_.OwnerOf(slab) - 1], chunks, now);
      if (!span.has_value()) continue;
      if (!best.has_value() || span->used.size() < best->used.size()) best = std::move(span);
    }
    if (best.has_value()) return best;
  }
  return absl::nullopt;
}

absl::optional<ItemSpace::Span> ItemSpace::FindSpanIn(const Slab& slab, uint64_t chunks,
                                                      absl::Time now) const {
  const uint64_t chunk_bytes = ReadLengthOf(slab.length_class);
  uint64_t run = 0;   // consecutive chunks up to here that may be part of it
  uint64_t free = 0;  // of the last `chunks` of them
  uint64_t best_free = 0, best_end = 0;
  for (uint64_t i = 0; i < slab.chunks; ++i) {
    const uint64_t offset = slab.offset + i * chunk_bytes;
    const bool is_free = IsFreeChunk(offset);
    if (!is_free && (EndOfSpanAt(offset) != 0 || quarantine_.IsLeased(offset, now))) {
      run = free = 0;
      continue;
    }
    free += is_free;
    if (++run > chunks) free -= IsFreeChunk(offset - chunks * chunk_bytes);
    if (run < chunks || free <= best_free) continue;
    best_free = free;
    best_end = i + 1;
  }
  if (best_free == 0) return absl::nullopt;
  Span span;
  span.begin = slab.offset + (best_end - chunks) * chunk_bytes;
  span.chunk_bytes = chunk_bytes;
  for (uint64_t i = 0; i < chunks; ++i) {
    const uint64_t offset = span.begin + i * chunk_bytes;
    (IsFreeChunk(offset) ? span.free : span.used).push_back(offset);
  }
  return span;
}

// At least one chunk of it stays free, so the slab is not released when the others become free.
void ItemSpace::HoldSpan(const Span& span) {
  for (const uint64_t offset : span.free) TakeChunkAt(offset);
}

absl::optional<uint64_t> ItemSpace::TakeSpan(const Span& span) {
  for (const uint64_t offset : span.used) {
    if (IsFreeChunk(offset)) continue;
    DropSpan(span);
    return absl::nullopt;
  }
  for (const uint64_t offset : span.used) TakeChunkAt(offset);
  spans_[span.begin] = (span.free.size() + span.used.size()) * span.chunk_bytes;
  return span.begin;
}

void ItemSpace::DropSpan(const Span& span) {
  for (const uint64_t offset : span.free) Free(offset);
}

void ItemSpace::Close(uint64_t begin, uint64_t end) {
  pages_.Close(begin, end);
  ForEachSlabIn(begin, end, [this](uint32_t number) { SetSlabClosed(number, true); });
  closed_begin_ = begin;
  closed_end_ = end;
}

void ItemSpace::Open() {
  ForEachSlabIn(closed_begin_, closed_end_,
                [this](uint32_t number) { SetSlabClosed(number, false); });
  pages_.Open();
  closed_begin_ = closed_end_ = 0;
}

ItemSpace::Stats ItemSpace::stats() const {
  Stats stats;
  stats.used_bytes = allocated_bytes_ - quarantine_.bytes();
  stats.waiting_bytes = quarantine_.bytes();
  stats.page_bytes = (pages_.pages() - pages_.free_pages()) * kPageBytes;
  stats.slabs = slabs_.size() - unused_slabs_.size();
  stats.free_page_bytes = pages_.free_pages() * kPageBytes;
  stats.free_runs = pages_.free_runs();
  return stats;
}

}  // namespace osprey::index
