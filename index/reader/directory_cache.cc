#include "index/reader/directory_cache.h"

#include <algorithm>
#include <bit>
#include <cassert>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "index/layout/record.h"

namespace osprey::index {

DirectoryCache::DirectoryCache(uint64_t incarnation, uint64_t region_bytes)
    : incarnation_(incarnation), region_bytes_(region_bytes) {}

uint32_t DirectoryCache::PageOf(KeyHash hash) const {
  return hash.directory_index(depth_) / kDirectoryEntriesPerPage;
}

ReadSpan DirectoryCache::NextRead() const {
  return header_known_ ? PageSpan(next_page_) : HeaderSpan();
}

absl::Status DirectoryCache::Apply(ByteSpan bytes) {
  assert(!ready());
  const Taken taken = header_known_ ? TakePage(next_page_, bytes) : TakeHeader(bytes);
  switch (taken) {
    case Taken::kYes:
      return absl::OkStatus();
    case Taken::kTorn:
      if (++torn_ < kMapAttemptsMax) return absl::OkStatus();
      return absl::DataLossError(
          absl::StrCat("the region's ", header_known_ ? "directory" : "header",
                       " never had a valid checksum in ", kMapAttemptsMax, " READs"));
    case Taken::kNonsense:
      return absl::DataLossError(
          absl::StrCat("not a region of this layout and server: ", problem_));
  }
  assert(false);
  return absl::InternalError("unreachable");
}

const char* DirectoryCache::ProblemOf(const RegionHeader& header) const {
  if (header.magic != kRegionMagic) return "magic";
  if (header.layout_version != kLayoutVersion) return "layout_version";
  if (header.incarnation != incarnation_) return "incarnation";
  if (header.region_bytes != region_bytes_ || region_bytes_ > kRegionBytesMax)
    return "region_bytes";
  if (header.directory_depth > DirectoryDepthLimit(region_bytes_)) return "directory_depth";
  if (header_known_ && (header.hash_seed != hash_seed_ || header.units_offset != units_offset_)) {
    return "hash_seed or units_offset (they never change)";
  }
  if (header.units_offset != UnitsOffset(region_bytes_) || header.units_offset > region_bytes_) {
    return "units_offset";
  }
  return nullptr;
}

DirectoryCache::Taken DirectoryCache::TakeHeader(ByteSpan bytes) {
  assert(bytes.size() == sizeof(RegionHeader));
  RegionHeader header;
  std::memcpy(&header, bytes.data(), sizeof(header));
  // Under the incarnation that it names: a region of another life is whole, and said to be another
  // one.
  if (header.record.tag != kRegionHeaderTag || !RecordIsWhole(bytes, {0, header.incarnation})) {
    return Taken::kTorn;
  }
  if (const char* problem = ProblemOf(header); problem != nullptr) {
    problem_ = problem;
    return Taken::kNonsense;
  }
  hash_seed_ = header.hash_seed;
  units_offset_ = header.units_offset;
  depth_ = header.directory_depth;
  header_known_ = true;
  return Taken::kYes;
}

// A doubling of the directory adds entries that name the segments of the old ones, until those
// segments split. So the entry with one index bit less stands for an entry whose page was not READ
// since: it is right, or its generation shows that it is not. But a deeper entry cannot stand for
// another: its segment serves only the keys of the lower half, and its lines have the right
// generation. The segment of the other keys is not known then.
uint64_t DirectoryCache::EntryOfLowerHalf(uint32_t index) const {
  while (index != 0) {
    const uint32_t top_bit = static_cast<uint32_t>(std::bit_width(index)) - 1;
    index -= 1u << top_bit;
    const uint64_t entry = ReadEntryAt(index);
    if (entry == 0) continue;
    return DirectoryEntry::Unpack(entry).depth <= top_bit ? entry : 0;
  }
  return 0;
}

uint64_t* DirectoryCache::ChunkOf(uint64_t index) {
  const uint64_t number = index / kEntriesPerChunk;
  if (number >= chunks_.size()) chunks_.resize(number + 1);
  chunks_[number].resize(kEntriesPerChunk);
  return chunks_[number].data();
}

DirectoryCache::Taken DirectoryCache::TakePage(uint32_t page, ByteSpan bytes) {
  assert(bytes.size() == kDirectoryPageBytes);
  // A header that another lookup has READ since tells that the directory has halved.
  if (page >= DirectoryPages(depth_)) return Taken::kTorn;
  const RecordPlace place{PageSpan(page).offset, incarnation_};
  if (HeaderOf(bytes).tag != kDirectoryPageTag || !RecordIsWhole(bytes, place)) return Taken::kTorn;
  const std::byte* words = bytes.data() + offsetof(DirectoryPage, entries);
  uint64_t index = uint64_t{page} * kDirectoryEntriesPerPage;
  const uint64_t end = std::min(index + kDirectoryEntriesPerPage, uint64_t{1} << depth_);
  while (index < end) {
    const uint64_t at = index % kEntriesPerChunk;
    const uint64_t count = std::min(end - index, kEntriesPerChunk - at);
    std::memcpy(ChunkOf(index) + at, words, count * kWordBytes);
    words += count * kWordBytes;
    index += count;
  }
  if (!ready_) ready_ = ++next_page_ == DirectoryPages(depth_);
  return Taken::kYes;
}

ReadSpan DirectoryCache::ItemSpan(uint64_t slot) const {
  const Slot item = Slot::Unpack(slot);
  if (!Contains(item.offset, sizeof(ItemHeader))) return {};
  const uint64_t length = std::max(ReadLengthOf(item.length_class), sizeof(ItemHeader));
  const uint64_t length_max = std::min<uint64_t>(region_bytes_ - item.offset, UINT32_MAX);
  return {item.offset, static_cast<uint32_t>(std::min(length, length_max))};
}

bool DirectoryCache::IsLine(uint64_t offset) const {
  return Contains(offset, kLineBytes) && (offset - units_offset_) % kLineBytes == 0;
}

}  // namespace osprey::index
