// One thread of load. It takes operations from a source, keeps up to `depth` of them in flight in
// one store, and measures them. In a closed loop an operation starts when one has ended; otherwise
// at a pacer's times.
//
//             due, and a slot is free
//   +------+ ------------------------> +-----------+  ended, or the read failed    +------+
//   | free |                           | in flight | ----------------------------> | free |
//   +------+                           +-----------+                               +------+
//                                          |  ^  read-modify-write, and an update of one field:
//                                          +--+  when the read has ended, the write starts
//
// Times: `service` is from the call that starts the operation to the callback that ends it;
// `intended` is from the pacer's intended start. The time to make the value is before the first.
//
// Thread rule: one thread at a time, except for the atomics that it is given.

#ifndef OSPREY_TOOLS_LOADGEN_DRIVER_H_
#define OSPREY_TOOLS_LOADGEN_DRIVER_H_

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "tools/common/histogram.h"
#include "tools/loadgen/measurements.h"
#include "tools/loadgen/store.h"
#include "tools/loadgen/workload/operations.h"
#include "tools/loadgen/workload/pacing.h"
#include "tools/loadgen/workload/records.h"
#include "tools/loadgen/workload/workload.h"

namespace osprey::loadgen {

struct DriverOptions {
  OperationSource::Phase phase = OperationSource::Phase::kRun;
  uint32_t depth = 1;          // operations in flight, at least 1
  uint64_t operations = 0;     // to measure; 0: until `end_ns`, or the source ends
  int64_t start_ns = 0;        // of the measurement: earlier operations are the warm-up
  int64_t end_ns = INT64_MAX;  // no operation starts from here on
  bool verify = false;
  // Set for each thread: the numbers of two threads or processes must be far apart.
  uint64_t serial = 0;
  uint64_t seed = 0;
  std::optional<Pacer> pacer;  // none: a closed loop
};

// Shared by the threads of a run.
struct RunState {
  std::atomic<bool> stop = false;  // ends the run early
  Series series;
};

// The newest version that a thread has seen of some keys, on one connection.
class VersionsSeen {
 public:
  // `on`: false takes no memory, and nothing may be noted.
  explicit VersionsSeen(bool on) : seen_(on ? kKeys : 0) {}

  bool on() const { return !seen_.empty(); }
  // A version of the key that exists, 0 for none. REQUIRES: on().
  uint64_t FloorOf(uint64_t key) const;
  // Whether floors are of the client's present connection, the `connects`-th.
  bool IsOf(uint64_t connects) const { return connects == connects_; }
  // Notes a version. False: the connection is another one, and all was forgotten instead. A new
  // connection may lead to a new server with new versions. REQUIRES: on().
  bool Note(uint64_t key, uint64_t version, uint64_t connects);

 private:
  struct Seen {
    uint64_t key = UINT64_MAX;
    uint64_t version = 0;
  };
  static constexpr size_t kKeys = 1 << 16;

  std::vector<Seen> seen_;  // by key, modulo its size
  uint64_t connects_ = 0;
};

// The latencies of one thread in the present second of the series.
class PresentSecond {
 public:
  // `series` must outlive this. Its second 0 begins at `start_ns`. Operations that end after
  // `end_ns` count to its second.
  PresentSecond(Series& series, int64_t start_ns, int64_t end_ns)
      : series_(series), start_ns_(start_ns), end_ns_(end_ns) {}

  void EndAt(int64_t ns) { end_ns_ = std::min(end_ns_, ns); }
  // Adds a second that is over to the series. `now_ns` never decreases.
  void Reach(int64_t now_ns);
  void Record(uint64_t latency_ns) { latencies_.Record(latency_ns); }
  // Adds the rest to the second of `last_ns`, at the latest.
  void Close(int64_t last_ns);

 private:
  uint64_t SecondOf(int64_t ns) const;
  void Add();

  Series& series_;
  const int64_t start_ns_;
  int64_t end_ns_;
  uint64_t second_ = 0;
  Histogram latencies_;
};

class Driver : private StoreListener {
 public:
  // All must outlive this.
  Driver(const DriverOptions& options, const Workload& workload, SharedKeys& keys, Store& store,
         Clock& clock, RunState& state);

  // Runs until all requested operations are done and none is in flight. It ends, because every
  // operation of a store ends. A load ends early when an insert failed.
  void Run();

  // Measured operations that have ended; from any thread.
  uint64_t operations() const { return operations_.load(std::memory_order_relaxed); }

  // After Run.
  Measurements& measurements() { return measured_; }
  // When the last operation ended; `start_ns` if none was measured.
  int64_t ended_ns() const { return ended_.last_ns; }
  // Whether RunState::stop ended it before all requested operations were done.
  bool stopped() const { return ended_.stopped; }
  // The delay behind the pacer when the thread started its last operation.
  int64_t behind_ns() const { return ended_.behind_ns; }

 private:
  struct Slot {
    OperationKind kind = OperationKind::kRead;
    bool measured = false;
    bool checkable = false;  // `floor` is of this connection
    uint64_t key = 0;
    int64_t intended_ns = 0;
    int64_t start_ns = 0;
    int64_t part_ns = 0;  // when the part that is in flight started
    uint64_t floor = 0;   // a version of the key that existed before the operation
    std::string cursor;   // of this slot's scans
  };

  // How it ended.
  struct End {
    int64_t last_ns = 0;    // of the last operation
    int64_t behind_ns = 0;  // the pacer
    bool stopped = false;
  };

  void ReadEnded(Token token, absl::StatusOr<Value>& value) override;
  void WriteEnded(Token token, const absl::StatusOr<uint64_t>& version) override;
  void ScanEnded(Token token, const absl::StatusOr<ScanPage>& page) override;

  void StartWhatIsDue(int64_t now_ns);
  void StartOne(Token token, const Operation& operation, int64_t now_ns);
  absl::Status StartFirstPart(Token token, Slot& slot, const Operation& operation);
  void WriteBack(Token token, Value& value);
  void WaitForWork(int64_t now_ns);
  bool MayStart() const;
  // Starts no more operations.
  void Exhaust();
  // The parts of a read-modify-write are also measured by themselves.
  void MeasurePart(const Slot& slot, OperationKind kind, const absl::Status& status,
                   int64_t now_ns);
  void Finish(Token token, const absl::Status& status, int64_t now_ns);
  void Verify(const Slot& slot, absl::string_view key, const Value& value);
  void Note(const Slot& slot, uint64_t version);
  void CountClient();

  DriverOptions options_;
  const Workload& workload_;
  SharedKeys& keys_;
  Store& store_;
  Clock& clock_;
  RunState& state_;
  OperationSource source_;
  RecordMaker records_;

  std::vector<Slot> slots_;
  std::vector<Token> free_;
  VersionsSeen versions_;  // on if values are verified

  uint64_t started_ = 0;  // measured operations
  bool exhausted_ = false;
  bool failed_ = false;             // an insert of a load
  std::optional<Counters> before_;  // the client's when the measurement began
  int64_t last_start_ns_ = 0;
  End ended_;

  // On its own cache line, so that other threads' drivers do not write to it.
  alignas(64) std::atomic<uint64_t> operations_ = 0;

  PresentSecond second_;
  Measurements measured_;
};

}  // namespace osprey::loadgen

#endif  // OSPREY_TOOLS_LOADGEN_DRIVER_H_
