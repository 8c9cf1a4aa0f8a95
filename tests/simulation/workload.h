// The operations of the clients of a simulation, drawn from a plan, and the histories of all keys.
//
// It has more methods than other classes: one kind of operation each, on the one set of histories.
// workload_scans.cc has the scans, workload_results.cc what became of operations, workload_events.cc
// what the world reports.
//
// Thread rule: one thread.

#ifndef OSPREY_TESTS_SIMULATION_WORKLOAD_H_
#define OSPREY_TESTS_SIMULATION_WORKLOAD_H_

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/status/statusor.h"
#include "tests/history/linearizability.h"
#include "tests/simulation/histories.h"
#include "tests/simulation/plan.h"
#include "tests/simulation/simulation.h"
#include "tests/simulation/world.h"

namespace osprey {

class Workload final : public World::Actor {
 public:
  Workload(World& world, int operations, SimulationReport& report);
  ~Workload() override;

  bool all_answered() const {
    return started_ >= operations_ && in_flight_ == 0 && (!cleaning_ || queue_.empty());
  }
  int in_flight() const { return in_flight_; }
  // Reads every key, and then deletes it (once all are answered). Continues until all_answered.
  void BeginCleaning();
  // Whether the table must be empty now: every key was deleted, and no write is unknown, which
  // could still arrive.
  bool cleaned() const { return cleaning_ && !cleaning_failed_ && report_.unknown == 0; }
  const Histories& histories() const { return histories_; }
  // The error of a single answer; "": none.
  const std::string& wrong() const { return wrong_; }
  // A hash of all answers in order: the same for the same run.
  uint64_t trace_hash() const { return trace_hash_; }

  void MayStart(SimulatedClient& client) override;
  void HadTurn(SimulatedClient& client) override;
  void ClientEnded(SimulatedClient& client) override;
  void AllLost(int64_t from) override;
  void Restarted(int64_t from) override;
  void Restored(int64_t from, const std::string& key, const LostKey& lost,
                uint64_t server_time_ns) override;
  void LostUnanswered(const ReportedChange& change) override;
  void EvictionsUndone() override;
  void Evicting(absl::string_view key) override;
  void ServerTurnEnded() override;
  void BetweenCopyAndPublish(index::Table& table) override;

 private:
  using OperationPointer = std::shared_ptr<Operation>;
  // Expiries are kept in steps, rounded up.
  static constexpr int64_t kTtlSlack = 1 << 16;
  static constexpr size_t kBufferBytes = 32 << 10;
  // Memory of the application that no operation uses.
  static constexpr std::byte kIdle{0xE7};

  // An operation that is being started.
  struct Start {
    SimulatedClient& client;
    std::string key;
    OperationPointer operation;
    int64_t deadline = 0;
    absl::Time until;  // the deadline by the client's clock
    WriteOptions options;
    bool reads_posted = false;  // by the call that begins a GET, of this key or another
  };
  // A batch of blocking GETs.
  struct Waiter {
    std::vector<Start> starts;
    std::vector<absl::StatusOr<Value>> answers;
    std::vector<bool> told;
    size_t unanswered = 0;
  };
  // A scan of all keys, page by page.
  struct ScanUnderWay;

  bool Chance(uint64_t percent) { return world_.rng().Chance(percent); }
  uint64_t Random(uint64_t below) { return world_.rng().Below(below); }
  Operation::Kind ChooseKind(bool& into_buffer);
  const std::string& ChooseKey();
  std::string NewValue();
  std::string ForgedValue();
  void QueueGroup();
  Start NewStart(SimulatedClient& client, std::string key, Operation::Kind kind);
  void StartOperation(SimulatedClient& client);
  absl::Status StartOne(Start start, bool with_buffer);
  absl::Status StartGetInto(Start start);
  absl::Status StartPutFrom(Start start);
  absl::Status StartWrite(Start& start);
  template <typename T>
  absl::AnyInvocable<void(absl::StatusOr<T>)> Ending(const Start& start) {
    return [this, start](const absl::StatusOr<T>& answer) { Ended(start, answer); };
  }
  template <typename T>
  void Ended(const Start& start, const absl::StatusOr<T>& answer);
  void NoteStart(const Start& start, const absl::Status& status);
  void NotStarted(const absl::Status& status);
  void StartBurst(SimulatedClient& client);
  void StartWaiting(std::vector<Start> starts);
  void StartScan(SimulatedClient& client);
  void StartFlush(SimulatedClient& client);
  static bool IsWrittenSince(const std::vector<OperationPointer>& history, int64_t from);
  OperationPointer NoteEvent(const std::string& key, Operation::Kind kind, int64_t call);
  void NextPage(std::shared_ptr<ScanUnderWay> scan);
  size_t TakeBuffer(SimulatedClient& client);
  void CountDone(Operation::Kind kind);
  void ReturnBuffer(SimulatedClient& client, size_t number, const client::RegisteredMemory* memory);
  void Wrong(std::string what) {
    if (wrong_.empty()) wrong_ = std::move(what);
  }
  void Trace(uint64_t word) { trace_hash_ = (trace_hash_ ^ word) * 0x100000001b3; }

  World& world_;
  const Plan& plan_;
  const int operations_;
  SimulationReport& report_;
  uint32_t mix_total_ = 0;
  int started_ = 0;
  int in_flight_ = 0;
  bool cleaning_ = false;
  bool cleaning_failed_ = false;
  uint64_t last_value_ = 0;
  // The next operations, for the next client with a turn.
  std::deque<std::pair<Operation::Kind, std::string>> queue_;
  std::map<std::pair<int, std::string>, uint64_t> versions_;  // last seen, by client and key
  std::vector<std::unique_ptr<Waiter>> waiters_;
  std::vector<OperationPointer> evicting_;
  Histories histories_;
  std::string wrong_;
  uint64_t trace_hash_ = 0xcbf29ce484222325;
};

}  // namespace osprey

#endif  // OSPREY_TESTS_SIMULATION_WORKLOAD_H_
