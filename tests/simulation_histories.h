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

// What the history of a key shows for certain.
class KeyTimes {
 public:
  explicit KeyTimes(const std::vector<std::shared_ptr<Operation>>& history);
  ~KeyTimes();
  KeyTimes(KeyTimes&&) noexcept;

  // The key was there from `from` to `to`; it was not there at any moment of it.
  bool PresentThroughout(int64_t from, int64_t to) const;
  bool AbsentThroughout(int64_t from, int64_t to) const;

 private:
  struct Times;
  std::unique_ptr<Times> times_;
};

}  // namespace osprey

#endif  // OSPREY_TESTS_SIMULATION_HISTORIES_H_
