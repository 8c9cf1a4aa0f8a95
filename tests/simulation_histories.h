// What the clients of a simulation were told, and whether it can be true.

#ifndef OSPREY_TESTS_SIMULATION_HISTORIES_H_
#define OSPREY_TESTS_SIMULATION_HISTORIES_H_

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "tests/linearizability.h"

namespace osprey {

// A scan that has come to its end.
struct ScanHistory {
  int64_t call = 0;
  int64_t returned = 0;
  std::set<std::string> keys;  // that it found
};

struct Histories {
  // By key. What a scan found is in there as a GET, from the page's call to its return.
  std::map<std::string, std::vector<std::shared_ptr<Operation>>> keys;
  std::vector<ScanHistory> scans;
};

struct HistoriesVerdict {
  std::string wrong;       // "": nothing
  uint64_t undecided = 0;  // keys whose history was too much for the checker
};

// Each key for itself is linearizable; a scan has found each key that was there all the while, and
// none that was not there at any moment of it.
HistoriesVerdict Judge(const Histories& histories);

// Whether `history`, of one key, shows for certain that the key was there from `from` to `to`, or
// that it was not there at any moment of it.
bool WasPresentThroughout(const std::vector<std::shared_ptr<Operation>>& history, int64_t from,
                          int64_t to);
bool WasAbsentThroughout(const std::vector<std::shared_ptr<Operation>>& history, int64_t from,
                         int64_t to);

}  // namespace osprey

#endif  // OSPREY_TESTS_SIMULATION_HISTORIES_H_
