// The journal of a process of the fault tests: its calls and the answers. The file outlives the
// process, however that ends.
//
// It is a mapping of a file in memory (tmpfs). A call is recorded before the operation starts, and
// its return when it has ended. An operation that was under way when the process was killed is
// recorded without a return: it may have taken effect. Times are of the machine's steady clock,
// which all its processes share.
//
//   +--------+-------+-------+- - -
//   | header | entry | entry |          kEntries of them; the file is sparse
//   +--------+-------+-------+- - -

#ifndef OSPREY_TESTS_HISTORY_JOURNAL_H_
#define OSPREY_TESTS_HISTORY_JOURNAL_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "tests/history/linearizability.h"

namespace osprey {

// One operation. Values and keys are recorded by their numbers (value.h).
struct JournalRecord {
  uint16_t key = 0;
  uint8_t client = 0;  // of this process, which has several
  Operation::Kind kind = Operation::Kind::kGet;
  Operation::Outcome outcome = Operation::Outcome::kUnknown;
  bool returned = false;
  bool failed = false;       // the operation returned no usable answer
  bool damaged = false;      // no process wrote the returned value to this key
  bool server_gone = false;  // failed: the server that received it is gone
  int64_t call_ns = 0;
  // The client had accepted the operation by now, so its deadline counts from this time or earlier;
  // 0: not recorded. The process may have been stopped since the call.
  int64_t started_ns = 0;
  int64_t returned_ns = 0;
  int64_t deadline_ns = 0;  // from the client's clock on
  int64_t written = 0;      // the value; of an increment, what it adds
  int64_t answer = 0;       // the value; of a counter, the number
  uint64_t version = 0;
  uint64_t if_version = 0;
};

// Thread rule: thread-safe, but each record belongs to one thread.
class Journal {
 public:
  static constexpr size_t kEntries = 1 << 20;

  // Makes the file. Errors: INTERNAL.
  static absl::StatusOr<std::unique_ptr<Journal>> Create(const std::string& path);
  // Returns the records of the file, whole calls only. Errors: INTERNAL.
  static absl::StatusOr<std::vector<JournalRecord>> Read(const std::string& path);
  ~Journal();
  Journal(const Journal&) = delete;
  Journal& operator=(const Journal&) = delete;

  // A record for a call; nullptr when the journal is full.
  JournalRecord* Call(const JournalRecord& call);
  // `record` is the result of the last Call, filled in.
  static void Return(JournalRecord* record);

 private:
  struct Entry;
  struct Header;
  explicit Journal(void* mapping) : mapping_(mapping) {}
  static size_t Bytes();
  static Entry* EntriesOf(void* mapping);

  void* const mapping_;
};

}  // namespace osprey

#endif  // OSPREY_TESTS_HISTORY_JOURNAL_H_
