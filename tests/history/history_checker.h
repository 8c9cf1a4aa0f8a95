// Judges the answers that clients of a server received during a fault.
//
// Thread rule: pure functions.

#ifndef OSPREY_TESTS_HISTORY_HISTORY_CHECKER_H_
#define OSPREY_TESTS_HISTORY_HISTORY_CHECKER_H_

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "tests/history/journal.h"

namespace osprey {

using Interval = std::pair<int64_t, int64_t>;  // ns of the steady clock

// A process, with several clients.
struct ClientProcess {
  std::vector<JournalRecord> records;
  bool killed = false;          // it need not recover
  std::vector<Interval> stops;  // SIGSTOP … SIGCONT
};

struct FaultTimes {
  // In each interval, at some instant, the server and all its data were lost.
  std::vector<Interval> losses;
  // The end of the fault; 0: no recovery is required.
  int64_t end_ns = 0;
};

struct Judgement {
  uint64_t operations = 0;
  uint64_t failed = 0;       // operations without a usable answer
  uint64_t failed_gets = 0;  // of these
  std::vector<uint64_t> failed_by_process;
  std::vector<uint64_t> open_by_process;  // called, and never returned
  // Losses of a server that had answered since the previous loss, while operations were under way.
  uint64_t losses_at_work = 0;
  uint64_t unknown = 0;  // of these: writes that may have taken effect
  // Impossible answers: damaged values, histories of a key that no order explains, and writes of
  // clients of a previous server found in a restarted one.
  uint64_t wrong = 0;
  uint64_t undecided = 0;  // keys whose history has too many writes with an unknown result
  // The largest time by which an operation exceeded its deadline, or an answer after it was
  // accepted, while the process was not stopped. At least 0. One answer for each client and stop
  // does not count: it may have arrived before the stop, after the client's last clock read.
  int64_t overrun_ns = 0;
  int64_t believed_late_ns = 0;
  // From the fault's end until each client has completed an operation and no more fail; -1: never.
  int64_t recovery_ns = 0;
  std::vector<std::string> explanations;  // of what is wrong; the first few
};

Judgement Judge(const std::vector<ClientProcess>& processes, const FaultTimes& times);

}  // namespace osprey

#endif  // OSPREY_TESTS_HISTORY_HISTORY_CHECKER_H_
