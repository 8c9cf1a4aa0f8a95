// The answers that the clients of a simulation received, and the check of them.

#ifndef OSPREY_TESTS_SIMULATION_HISTORIES_H_
#define OSPREY_TESTS_SIMULATION_HISTORIES_H_

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "tests/history/linearizability.h"

namespace osprey {

// A scan that has come to its end.
struct ScanHistory {
  int64_t call = 0;
  int64_t returned = 0;
  std::set<std::string> keys;  // keys that it found
};

struct Histories {
  // By key. A key found by a scan is recorded as a GET, from the page's call to its return.
  std::map<std::string, std::vector<std::shared_ptr<Operation>>> keys;
  std::vector<ScanHistory> scans;
};

struct HistoriesVerdict {
  std::string wrong;       // "": nothing
  uint64_t undecided = 0;  // keys whose history was too long for the checker
};

// Checks that each key is linearizable. Each scan must find every key that was present throughout,
// and no key that was absent throughout.
HistoriesVerdict Judge(const Histories& histories);

// The facts that the history of a key proves.
class KeyTimes {
 public:
  explicit KeyTimes(const std::vector<std::shared_ptr<Operation>>& history);
  ~KeyTimes();
  KeyTimes(KeyTimes&&) noexcept;

  // Whether the key was present, or absent, at every moment from `from` to `to`.
  bool PresentThroughout(int64_t from, int64_t to) const;
  bool AbsentThroughout(int64_t from, int64_t to) const;

 private:
  struct Times;
  std::unique_ptr<Times> times_;
};

}  // namespace osprey

#endif  // OSPREY_TESTS_SIMULATION_HISTORIES_H_
