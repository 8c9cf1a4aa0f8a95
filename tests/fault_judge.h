// Judges what the clients of a server were told while something went wrong.
//
// Thread rule: pure functions.

#ifndef OSPREY_TESTS_FAULT_JUDGE_H_
#define OSPREY_TESTS_FAULT_JUDGE_H_

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "tests/fault_journal.h"

namespace osprey {

using Interval = std::pair<int64_t, int64_t>;  // ns of the steady clock

// A process, with several clients.
struct ClientProcess {
  std::vector<JournalRecord> records;
  bool killed = false;          // so that it is not expected to recover
  std::vector<Interval> stops;  // SIGSTOP … SIGCONT
};

struct FaultTimes {
  // In each, at some instant, the server went and all that it stored.
  std::vector<Interval> losses;
  // When the fault was over; 0: no recovery is asked for.
  int64_t end_ns = 0;
};

struct Judgement {
  uint64_t operations = 0;
  uint64_t failed = 0;  // were not told what they wanted to know
  std::vector<uint64_t> failed_by_process;
  std::vector<uint64_t> open_by_process;  // called, and never returned
  // Losses that befell a server which had answered before, since the last one, while operations
  // were under way.
  uint64_t losses_at_work = 0;
  uint64_t unknown = 0;  // of these: writes that may have happened
  // Answers that cannot be: damaged values, histories of a key that no order explains, writes that
  // a restarted server has of its predecessor's clients.
  uint64_t wrong = 0;
  uint64_t undecided = 0;  // keys whose history has too many writes of unknown end
  // The most by which an operation outlasted its deadline, while its process was not stopped; and
  // by which an answer came that was believed all the same. At least 0. One answer a client and
  // stop does not count: a client that was stopped after its last look at the clock had it in hand.
  int64_t overrun_ns = 0;
  int64_t believed_late_ns = 0;
  // From the fault's end until the last of the clients had an operation done and no more failed;
  // -1: never.
  int64_t recovery_ns = 0;
  std::vector<std::string> explanations;  // of what is wrong; the first few
};

Judgement Judge(const std::vector<ClientProcess>& processes, const FaultTimes& times);

}  // namespace osprey

#endif  // OSPREY_TESTS_FAULT_JUDGE_H_
