// Whether a history of operations on one key is linearizable: whether each of them can be given one
// instant between its call and its return, so that, one after the other, they answer what they
// answered.
//
// The method is that of Lowe ("Testing for linearizability", 2017), just-in-time linearization: the
// calls and returns are gone through in the order of time, with the set of all configurations (what
// the key is, which of the pending operations have had their instant) that agree with what was
// answered so far. Of two configurations that differ only in that one of them has used up writes of
// unknown outcome, that one is left out: whatever it can explain the other can. Keys are
// independent of each other, so a history of many keys is checked key by key (Herlihy and Wing:
// linearizability is local).
//
// Thread rule: pure functions.

#ifndef OSPREY_TESTS_LINEARIZABILITY_H_
#define OSPREY_TESTS_LINEARIZABILITY_H_

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

namespace osprey {

// What was asked. Times are nanoseconds of one clock for all clients, which is the server's, too.
struct Operation {
  enum class Kind {
    kGet,
    kExists,        // as GET, of whose answer only the version is told
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
    kLoss,     // all keys went, as the server did, and writes that it had been given
    kEvicted,  // the key went, as memory was wanted
  };
  enum class Outcome {
    kOk,         // GET: `answer` was the value. INCREMENT: the new number
    kNotFound,   // absent
    kExists,     // kPutIfAbsent: present
    kWrong,      // another version, or no number
    kUnapplied,  // failed, and has not happened
    // Failed, and may have happened, at any time since the call, while the server lives that it may
    // have been given to: until the first kLoss after its return.
    kUnknown,
  };
  static constexpr int64_t kNever = std::numeric_limits<int64_t>::max();

  Kind kind = Kind::kGet;
  std::string value;
  int64_t by = 0;
  uint64_t if_version = 0;
  int64_t ttl = 0;        // 0: lives until deleted
  int64_t ttl_slack = 0;  // by which it may live longer

  Outcome outcome = Outcome::kUnknown;
  std::string answer;
  uint64_t version = 0;  // kOk: of the value that was read or written; 0: not told

  int64_t call = 0;
  int64_t returned = kNever;
  int client = 0;  // for people

  std::string ToString() const;
};

struct Verdict {
  bool linearizable = true;
  // False: nothing was decided, as the configurations became too many.
  bool decided = true;
  // Not linearizable: what is wrong, and the operations around it.
  std::string explanation;
};

// `history` in any order; at most 64 operations may be pending at once, unknown ones included. The
// key is absent at first.
Verdict CheckLinearizable(const std::vector<Operation>& history,
                          size_t configurations_max = 1 << 16);
Verdict CheckLinearizable(const std::vector<const Operation*>& history,
                          size_t configurations_max = 1 << 16);

}  // namespace osprey

#endif  // OSPREY_TESTS_LINEARIZABILITY_H_
