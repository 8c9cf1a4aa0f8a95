// Observers and faults for tests. In production kTestHooks is false, every function here is
// constant and empty, and the compiler removes the calls.
//
// The libraries of this module are built twice (index/BUILD): `//index/writer`, and for tests
// `//index/writer:writer_hooked`, with OSPREY_INDEX_TEST_HOOKS. The latter calls an observer before
// every store into the region, so that a test can run readers between any two stores of a write. On
// demand it also makes the mistakes that the rules of index/README.md exclude, so that a test can
// show that it detects them.

#ifndef OSPREY_INDEX_LAYOUT_TEST_HOOKS_H_
#define OSPREY_INDEX_LAYOUT_TEST_HOOKS_H_

#include <algorithm>
#include <cstdint>

#include "absl/strings/string_view.h"

namespace osprey::index {

class Table;

// Each is one mistake, with the rule that it breaks. tests/simulation/mutation_test.cc runs them
// all in the simulation. tests/index/index_mutants_test.cc runs most of them on the table alone.
enum class Mutant {
  kNone,
  // Writers.
  kNewItemLiveBeforeOldIsDead,      // W2
  kNoDeadMarkOnUpdate,              // W2
  kNoDeadMarkOnDelete,              // W2
  kNoDeadMarkOnPromotion,           // W2
  kSlotClearedBeforeDeadMark,       // W2, delete
  kMoveInsideWindow,                // W3
  kMoveFromWindowToChain,           // W3
  kMoveFromOverflowIntoSecondLine,  // W3
  kChainSourceClearedFirst,         // W3
  kMiddleOfChainUnlinked,  // W3: a line that is not the chain's last is unlinked and reused
  kDirectoryBeforeCopy,    // W7: the directory names the halves while their lines are empty
  kOldLinesNotPoisoned,    // W7
  kGenerationKeptOnReuse,  // W7: a unit has the same generation in all its uses
  kWriteDuringSplit,       // W7: between the copy and its publication
  kMergeMissedByCursor,    // scans, flushes: keys that a merge has added count as done
  kNoDeadMarkOnMove,       // W2, compaction
  kChangedItemMoved,       // W2, compaction: the copy is of the item before a write
  kExpiryIgnored,          // R8, server: an expired key counts as present
  kNoSecondLook,           // R8, server: a key's life is extended without the second clock read
  kDecidedUnhidden,        // R8, server: … and its item stays readable until a sync has ended
  // Both sides: input that the checksum does not cover.
  kNoItemChecksum,
  // Neither the record's version nor an item's cas version, which would replace it.
  kChecksumWithoutVersion,
  kChecksumWithoutOffset,
  kChecksumWithoutIncarnation,
  // Readers.
  kDeadIsMiss,                  // R1
  kKeyNotCompared,              // validation
  kPiecesNotVerified,           // validation, of a value that is READ in pieces
  kMappedProbeTrusted,          // validation, of a line found by the mapped probe
  kScanNotConfirmed,            // Scan: followed lines may have changed
  kStateNotCompared,            // validation
  kFingerprintNotConfirmed,     // R2
  kConfirmedBySlot,             // R2: the line's slots instead of its version
  kChainMissNotConfirmed,       // R2
  kChainMissConfirmedTooEarly,  // R2: before the chain's last READ
  kGenerationOfOneLine,         // R2
  kGenerationUnchecked,         // R2
  kAbsentByLatestTime,          // R8: absent by the latest possible time
  kPresentByEarliestTime,       // R8: present by the earliest possible time
  kClientClockSlewed,           // R8: bounds of the server's clock by a slewed clock
  // The server.
  kServerClockSlewed,  // R8: the server judges expiries by a slewed clock
  kVersionsRepeat,     // W1: each incarnation counts its cas versions from 1
  kAckBeforePublish,   // W8: a PUT is answered before it is executed
  // Its data directory (server/durability/README.md).
  kReplyBeforeCommit,  // a reply leaves before its change is in the log
  kCommitWithoutSync,  // … and before that is synced
  kApplyBeforeCommit,  // sync: a change is READable before it is durable
  kEvictionNotLogged,
  kResultsNotRestored,  // a repeated write is executed again by the next incarnation
  kCeilingForgotten,    // the next incarnation gives out versions that were given out
  kTimeMarkForgotten,   // the next incarnation's clock may be behind this one's
  kPiecesAbsorbed,      // … takes values in pieces for those that the checkpoint has
};

#ifdef OSPREY_INDEX_TEST_HOOKS

inline constexpr bool kTestHooks = true;

class StoreObserver {
 public:
  virtual ~StoreObserver() = default;
  virtual void BeforeStore() = 0;
  // Called instead of BeforeStore before the store of a record's first word, by which readers tell
  // its states apart.
  virtual void BeforeFirstWord() { BeforeStore(); }
  // kWriteDuringSplit only: the test writes here.
  virtual void BetweenCopyAndPublish(Table&) {}
  // The stores that follow end this key.
  virtual void BeforeEviction(absl::string_view) {}
};

// Process-wide, for tests of one thread.
inline StoreObserver* store_observer = nullptr;
inline Mutant active_mutant = Mutant::kNone;

// Compaction continues even if no space is needed.
inline bool compaction_forced = false;

// Segments merge whenever their keys fit, however full they are; and each step of growth moves one as
// well. Items get the lowest free run, which may have been the index's before.
inline bool merging_forced = false;
inline bool segment_moves_forced = false;
inline bool low_runs_forced = false;

// Each step evicts so many keys, whatever their counters, even if no memory is needed.
inline uint32_t evictions_forced = 0;

// The most bytes that one step of compaction moves, and the longest items that a lookup READs
// whole; 0: as shipped.
inline uint64_t compaction_bytes_max = 0;
inline uint64_t whole_read_bytes_max = 0;

// A Put is written in place wherever it fits there, as if there were no space for a copy.
inline bool rewriting_forced = false;

inline bool RewritingForced() { return rewriting_forced; }
inline bool CompactionForced() { return compaction_forced; }
inline bool MergingForced() { return merging_forced; }
inline bool SegmentMovesForced() { return segment_moves_forced; }
inline bool LowRunsForced() { return low_runs_forced; }
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
inline bool IsMutant(Mutant mutant) { return active_mutant == mutant; }
inline void ObserveStore() {
  if (store_observer != nullptr) store_observer->BeforeStore();
}
inline void ObserveFirstWord() {
  if (store_observer != nullptr) store_observer->BeforeFirstWord();
}
inline void ObserveCopiedHalves(Table& table) {
  if (store_observer != nullptr && IsMutant(Mutant::kWriteDuringSplit)) {
    store_observer->BetweenCopyAndPublish(table);
  }
}

#else

inline constexpr bool kTestHooks = false;

constexpr bool RewritingForced() { return false; }
constexpr bool CompactionForced() { return false; }
constexpr bool MergingForced() { return false; }
constexpr bool SegmentMovesForced() { return false; }
constexpr bool LowRunsForced() { return false; }
constexpr uint32_t EvictionsForced() { return 0; }
constexpr uint64_t CompactionBytesMax(uint64_t shipped) { return shipped; }
constexpr uint64_t WholeReadBytesMax(uint64_t shipped) { return shipped; }
constexpr void ObserveEviction(absl::string_view) {}
constexpr bool IsMutant(Mutant) { return false; }
constexpr void ObserveStore() {}
constexpr void ObserveFirstWord() {}
constexpr void ObserveCopiedHalves(Table&) {}

#endif

}  // namespace osprey::index

#endif  // OSPREY_INDEX_LAYOUT_TEST_HOOKS_H_
