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

struct DurableVerdict {
  uint64_t operations = 0;
  uint64_t unknown = 0;    // writes that may have taken effect
  uint64_t unapplied = 0;  // operations that failed without effect
  uint64_t undecided = 0;  // keys whose history is too long for the checker
  std::string wrong;       // the first impossible answer; "": none
};

// Every history is linearizable across the lives, as if the server had lived on, and the versions
// of a key rise. `ends_ns`: the times at which a life ended without a clean end. After such an end
// the server's clock is up to kClockAheadNs ahead of where it would be, so keys expire earlier.
inline constexpr int64_t kClockAheadNs = 2'000'000'000;
DurableVerdict JudgeDurable(DurableHistories histories, const std::vector<int64_t>& ends_ns);

}  // namespace osprey

#endif  // OSPREY_TESTS_DURABILITY_DURABLE_HISTORY_H_
