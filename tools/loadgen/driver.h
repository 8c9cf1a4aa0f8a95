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

#include <atomic>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
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
  int64_t ended_ns() const { return last_end_ns_; }
  // Whether RunState::stop ended it before all requested operations were done.
  bool stopped() const { return stopped_; }
  // The delay behind the pacer when the thread started its last operation.
  int64_t behind_ns() const { return behind_ns_; }

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

  // The newest version that this thread has seen of some keys.
  struct Seen {
    uint64_t key = UINT64_MAX;
    uint64_t version = 0;
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
  uint64_t FloorOf(uint64_t key) const;
  uint64_t SecondOf(int64_t now_ns) const;
  void ReportSecond(int64_t now_ns);
  void CloseSecond();
  void StartMeasuring();
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
  std::vector<Seen> seen_;  // by key, modulo its size; empty unless values are verified
  uint64_t connects_ = 0;   // a new connection may lead to a new server with new versions

  uint64_t started_ = 0;  // measured operations
  bool exhausted_ = false;
  bool stopped_ = false;
  bool failed_ = false;  // an insert of a load
  bool measuring_ = false;
  Counters before_;
  int64_t last_start_ns_ = 0;
  int64_t last_end_ns_ = 0;
  // Operations that end later count to this second of the series: the last operations in flight are
  // not a second's load.
  int64_t series_end_ns_;
  int64_t behind_ns_ = 0;

  // On its own cache line, so that other threads' drivers do not write to it.
  alignas(64) std::atomic<uint64_t> operations_ = 0;

  Histogram second_latencies_;
  uint64_t second_ = 0;

  Measurements measured_;
};

}  // namespace osprey::loadgen

#endif  // OSPREY_TOOLS_LOADGEN_DRIVER_H_
