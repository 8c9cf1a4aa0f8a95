#include "index/segments/directory.h"

#include <algorithm>
#include <cassert>
#include <cstring>

namespace osprey::index {

// A page under preparation. Missing entries are 0.
struct Directory::Page {
  Page(const Directory& directory, uint64_t page_number) : number(page_number) {
    const uint64_t known = std::min(end(), directory.filled_);
    for (uint64_t i = begin(); i < known; ++i) at(i) = directory.EntryWord(i);
  }
  uint64_t begin() const { return number * kDirectoryEntriesPerPage; }
  uint64_t end() const { return begin() + kDirectoryEntriesPerPage; }
  uint64_t& at(uint64_t index) { return words[index - begin()]; }

  uint64_t number;
  uint64_t words[kDirectoryEntriesPerPage] = {};
};

Directory::Directory(RegionWriter& writer, uint64_t hash_seed)
    : writer_(writer),
      hash_seed_(hash_seed),
      depth_max_(DirectoryDepthLimit(writer.region_bytes())) {}

void Directory::LayOut(DirectoryEntry only) {
  assert(filled_ == 0 && only.depth == 0);
  Page page(*this, 0);
  page.at(0) = only.Pack();
  WritePage(page);
  filled_ = 1;
  WriteHeader();
}

void Directory::WritePage(const Page& page) {
  const uint64_t offset = kDirectoryOffset + page.number * kDirectoryPageBytes;
  writer_.WriteRecord(offset, writer_.NextRecordVersion(offset), kDirectoryPageTag,
                      ByteSpan(reinterpret_cast<const std::byte*>(page.words), sizeof(page.words)));
}

void Directory::WriteHeader() {
  NoteChange();
  RegionHeader header{};
  header.magic = kRegionMagic;
  header.layout_version = kLayoutVersion;
  header.directory_depth = depth_;
  header.incarnation = writer_.incarnation();
  header.hash_seed = hash_seed_;
  header.region_bytes = writer_.region_bytes();
  header.units_offset = UnitsOffset(writer_.region_bytes());
  const ByteSpan bytes(reinterpret_cast<const std::byte*>(&header), sizeof(header));
  writer_.WriteRecord(0, writer_.NextRecordVersion(0), kRegionHeaderTag,
                      bytes.subspan(sizeof(RecordHeader)));
}

void Directory::Name(uint32_t hash_bits, DirectoryEntry segment) {
  assert(!doubling() && segment.depth <= depth_);
  const uint64_t stride = uint64_t{1} << segment.depth;
  uint64_t index = hash_bits & (stride - 1);
  while (index < filled_) {
    Page page(*this, index / kDirectoryEntriesPerPage);
    const uint64_t end = std::min(page.end(), filled_);
    for (; index < end; index += stride) page.at(index) = segment.Pack();
    WritePage(page);
  }
  NoteChange();
}

void Directory::Halve() {
  assert(!doubling() && depth_ > 0);
  --depth_;
  filled_ = size();
  WriteHeader();
}

void Directory::DoubleStep() {
  assert(may_double());
  const uint64_t target = 2 * size();
  for (uint64_t i = 0; i < kDirectoryPagesPerStep && filled_ < target; ++i) {
    Page page(*this, filled_ / kDirectoryEntriesPerPage);
    const uint64_t end = std::min(page.end(), target);
    for (uint64_t index = filled_; index < end; ++index) page.at(index) = EntryWord(index - size());
    WritePage(page);
    filled_ = end;
  }
  if (filled_ < target) return;
  ++depth_;
  WriteHeader();
}

}  // namespace osprey::index
