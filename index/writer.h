// Writes records into the region, in the order that lets a remote reader tell a finished one from
// an unfinished one (W1):
//
//   Begin    version odd
//   Store    the contents, word by word
//   Seal     checksum, then version even                     <- the record is there for readers
//   from this store on
//
// Each store is ordered after the one before it. Words are stored through std::atomic_ref with
// release semantics; the pairs are the acquire loads of whoever copies: the shm transport's READ,
// the tests' readers. (A NIC reads coherent memory, where x86 and release stores elsewhere keep the
// order of stores.) No fences: ThreadSanitizer does not know them.
//
// It draws cas versions, from which the versions of records are taken, so that the version at an
// offset changes with every record there and never restarts, whatever the space was used for
// before.
//
// Thread rule: one thread at a time for each RegionWriter; several may share a CasCounter. Pure
// memory.

#ifndef OSPREY_INDEX_WRITER_H_
#define OSPREY_INDEX_WRITER_H_

#include <atomic>
#include <cassert>
#include <cstdint>
#include <cstring>
#include <memory>

#include "absl/types/span.h"
#include "index/layout.h"
#include "index/record.h"
#include "index/test_hooks.h"

namespace osprey::index {

// Where an incarnation's cas versions begin: behind this one. A condition that was learned in one
// incarnation must not be met in another, and nothing but the incarnation itself tells a new server
// from those before it: a wall clock may have been set back. So the start is as random as the
// incarnation, in the lower half of all versions: the upper half is left to be written.
inline uint64_t FirstCasVersion(uint64_t incarnation) {
  if (Seeded(SeededBug::kVersionsRepeat)) return 0;
  return Mix(incarnation) & kCasVersionMax >> 1;
}

// Where cas versions come from: one for all tables of a server. Thread-safe.
//
// Each writer draws a block of them at a time, so that the counter's cache line does not go from
// core to core with every write: the longer, the more it has used since Close parted them last. So
// versions are unique and those of one table grow, but what was
// written earlier in one table may have a higher version than what is written later in another: up
// to Close, which parts all writes before it from those after it.
class CasCounter {
 public:
  static constexpr uint64_t kBlockMax = 256;
  // No Left asks for more.
  static constexpr uint64_t kLeftMax = 1 << 20;

  // `last` counts as used. `writers` RegionWriters will draw.
  explicit CasCounter(uint64_t last = 0, uint32_t writers = 1) : last_(last), writers_(writers) {}

  // The next block, of up to `count`: all above `after`, up to `last`. REQUIRES: some are left, and
  // `count` is 1 to kBlockMax.
  struct Block {
    uint64_t after = 0;
    uint64_t last = 0;
  };
  Block Draw(uint64_t count);
  // Whether the asking writer can draw `count` more (at most kLeftMax), whatever the others may
  // still draw who were told so. `own`: what it has left of its block.
  bool Left(uint64_t count, uint64_t own) const;

  // The last that was drawn.
  uint64_t Last() const { return last_.load(); }
  // Returns a bound: every version given out before is at most that, and every write that begins
  // after the return gets one above it (RegionWriter::BeginWrite). Sequentially consistent, as Draw
  // is.
  uint64_t Close();
  // What Close returned last; 0: never called.
  uint64_t closed() const { return closed_.load(std::memory_order_acquire); }

 private:
  // On a line of its own: `closed_`, looked at by every write, is hardly ever changed.
  alignas(64) std::atomic<uint64_t> last_;
  alignas(64) std::atomic<uint64_t> closed_{0};
  const uint64_t writers_;
};

class RegionWriter {
 public:
  // Versions come from `counter`; or, if it is null, from one of its own, for which `cas_version`
  // is the last that counts as used. `region` and `counter` must outlive this.
  RegionWriter(absl::Span<std::byte> region, uint64_t incarnation, uint64_t cas_version,
               CasCounter* counter = nullptr);

  uint64_t incarnation() const { return incarnation_; }
  uint64_t region_bytes() const { return region_.size(); }

  // --- Versions.
  // The last that this writer used.
  uint64_t cas_version() const { return hot_.cas_version; }
  // Whether `count` more can be drawn. They never wrap.
  bool CasVersionsLeft(uint64_t count) const {
    const uint64_t own = hot_.block_last - hot_.cas_version;
    return own >= count || counter_->Left(count, own);
  }
  // A write begins: what it draws is above what the counter was closed at before.
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
  // An even version for a record at `offset`, other than the one that is there: of the current cas
  // version, or of a new one when this write has already put a record there.
  uint32_t NextRecordVersion(uint64_t offset) {
    const uint32_t version = RecordVersion(hot_.cas_version);
    if ((Header(offset).version & ~1u) != version) return version;
    return RecordVersion(NextCasVersion());
  }

  // --- Memory of the region, as it is now. Only the writer changes it, so plain reads of it are
  // whole.
  absl::Span<std::byte> Bytes(uint64_t offset, uint64_t bytes) {
    return {const_cast<std::byte*>(At(offset, bytes)), bytes};
  }
  ByteSpan Bytes(uint64_t offset, uint64_t bytes) const { return {At(offset, bytes), bytes}; }
  uint64_t Word(uint64_t offset) const {
    uint64_t word;
    std::memcpy(&word, At(offset, kWordBytes), kWordBytes);
    return word;
  }
  // A word as it is at this moment: for any thread, beside the writer's.
  uint64_t WordNow(uint64_t offset) const;
  RecordHeader Header(uint64_t offset) const {
    RecordHeader header;
    std::memcpy(&header, At(offset, sizeof(header)), sizeof(header));
    return header;
  }

  // --- Records. Offsets are multiples of 8. `version` is even throughout: Begin stores its odd
  // sister.
  void Begin(uint64_t offset, uint32_t version, uint32_t tag);
  // As Begin; and when it returns no reader can fetch what was there before any more. (Begin's
  // store may be delayed by the CPU beyond what follows in the program, such as a look at the
  // clock.)
  void BeginVisibly(uint64_t offset, uint32_t version, uint32_t tag);
  // Stores words over the record's contents; the last word's missing bytes are zeros.
  void Store(uint64_t offset, ByteSpan bytes);
  void Store(uint64_t offset, uint64_t word);
  void Seal(uint64_t offset, uint32_t version, uint32_t tag, uint64_t checksum);
  // All of it. `contents` is whole words.
  void WriteRecord(uint64_t offset, uint32_t version, uint32_t tag, ByteSpan contents);
  // The same of a record that is there, of this tag, and differs from `contents` only in `count`
  // words from `first` on: the others are not stored again.
  void AmendRecord(uint64_t offset, uint32_t version, uint32_t tag, ByteSpan contents,
                   uint32_t first, uint32_t count);
  // What both do, with a checksum that is known: `words` replace the record's contents from word
  // `first` on.
  void StoreRecord(uint64_t offset, const RecordHeader& header, uint32_t first, ByteSpan words);

  RecordPlace PlaceOf(uint64_t offset) const { return {offset, incarnation_}; }

  // What each write changes, or most of them, on a cache line that has nothing else. (All other
  // members of this are read by any thread, for prefetching.)
  struct alignas(64) Hot {
    uint64_t cas_version = 0;
    uint64_t block_last = 0;        // up to here versions were drawn from the counter
    uint64_t drawn = 0;             // from it, since what was left was dropped last
    uint64_t in_place_updates = 0;  // Table's
    std::atomic<uint32_t> lock_word{0};
  };
  static_assert(sizeof(Hot) == 64);
  Hot& hot() { return hot_; }
  const Hot& hot() const { return hot_; }
  // Asks for it, to be written. By any thread.
  void PrefetchHot() const { __builtin_prefetch(&hot_, 1); }

 private:
  // Where `offset` is, of which so many bytes are wanted.
  const std::byte* At(uint64_t offset, uint64_t bytes) const {
    assert(offset <= region_.size() && bytes <= region_.size() - offset);
    return region_.data() + offset;
  }
  // Likewise, of so many words.
  uint64_t* WordsAt(uint64_t offset, uint64_t words);
  void DrawBlock();

  absl::Span<std::byte> region_;
  uint64_t incarnation_;
  std::unique_ptr<CasCounter> own_counter_;
  CasCounter* counter_;
  Hot hot_;
};

}  // namespace osprey::index

#endif  // OSPREY_INDEX_WRITER_H_
