// Judges the answers that clients received over several lives of a server with a data directory.
//
// Thread rule: pure functions.

#ifndef OSPREY_TESTS_DURABILITY_DURABLE_HISTORY_H_
#define OSPREY_TESTS_DURABILITY_DURABLE_HISTORY_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "tests/history/linearizability.h"

namespace osprey {

// By key. The operations of a key are in any order.
using DurableHistories = std::map<std::string, std::vector<Operation>>;

// The time without a server between two lives. Its clock may have been ahead of the time of day:
// then keys live longer by this time.
struct Restart {
  int64_t ending_ns = 0;  // the earlier life ends; at the earliest
  int64_t ended_ns = 0;   // the earlier life has ended; at the latest
  int64_t ready_ns = 0;   // the later life; at the latest
  // The ends without a clean end: of the earlier life, and of any that ended while it was starting.
  // After each the clock is up to kClockAheadNs ahead of where it would be: keys live shorter.
  int unclean_ends = 0;
  // Readers of the earlier life may have seen writes that were neither acknowledged nor logged.
  bool lost_unacknowledged = false;
};
inline constexpr int64_t kClockAheadNs = 2'000'000'000;

struct DurableVerdict {
  uint64_t operations = 0;
  uint64_t unknown = 0;    // writes that may have taken effect
  uint64_t unapplied = 0;  // operations that failed without effect
  uint64_t unjudged = 0;   // reads that may have seen a write that was lost, and not acknowledged
  uint64_t undecided = 0;  // keys whose history is too long for the checker
  std::string wrong;       // the first impossible answer; "": none
};

// Every history is linearizable across the lives, as if the server had lived on, and the versions
// of a key rise. `restarts` by time.
DurableVerdict JudgeDurable(DurableHistories histories, const std::vector<Restart>& restarts);

}  // namespace osprey

#endif  // OSPREY_TESTS_DURABILITY_DURABLE_HISTORY_H_
