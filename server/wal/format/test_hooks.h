// Mistakes on purpose, for tests. In production IsMutant is constant, and the compiler removes the
// mistakes.
//
// The library is built twice (BUILD): `wal`, and for tests `wal_hooked`, with
// OSPREY_WAL_TEST_HOOKS. tests/server/wal/wal_mutants_test.cc shows that the simulation finds each.

#ifndef OSPREY_SERVER_WAL_FORMAT_TEST_HOOKS_H_
#define OSPREY_SERVER_WAL_FORMAT_TEST_HOOKS_H_

#include <cstdint>

namespace osprey::server::wal {

// Each is one mistake, with the rule of README.md that it breaks.
enum class Mutant : uint8_t {
  kNone,
  kNoChain,                // D1: the checksum of the record before is not compared
  kNoLife,                 // D1: checksums do not depend on the file's life and number
  kNoSyncedTo,             // D2: the tail begins at any invalid record
  kTailNotRewritten,       // D3: the log goes on behind a tail that may not be on the disk
  kNewSegmentNotSynced,    // D3: CURRENT names a segment that may not be on the disk
  kOldEndNotNamed,         // D4: a segment ends where its valid records end
  kCloseBeforeHeader,      // D5: it names a segment whose header is not synced
  kNoClose,                // D5
  kAckBeforeSync,          // D6
  kSyncCoversLaterWrites,  // D6: what was written while the sync ran counts as synced
  kOldSegmentNotSynced,    // D6: after a change of segments, only the new one is synced
  kSyncErrorForgotten,     // D7: the next sync counts
  kWriteErrorForgotten,    // D7: the log goes on behind what was not written
  kDirectoryNotSynced,     // D8
  kCurrentBeforeParts,     // D9: CURRENT names parts that are not synced
  kPartsNotVerified,       // D9: not read back
  kLogBehindWalk,          // D9: the log up to the end of the walk is not synced
  kOldFilesRemovedFirst,   // D10: before CURRENT is replaced
  kZerosOverRecords,       // D16: zeros begin before the end of the records
  kTailPiecesNotRead,      // D17: nor are pieces that were not known to be synced
};

#ifdef OSPREY_WAL_TEST_HOOKS

// A set of mutants, by bit. Process-wide, for tests of one thread.
inline uint64_t active_mutants = 0;
constexpr uint64_t MutantBit(Mutant mutant) { return uint64_t{1} << static_cast<uint8_t>(mutant); }
inline bool IsMutant(Mutant mutant) { return (active_mutants & MutantBit(mutant)) != 0; }

#else

constexpr bool IsMutant(Mutant) { return false; }

#endif

}  // namespace osprey::server::wal

#endif  // OSPREY_SERVER_WAL_FORMAT_TEST_HOOKS_H_
