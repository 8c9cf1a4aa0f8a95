// Eyes and faults for tests. In production none of this exists: kTestHooks is false, every function
// here is constant and empty, and the compiler removes the calls.
//
// The libraries of this room are built twice (index/BUILD): `//index:table`, and for tests
// `//index:table_hooked`, compiled with OSPREY_INDEX_TEST_HOOKS. The latter calls an observer
// before every store into the region, so that a test can run readers between any two stores of a
// write; and it makes, on demand, the mistakes that the rules of index/README.md exclude, so that a
// test can show that it would notice them.

#ifndef OSPREY_INDEX_TEST_HOOKS_H_
#define OSPREY_INDEX_TEST_HOOKS_H_

#include <algorithm>
#include <cstdint>

#include "absl/strings/string_view.h"

namespace osprey::index {

class Table;

// One mistake each; the rule that it breaks. tests/mutation_test.cc runs them all in the
// simulation, and tests/index_seeded_bugs_test.cc most of them on the table alone.
enum class SeededBug {
  kNone,
  // Writers.
  kNewItemLiveBeforeOldIsDead,  // W2
  kNoDeadMarkOnUpdate,          // W2
  kNoDeadMarkOnDelete,          // W2
  kNoDeadMarkOnPromotion,       // W2
  kSlotClearedBeforeDeadMark,   // W2, delete
  kMoveInsideWindow,            // W3
  kMoveFromWindowToChain,       // W3
  kPullBackIntoSecondLine,      // W3
  kChainSourceClearedFirst,     // W3
  kMiddleOfChainUnlinked,       // W3: a line that is not the chain's last is unlinked and reused
  kDirectoryBeforeCopy,         // W7: the halves are named while their lines are still empty
  kOldLinesNotPoisoned,         // W7
  kGenerationKeptOnReuse,       // W7: a unit has one generation in all its lives
  kWriteDuringSplit,            // W7: between the copy and its publication
  kNoDeadMarkOnMove,            // W2, compaction
  kChangedItemMoved,            // W2, compaction: the copy is of what the item was before a write
  kExpiryIgnored,               // R8, server: what has expired counts as present
  kNoSecondLook,                // R8, server: a life is prolonged by the clock before the write
  // Both sides: what the checksum does not cover.
  kNoItemChecksum,
  // Neither the record's version nor an item's cas version, which would stand in for it.
  kChecksumWithoutVersion,
  kChecksumWithoutOffset,
  kChecksumWithoutIncarnation,
  // Readers.
  kDeadIsMiss,                  // R1
  kKeyNotCompared,              // validation
  kPiecesNotVerified,           // validation, of a value that is READ in pieces
  kSightingBelieved,            // validation, of a line that was seen where it stands
  kScanNotConfirmed,            // Scan: lines that were followed need not be unchanged
  kStateNotCompared,            // validation
  kFingerprintNotConfirmed,     // R2
  kConfirmedBySlot,             // R2: the line's slots instead of its version
  kChainMissNotConfirmed,       // R2
  kChainMissConfirmedTooEarly,  // R2: before the chain's last READ
  kGenerationOfOneLine,         // R2
  kGenerationUnchecked,         // R2
  kAbsentByLatestTime,          // R8: absent by the latest time that it may be
  kPresentByEarliestTime,       // R8: present by the earliest
  kClientClockSlewed,           // R8: bounds of the server's clock by a clock that is slewed
  // The server.
  kServerClockSlewed,  // R8: likewise
  kVersionsRepeat,     // W1: each incarnation counts its cas versions from 1
  kAckBeforePublish,   // W8: a PUT is answered, and then carried out
};

#ifdef OSPREY_INDEX_TEST_HOOKS

inline constexpr bool kTestHooks = true;

class StoreObserver {
 public:
  virtual ~StoreObserver() = default;
  virtual void BeforeStore() = 0;
  // Instead, before the store of a record's first word: what readers tell its states by.
  virtual void BeforeFirstWord() { BeforeStore(); }
  // kWriteDuringSplit only: the moment to write.
  virtual void BetweenCopyAndPublish(Table&) {}
  // The stores that follow end this key.
  virtual void BeforeEviction(absl::string_view) {}
};

// Process-wide, for tests of one thread.
inline StoreObserver* store_observer = nullptr;
inline SeededBug seeded_bug = SeededBug::kNone;

// Compaction goes on whether or not room is wanted.
inline bool compaction_forced = false;

// So many keys go in each step, whatever they are, and whether or not memory is wanted.
inline uint32_t evictions_forced = 0;

// One step of compaction moves so many bytes at most, and a lookup READs items up to this length
// whole; 0: as shipped.
inline uint64_t compaction_bytes_max = 0;
inline uint64_t whole_read_bytes_max = 0;

// A Put is written in place wherever it has room there, as if there were none for a copy.
inline bool rewriting_forced = false;

inline bool RewritingForced() { return rewriting_forced; }
inline bool CompactionForced() { return compaction_forced; }
inline uint64_t CompactionBytesMax(uint64_t shipped) {
  return compaction_bytes_max == 0 ? shipped : std::min(shipped, compaction_bytes_max);
}
inline uint64_t WholeReadBytesMax(uint64_t shipped) {
  return whole_read_bytes_max == 0 ? shipped : std::min(shipped, whole_read_bytes_max);
}
inline uint32_t EvictionsForced() { return evictions_forced; }
inline void ObserveEviction(absl::string_view key) {
  if (store_observer != nullptr) store_observer->BeforeEviction(key);
}
inline bool Seeded(SeededBug bug) { return seeded_bug == bug; }
inline void ObserveStore() {
  if (store_observer != nullptr) store_observer->BeforeStore();
}
inline void ObserveFirstWord() {
  if (store_observer != nullptr) store_observer->BeforeFirstWord();
}
inline void ObserveCopiedHalves(Table& table) {
  if (store_observer != nullptr && Seeded(SeededBug::kWriteDuringSplit)) {
    store_observer->BetweenCopyAndPublish(table);
  }
}

#else

inline constexpr bool kTestHooks = false;

constexpr bool RewritingForced() { return false; }
constexpr bool CompactionForced() { return false; }
constexpr uint32_t EvictionsForced() { return 0; }
constexpr uint64_t CompactionBytesMax(uint64_t shipped) { return shipped; }
constexpr uint64_t WholeReadBytesMax(uint64_t shipped) { return shipped; }
constexpr void ObserveEviction(absl::string_view) {}
constexpr bool Seeded(SeededBug) { return false; }
constexpr void ObserveStore() {}
constexpr void ObserveFirstWord() {}
constexpr void ObserveCopiedHalves(Table&) {}

#endif

}  // namespace osprey::index

#endif  // OSPREY_INDEX_TEST_HOOKS_H_
