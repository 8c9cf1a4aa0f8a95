#include "index/space/item_space.h"

#include <algorithm>
#include <cassert>
#include <iterator>
#include <tuple>

namespace osprey::index {
namespace {

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
      slabs_(space),
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
  absl::optional<uint64_t> offset = slabs_.Take(length_class);
  if (offset.has_value() || fit == Fit::kTight) return offset;
  offset =
      slabs_.TakeLarger(length_class, std::min(2 * ReadLengthOf(length_class), kChunkBytesMax));
  if (offset.has_value() || fit == Fit::kLoose) return offset;
  offset = TryRun(bytes);
  return offset.has_value() ? offset : slabs_.TakeLarger(length_class, kChunkBytesMax);
}

absl::optional<uint64_t> ItemSpace::TryRun(uint64_t bytes) {
  const absl::optional<uint64_t> offset = pages_.Take(PagesOf(bytes), kLargeOwner);
  if (offset.has_value()) runs_[*offset] = PagesOf(bytes);
  return offset;
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
  const Slabs::Slab& slab = slabs_[owner - 1];
  const uint64_t chunk_bytes = ReadLengthOf(slab.length_class);
  const uint64_t chunk = (offset - slab.offset) / chunk_bytes;
  return (offset - slab.offset) % chunk_bytes == 0 && chunk < slab.chunks && !slab.is_free(chunk) &&
         (EndOfSpanAt(offset) == 0 || spans_.contains(offset));
}

void ItemSpace::Free(uint64_t offset) {
  const uint32_t owner = pages_.OwnerOf(offset);
  if (owner != kLargeOwner) {
    if (!spans_.empty()) return FreeSpan(offset, owner - 1);
    allocated_bytes_ -= ReadLengthOf(slabs_[owner - 1].length_class);
    return slabs_.Free(offset, owner - 1);
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
  for (; offset < end; offset += chunk_bytes) slabs_.Free(offset, slab_number);
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

uint64_t ItemSpace::PagesFor(uint64_t bytes) const {
  if (bytes > kChunkBytesMax) return PagesOf(bytes);
  return slabs_.PagesFor(LengthClassOf(std::max(bytes, kSmallestChunkBytes)));
}

uint64_t ItemSpace::FreeBytes() const {
  return slabs_.free_bytes() + pages_.free_pages() * kPageBytes;
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
    const Slabs::Slab& slab = slabs_[owner - 1];
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
      const Slabs::Slab& slab = slabs_.At(from);
      const uint64_t chunk_bytes = ReadLengthOf(slab.length_class);
      uint64_t chunk = (from - slab.offset + chunk_bytes - 1) / chunk_bytes;
      while (chunk < slab.chunks && slab.is_free(chunk)) ++chunk;
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

// Longer chunks first: fewer items have to move.
absl::optional<ItemSpace::Span> ItemSpace::FindSpan(uint64_t bytes, absl::Time now) const {
  assert(bytes <= kChunkBytesMax);
  uint64_t free_chunks = 0;  // to which items of the class could move, or which are in the span
  for (uint32_t length_class = LengthClassOf(std::max(bytes, kSmallestChunkBytes));
       length_class-- > LengthClassOf(kSmallestChunkBytes);) {
    const uint64_t chunks = (bytes + ReadLengthOf(length_class) - 1) / ReadLengthOf(length_class);
    free_chunks += slabs_.free_chunks(length_class);
    if (chunks > kSpanChunksMax) break;
    if (free_chunks < chunks || slabs_.with_free(length_class).empty()) continue;
    absl::optional<Span> best;
    int seen = 0;
    for (const uint64_t slab : slabs_.with_free(length_class)) {
      if (++seen > kSpanSlabsSeenMax) break;
      absl::optional<Span> span = FindSpanIn(slabs_.At(slab), chunks, now);
      if (!span.has_value()) continue;
      if (!best.has_value() || span->used.size() < best->used.size()) best = std::move(span);
    }
    if (best.has_value()) return best;
  }
  return absl::nullopt;
}

absl::optional<ItemSpace::Span> ItemSpace::FindSpanIn(const Slabs::Slab& slab, uint64_t chunks,
                                                      absl::Time now) const {
  const uint64_t chunk_bytes = ReadLengthOf(slab.length_class);
  uint64_t run = 0;   // consecutive chunks up to here that may be part of it
  uint64_t free = 0;  // of the last `chunks` of them
  uint64_t best_free = 0, best_end = 0;
  for (uint64_t i = 0; i < slab.chunks; ++i) {
    const uint64_t offset = slab.offset + i * chunk_bytes;
    const bool is_free = slabs_.IsFree(offset);
    if (!is_free && (EndOfSpanAt(offset) != 0 || quarantine_.IsLeased(offset, now))) {
      run = free = 0;
      continue;
    }
    free += is_free;
    if (++run > chunks) free -= slabs_.IsFree(offset - chunks * chunk_bytes);
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
    (slabs_.IsFree(offset) ? span.free : span.used).push_back(offset);
  }
  return span;
}

void ItemSpace::TakeChunk(uint64_t offset) {
  slabs_.TakeAt(offset);
  allocated_bytes_ += ReadLengthOf(slabs_.At(offset).length_class);
}

// At least one chunk of it stays free, so the slab is not released when the others become free.
void ItemSpace::HoldSpan(const Span& span) {
  for (const uint64_t offset : span.free) TakeChunk(offset);
}

absl::optional<uint64_t> ItemSpace::TakeSpan(const Span& span) {
  for (const uint64_t offset : span.used) {
    if (slabs_.IsFree(offset)) continue;
    DropSpan(span);
    return absl::nullopt;
  }
  for (const uint64_t offset : span.used) TakeChunk(offset);
  spans_[span.begin] = (span.free.size() + span.used.size()) * span.chunk_bytes;
  return span.begin;
}

void ItemSpace::DropSpan(const Span& span) {
  for (const uint64_t offset : span.free) Free(offset);
}

void ItemSpace::Close(uint64_t begin, uint64_t end) {
  pages_.Close(begin, end);
  ForEachSlabIn(begin, end, [this](uint32_t number) { slabs_.SetClosed(number, true); });
  closed_begin_ = begin;
  closed_end_ = end;
}

void ItemSpace::Open() {
  ForEachSlabIn(closed_begin_, closed_end_,
                [this](uint32_t number) { slabs_.SetClosed(number, false); });
  pages_.Open();
  closed_begin_ = closed_end_ = 0;
}

ItemSpace::Stats ItemSpace::stats() const {
  Stats stats;
  stats.used_bytes = allocated_bytes_ - quarantine_.bytes();
  stats.waiting_bytes = quarantine_.bytes();
  stats.page_bytes = (pages_.pages() - pages_.free_pages()) * kPageBytes;
  stats.slabs = slabs_.count();
  stats.free_page_bytes = pages_.free_pages() * kPageBytes;
  stats.free_runs = pages_.free_runs();
  return stats;
}

}  // namespace osprey::index
