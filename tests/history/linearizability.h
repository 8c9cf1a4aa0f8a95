// Checks whether a history of operations on one key is linearizable. It is if each operation has
// one instant between its call and its return, and executing them in that order gives the same
// answers.
//
// The method is that of Lowe ("Testing for linearizability", 2017), just-in-time linearization. The
// checker processes calls and returns in the order of time. It keeps the set of all configurations
// that agree with the answers so far: the state of the key, and which pending operations have had
// their instant. If two configurations differ only in that one has used up writes of unknown
// outcome, that one is dropped: the other explains at least as much. Keys are independent, so a
// history of many keys is checked key by key (Herlihy and Wing: linearizability is local).
//
// Thread rule: pure functions.

#ifndef OSPREY_TESTS_HISTORY_LINEARIZABILITY_H_
#define OSPREY_TESTS_HISTORY_LINEARIZABILITY_H_

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

namespace osprey {

// One operation. Times are nanoseconds of one clock for all clients and the server.
struct Operation {
  enum class Kind {
    kGet,
    kExists,        // as GET, but the answer has only the version
    kPut,           // value, ttl
    kPutIfAbsent,   // value, ttl
    kPutIfVersion,  // value, ttl, if_version
    kDelete,
    kDeleteIfVersion,  // if_version
    kIncrement,        // by
    kAppend,           // value
    kExpire,           // ttl
    kPersist,
    // No operations:
    kLoss,     // the server, all keys and its pending writes were lost
    kRestart,  // the server and its pending writes were lost, and no key
    kEvicted,  // the key was evicted
  };
  enum class Outcome {
    kOk,         // GET: `answer` was the value. INCREMENT: the new number
    kNotFound,   // absent
    kExists,     // kPutIfAbsent: present
    kWrong,      // another version, or not a number
    kUnapplied,  // failed without effect
    // Failed, and may have taken effect at any time since the call, while the server lives that may
    // have received it: until the first kLoss or kRestart after its return.
    kUnknown,
  };
  static constexpr int64_t kNever = std::numeric_limits<int64_t>::max();

  Kind kind = Kind::kGet;
  std::string value;
  int64_t by = 0;
  uint64_t if_version = 0;
  int64_t ttl = 0;        // 0: lives until deleted
  int64_t ttl_slack = 0;  // by which the key may live longer

  Outcome outcome = Outcome::kUnknown;
  std::string answer;
  uint64_t version = 0;  // kOk: of the value that was read or written; 0: not reported

  int64_t call = 0;
  int64_t returned = kNever;
  int client = 0;  // for people

  std::string ToString() const;
};

bool IsRead(Operation::Kind kind);
// Whether the operation stores a value, under a new version, if it succeeds.
bool StoresValue(Operation::Kind kind);

struct Verdict {
  bool linearizable = true;
  // False: undecided, since there were too many configurations.
  bool decided = true;
  // If not linearizable: the error, and the operations around it.
  std::string explanation;
};

// `history` in any order; at most 64 operations may be pending at once, unknown ones included. The
// key is absent at first.
Verdict CheckLinearizable(const std::vector<Operation>& history,
                          size_t configurations_max = 1 << 16);
Verdict CheckLinearizable(const std::vector<const Operation*>& history,
                          size_t configurations_max = 1 << 16);

}  // namespace osprey

#endif  // OSPREY_TESTS_HISTORY_LINEARIZABILITY_H_
