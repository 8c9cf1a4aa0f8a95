// Writes records into the region, in the order that lets a remote reader tell a finished record
// from an unfinished one (W1):
//
//   Begin    version odd
//   Store    the contents, word by word
//   Seal     checksum, then version even         <- from this store on readers accept it
//
// Each store is ordered after the one before it. Words are stored through std::atomic_ref with
// release semantics. They pair with the acquire loads of code that copies records: the shm
// transport's READ, and the tests' readers. (A NIC reads coherent memory. x86 keeps the order of
// stores there; elsewhere release stores do.) No fences: ThreadSanitizer does not support them.
//
// It draws cas versions, from which the versions of records are taken. So the version at an offset
// changes with every record there and never restarts, whatever the space held before.
//
// Thread rule: one thread at a time for each RegionWriter; several may share a CasCounter. Pure
// memory.

#ifndef OSPREY_INDEX_SPACE_REGION_WRITER_H_
#define OSPREY_INDEX_SPACE_REGION_WRITER_H_

#include <atomic>
#include <cassert>
#include <cstdint>
#include <cstring>
#include <memory>

#include "absl/types/span.h"
#include "index/layout/atomic_word.h"
#include "index/layout/layout.h"
#include "index/layout/record.h"
#include "index/layout/test_hooks.h"

namespace osprey::index {

// The last version before those of an incarnation. A condition from one incarnation must not match
// in another. Only the incarnation itself distinguishes a new server from earlier ones: a wall
// clock may have been set back. So the start is as random as the incarnation. It lies in the lower
// half of all versions, so that the upper half remains for writes.
inline uint64_t FirstCasVersion(uint64_t incarnation) {
  if (IsMutant(Mutant::kVersionsRepeat)) return 0;
  return Mix(incarnation) & kCasVersionMax >> 1;
}

// The source of cas versions: one for all tables of a server. Thread-safe.
//
// Each writer draws a block at a time, so that the counter's cache line does not move between cores
// with every write. The block grows with the versions that the writer has used since the last
// Close. So versions are unique, and those of one table grow. Across tables an earlier write may
// have a higher version than a later one. Close separates all writes before it from those after it.
class CasCounter {
 public:
  static constexpr uint64_t kBlockMax = 256;
  // The largest `count` of Left.
  static constexpr uint64_t kLeftMax = 1 << 20;

  // `last` counts as used. `writers` is the number of RegionWriters that will draw.
  explicit CasCounter(uint64_t last = 0, uint32_t writers = 1) : last_(last), writers_(writers) {}

  // The next block, of up to `count`: versions above `after`, up to `last`. REQUIRES: some are
  // left, and `count` is 1 to kBlockMax.
  struct Block {
    uint64_t after = 0;
    uint64_t last = 0;
  };
  Block Draw(uint64_t count);
  // Whether the calling writer can draw `count` more (at most kLeftMax), even if the other writers
  // draw all that this call promised them. `own`: versions left in its block.
  bool Left(uint64_t count, uint64_t own) const {
    const uint64_t left = kCasVersionMax - last_.load();
    assert(count <= kLeftMax);
    if (writers_ == 1) return left + own >= count;
    // A writer that draws may leave up to a block unused. Other writers may have asked for more than
    // this one, and not have drawn it yet.
    return left >= count + kBlockMax + (writers_ - 1) * (kLeftMax + kBlockMax);
  }

  // The last that was drawn.
  uint64_t Last() const { return last_.load(); }
  // Returns a bound: every version given out before is at most that, and every write that begins
  // after the return gets one above it (RegionWriter::BeginWrite). Sequentially consistent, as Draw
  // is.
  uint64_t Close();
  // As Close, and the bound is at least `version`.
  void Raise(uint64_t version);
  // The last result of Close; 0: never called.
  uint64_t closed() const { return closed_.load(std::memory_order_acquire); }

 private:
  // On a separate cache line, so that `closed_`, read by every write, is rarely invalidated.
  alignas(64) std::atomic<uint64_t> last_;
  alignas(64) std::atomic<uint64_t> closed_{0};
  const uint64_t writers_;
};

class RegionWriter {
 public:
  // Versions come from `counter`. If it is null, they come from its own counter, for which
  // `cas_version` is the last that counts as used. `region` and `counter` must outlive this.
  RegionWriter(absl::Span<std::byte> region, uint64_t incarnation, uint64_t cas_version,
               CasCounter* counter = nullptr);

  uint64_t incarnation() const { return incarnation_; }
  uint64_t region_bytes() const { return region_.size(); }

  // --- Versions.
  // The last that this writer used.
  uint64_t cas_version() const { return hot_.cas_version; }
  // Whether `count` more can be drawn. Versions never wrap.
  bool CasVersionsLeft(uint64_t count) const {
    const uint64_t own = hot_.block_last - hot_.cas_version;
    return own >= count || counter_->Left(count, own);
  }
  // Begins a write, whose versions are above the last Close of the counter.
  void BeginWrite() {
    if (counter_->closed() <= hot_.cas_version) return;
    hot_.block_last = hot_.cas_version;
    hot_.drawn = 0;
  }
  // REQUIRES: CasVersionsLeft(1).
  uint64_t NextCasVersion() {
    if (hot_.cas_version == hot_.block_last) DrawBlock();
    return ++hot_.cas_version;
  }
  // The version of a value: the given one, or drawn. Draws in any case, for the record (W1).
  // REQUIRES: as NextCasVersion.
  uint64_t NextValueVersion() {
    const uint64_t drawn = NextCasVersion();
    return hot_.given_version == 0 ? drawn : hot_.given_version;
  }
  // An even version for a record at `offset`, other than that of the record there. It is the
  // current cas version, or a new one if this write has already put a record there.
  uint32_t NextRecordVersion(uint64_t offset) {
    const uint32_t version = RecordVersion(hot_.cas_version);
    if ((Header(offset).version & ~1u) != version) return version;
    return RecordVersion(NextCasVersion());
  }

  // --- The present memory of the region. Only the writer changes it, so plain reads are not torn.
  absl::Span<std::byte> Bytes(uint64_t offset, uint64_t bytes) {
    return {const_cast<std::byte*>(At(offset, bytes)), bytes};
  }
  ByteSpan Bytes(uint64_t offset, uint64_t bytes) const { return {At(offset, bytes), bytes}; }
  uint64_t Word(uint64_t offset) const {
    uint64_t word;
    std::memcpy(&word, At(offset, kWordBytes), kWordBytes);
    return word;
  }
  // The present value of a word, for any thread.
  uint64_t WordNow(uint64_t offset) const { return GlimpseOf(At(offset, kWordBytes)); }
  RecordHeader Header(uint64_t offset) const {
    RecordHeader header;
    std::memcpy(&header, At(offset, sizeof(header)), sizeof(header));
    return header;
  }

  // --- Records. Offsets are multiples of 8. `version` is always even; Begin stores version | 1.
  void Begin(uint64_t offset, uint32_t version, uint32_t tag);
  // As Begin, but when it returns no reader can fetch the previous record any more. (The CPU may
  // delay Begin's store beyond later operations, such as a clock read.)
  void BeginVisibly(uint64_t offset, uint32_t version, uint32_t tag);
  // Stores words over the record's contents. Missing bytes of the last word are zeros.
  void Store(uint64_t offset, ByteSpan bytes);
  void Store(uint64_t offset, uint64_t word);
  void Seal(uint64_t offset, uint32_t version, uint32_t tag, uint64_t checksum);
  // As Seal, but when it returns every reader fetches this record, and a clock read that follows is
  // after that.
  void SealVisibly(uint64_t offset, uint32_t version, uint32_t tag, uint64_t checksum);
  // Writes a whole record. `contents` consists of whole words.
  void WriteRecord(uint64_t offset, uint32_t version, uint32_t tag, ByteSpan contents);
  // The same, for an existing record with this tag that differs from `contents` only in `count`
  // words from `first` on. The other words are not stored again.
  void AmendRecord(uint64_t offset, uint32_t version, uint32_t tag, ByteSpan contents,
                   uint32_t first, uint32_t count);
  // The common part of both, with a known checksum: `words` replace the record's contents from word
  // `first` on.
  void StoreRecord(uint64_t offset, const RecordHeader& header, uint32_t first, ByteSpan words);

  RecordPlace PlaceOf(uint64_t offset) const { return {offset, incarnation_}; }

  // Members that most writes change, on a cache line of their own. (Any thread reads the other
  // members, for prefetching.)
  struct alignas(64) Hot {
    uint64_t cas_version = 0;
    uint64_t block_last = 0;        // the last version drawn from the counter
    uint64_t drawn = 0;             // from it, since a block was last dropped
    uint64_t in_place_updates = 0;  // Table's
    uint64_t given_version = 0;     // of the value that is being written; 0: it is drawn
    uint64_t given_expiry_ns = 0;   // likewise, with a given version
    std::atomic<uint32_t> lock_word{0};
  };
  static_assert(sizeof(Hot) == 64);
  Hot& hot() { return hot_; }
  const Hot& hot() const { return hot_; }
  // Prefetches it for writing. By any thread.
  void PrefetchHot() const { __builtin_prefetch(&hot_, 1); }

 private:
  // The address of `offset`, from which `bytes` are accessed.
  const std::byte* At(uint64_t offset, uint64_t bytes) const {
    assert(offset <= region_.size() && bytes <= region_.size() - offset);
    return region_.data() + offset;
  }
  // Likewise, for so many words.
  uint64_t* WordsAt(uint64_t offset, uint64_t words);
  void DrawBlock();

  absl::Span<std::byte> region_;
  uint64_t incarnation_;
  std::unique_ptr<CasCounter> own_counter_;
  CasCounter* counter_;
  Hot hot_;
};

}  // namespace osprey::index

#endif  // OSPREY_INDEX_SPACE_REGION_WRITER_H_
