// A client's copy of the region's header and directory: where the segment of a key is.

#ifndef OSPREY_INDEX_READER_DIRECTORY_CACHE_H_
#define OSPREY_INDEX_READER_DIRECTORY_CACHE_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/optional.h"
#include "index/layout/hash.h"
#include "index/layout/layout.h"
#include "index/layout/line_search.h"
#include "index/layout/record.h"

namespace osprey::index {

struct ReadSpan {
  uint64_t offset = 0;  // from the start of the region
  uint32_t length = 0;  // bytes
};

// Torn reads of header and pages that a map takes before it gives up. They change when the
// directory does, which is rare: more than a few in a row mean that the server does nothing else,
// or that this is no region.
inline constexpr int kMapAttemptsMax = 64;

// Not thread-safe. Valid for one incarnation. Holds 8 bytes a directory entry (a segment of 32
// KiB) of the pages that were READ and proved valid. A header allocates nothing, whatever depth it
// claims; a page allocates 8 KiB at most, and 24 B for each 512 entries before it (3 MiB at most).
class DirectoryCache {
 public:
  // As the server's welcome tells: `region_bytes` is what may be READ, `incarnation` is not 0.
  DirectoryCache(uint64_t incarnation, uint64_t region_bytes);

  // True once the header and every directory page have been read.
  bool ready() const { return ready_; }
  // What to READ next while not ready(): the header, then the directory page by page.
  ReadSpan NextRead() const;
  // Takes the bytes of NextRead(). OK: progress, or a torn record (READ again: at most
  // kMapAttemptsMax in all). Errors: DATA_LOSS when the bytes cannot be a region of this layout and
  // incarnation; the message says which field.
  absl::Status Apply(ByteSpan bytes);

  uint64_t incarnation() const { return incarnation_; }
  uint64_t hash_seed() const { return hash_seed_; }
  uint64_t region_bytes() const { return region_bytes_; }
  uint32_t depth() const { return depth_; }

  // Where a key's window is, and the generation that both of its lines must carry.
  struct Window {
    uint64_t offset = 0;      // 0: the map does not know
    uint32_t generation = 0;  // 0: likewise; refresh

    // The offset of line 0 or 1.
    uint64_t OffsetOf(uint32_t number) const { return offset + number * kLineBytes; }
    // Whether a copy of the line is whole, and whether it belongs to the window's segment.
    bool IsWhole(ByteSpan line_bytes, uint32_t number, uint64_t incarnation) const {
      return RecordIsWhole(line_bytes, {OffsetOf(number), incarnation});
    }
    bool IsOfSegment(ByteSpan line_bytes, uint32_t number) const {
      return IsOfGeneration(line_bytes, number, generation);
    }
    // Both: the line may be relied on. (Inlined: it is in the middle of most GETs.)
    [[gnu::always_inline]] bool IsBelieved(ByteSpan line_bytes, uint32_t number,
                                           uint64_t incarnation) const {
      return IsOfSegment(line_bytes, number) && IsWhole(line_bytes, number, incarnation);
    }
  };
  // As far as the pages that were READ tell. REQUIRES: ready().
  Window WindowOf(KeyHash hash) const {
    const absl::optional<Segment> segment = SegmentOf(hash);
    if (!segment.has_value()) return {};
    return {segment->offset + hash.home() * kLineBytes, segment->entry.generation};
  }
  // Where the key's home line is; 0: the map does not have it. A cache of hints uses it as the key's
  // number; it proves nothing, and only a Lookup may rely on a line. REQUIRES: ready().
  uint64_t HomeOf(KeyHash hash) const { return WindowOf(hash).offset; }
  // The READ of the item that a slot leads to, with its end at the region's at the latest. Length 0:
  // no item can be there, and no writer wrote this slot.
  ReadSpan ItemSpan(uint64_t slot) const;

 private:
  friend class DirectoryRefresh;
  friend class ItemFetch;
  friend class Scan;
  friend class SearchedLines;

  enum class Taken { kYes, kTorn, kNonsense };

  // The segment that serves a hash; nullopt: the map does not know; refresh.
  struct Segment {
    uint64_t offset = 0;
    DirectoryEntry entry;
  };
  absl::optional<Segment> SegmentOf(KeyHash hash) const {
    const DirectoryEntry entry = DirectoryEntry::Unpack(EntryAt(hash.directory_index(depth_)));
    // An entry deeper than the map serves only some of the keys that the map sends to it: the page
    // was read after the directory had been doubled, the header before.
    if (entry.depth > depth_ || entry.generation == 0) return absl::nullopt;
    const uint64_t segment = units_offset_ + uint64_t{entry.unit} * kUnitBytes;
    if (!Contains(segment, kUnitBytes)) return absl::nullopt;
    return Segment{segment, entry};
  }

  static ReadSpan HeaderSpan() { return {0, sizeof(RegionHeader)}; }
  static ReadSpan PageSpan(uint32_t page) {
    return {kDirectoryOffset + page * kDirectoryPageBytes, kDirectoryPageBytes};
  }
  uint32_t PageOf(KeyHash hash) const;
  // Each takes exactly the bytes of its span. kNonsense: `problem_` says what.
  Taken TakeHeader(ByteSpan bytes);
  Taken TakePage(uint32_t page, ByteSpan bytes);
  const char* ProblemOf(const RegionHeader& header) const;

  // Whether [offset, offset + bytes) may hold lines and items: the one place where remote offsets
  // are checked.
  bool Contains(uint64_t offset, uint64_t bytes) const {
    return offset >= units_offset_ && offset <= region_bytes_ && bytes <= region_bytes_ - offset;
  }
  bool IsLine(uint64_t offset) const;

  // What a valid page said of entry `index`; 0 when none has yet.
  uint64_t ReadEntryAt(uint32_t index) const {
    const uint32_t chunk = index / kEntriesPerChunk;
    if (chunk >= chunks_.size() || chunks_[chunk].empty()) return 0;
    return chunks_[chunk][index % kEntriesPerChunk];
  }
  // The entry as far as the pages that were READ tell; 0: they do not.
  uint64_t EntryAt(uint32_t index) const {
    const uint64_t entry = ReadEntryAt(index);
    return entry != 0 ? entry : EntryOfLowerHalf(index);
  }
  uint64_t EntryOfLowerHalf(uint32_t index) const;
  uint64_t* ChunkOf(uint64_t index);

  uint64_t incarnation_;
  uint64_t region_bytes_;
  uint64_t hash_seed_ = 0;
  uint64_t units_offset_ = 0;
  uint32_t depth_ = 0;
  uint32_t next_page_ = 0;  // while not ready
  int torn_ = 0;
  bool header_known_ = false;
  bool ready_ = false;
  const char* problem_ = "";
  // The words of the directory by index; 0: not READ yet. Chunks of which no word was READ are
  // empty, the others whole.
  static constexpr uint32_t kEntriesPerChunk = 512;
  std::vector<std::vector<uint64_t>> chunks_;
};

}  // namespace osprey::index

#endif  // OSPREY_INDEX_READER_DIRECTORY_CACHE_H_
