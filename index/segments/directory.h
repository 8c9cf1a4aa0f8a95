// The directory, as the writer uses it: in the region itself, where readers READ it. There is no
// second copy.
//
// It doubles page by page. The upper half is written beside the lower one, which readers still use.
// Only then the header states the new depth. Meanwhile no segment splits, so the lower half does
// not change.
//
//   depth d       | entries 0 … 2^d - 1 |
//   doubling      | entries 0 … 2^d - 1 | 2^d … filled - 1 |->             header: d
//   depth d + 1   | entries 0 … 2^(d + 1) - 1              |               header: d + 1
//
// So a reader that READs the header after the page never sees an entry deeper than the header
// states.
//
// It halves by its header alone. Entries of the upper half are not written any more. A reader that
// still uses one finds its segment, or lines of another generation.

#ifndef OSPREY_INDEX_SEGMENTS_DIRECTORY_H_
#define OSPREY_INDEX_SEGMENTS_DIRECTORY_H_

#include <atomic>
#include <cstdint>

#include "index/layout/layout.h"
#include "index/space/region_writer.h"

namespace osprey::index {

// Pages that one DoubleStep writes: some 10 us.
inline constexpr uint64_t kDirectoryPagesPerStep = 8;

// Not thread-safe.
class Directory {
 public:
  // `writer` must outlive this.
  Directory(RegionWriter& writer, uint64_t hash_seed);

  // Writes header and directory of a table with one segment. Must be called first.
  void LayOut(DirectoryEntry only);

  uint32_t depth() const { return depth_; }
  // The entry for the keys whose hashes end in `hash_bits`.
  DirectoryEntry At(uint64_t hash_bits) const {
    const uint64_t mask = (uint64_t{1} << depth_) - 1;
    return DirectoryEntry::Unpack(writer_.Word(DirectoryEntryOffset(hash_bits & mask)));
  }
  // As At, but possibly stale by an update that is under way. For prefetching, by any thread at any
  // time.
  DirectoryEntry Peek(uint64_t hash_bits) const {
    const uint64_t mask = (uint64_t{1} << depth_.load(std::memory_order_relaxed)) - 1;
    return DirectoryEntry::Unpack(writer_.WordNow(DirectoryEntryOffset(hash_bits & mask)));
  }
  // The offset that At reads, for prefetching.
  uint64_t OffsetOf(uint64_t hash_bits) const {
    return DirectoryEntryOffset(hash_bits & ((uint64_t{1} << depth_) - 1));
  }

  // How often it has changed, at least once. By any thread: what At or Peek returns after this call
  // is right as long as it is the same.
  uint32_t changes() const { return changes_.load(std::memory_order_acquire); }

  // Names the segment whose keys' hashes end in the low `segment.depth` bits of `hash_bits`, at all
  // of its entries. REQUIRES: not doubling(); the segment is at most depth() deep.
  void Name(uint32_t hash_bits, DirectoryEntry segment);

  bool may_double() const { return depth_ < depth_max_; }
  bool doubling() const { return filled_ > size(); }
  // Starts doubling, or continues. REQUIRES: may_double().
  void DoubleStep();
  // Halves. REQUIRES: not doubling(); all segments are less than depth() deep.
  void Halve();

 private:
  uint64_t size() const { return uint64_t{1} << depth_; }
  uint64_t EntryWord(uint64_t index) const { return writer_.Word(DirectoryEntryOffset(index)); }
  // Called after each change. Only the writer writes it.
  void NoteChange() {
    changes_.store(changes_.load(std::memory_order_relaxed) + 1, std::memory_order_release);
  }
  struct Page;
  void WritePage(const Page& page);
  void WriteHeader();

  RegionWriter& writer_;
  uint64_t hash_seed_;
  uint32_t depth_max_;
  // Relaxed: Peek may return stale entries, and all other accesses are the writer's.
  std::atomic<uint32_t> depth_{0};
  uint64_t filled_ = 0;  // entries in the region
  std::atomic<uint32_t> changes_{0};
};

}  // namespace osprey::index

#endif  // OSPREY_INDEX_SEGMENTS_DIRECTORY_H_
