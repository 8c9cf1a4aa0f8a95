// The server as a machine without clock, sleep or thread: give it the time, and it makes progress.
//
//   Engine::Poll(now)
//     |
//     |-- each port: Transport::Poll, at most kEventsPerTurn events
//     |     kConnectRequest  -> room? a Connection : Reject
//     |     kReceived        -> Connection: Hello; or a request: gathered with others (gather.h),
//     |                         or executed at once, after those
//     |     kReadsDone       -> Connection: a piece of a large value has landed, or the peer lives
//     |     kDisconnected    -> its session is kept; the Connection ends
//     |   then what was gathered is executed, partition by partition, and answered
//     |
//     |-- connections whose replies wait for credits: try again
//     |-- long appends: one step of one of them
//     |-- for each table that was used and wants it, and with the timers for all: a step of growth
//     |   (one more in between when there were kWritesPerGrowStep writes), of a sweep, of eviction,
//     |   of compaction
//     |
//     |-- connections whose time has come, kAlarmsPerTurn at most: silence, Hello in time
//     '-- timers that are due: sessions kept long enough, sweeps, the end
//
// One turn is bounded: kEventsPerTurn events a port, each of bounded work. It is fair: the frames
// that a connection may have on their way are bounded by its credits, and the transport serves
// connections in turn.
//
//   Engine engine(tables, std::move(ports), options, Now());
//   engine.Listen("rdma://0.0.0.0:7411");
//   while (!engine.done()) {
//     if (engine.Poll(Now())) continue;  // there was work: look again
//     if (engine.Arm()) poll(engine.fds(), until engine.next_timer());  // sleep
//   }
//
// A server may have several, each on a thread of its own (pollers.h).
//
// Thread rule: one thread each.

#ifndef OSPREY_SERVER_ENGINE_H_
#define OSPREY_SERVER_ENGINE_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/container/btree_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "rdma/authentication.h"
#include "rdma/transport.h"
#include "server/admission.h"
#include "server/alarms.h"
#include "server/client_gets.h"
#include "server/connection.h"
#include "server/gather.h"
#include "server/pollers.h"
#include "server/sessions.h"
#include "server/stats.h"
#include "server/tables.h"

namespace osprey::server {

// Events taken from a transport in one turn: enough to amortise the poll, few enough that a turn
// takes some 100 us (a few ms if each of them is a full Batch).
inline constexpr size_t kEventsPerTurn = 64;
// A table grows by one step (some 100 us) a turn, and by one more after so many writes of a turn:
// while all segments split, about one must split for every 200 new keys.
inline constexpr uint64_t kWritesPerGrowStep = 128;
// What gathered requests may cost under one hold of a partition's lock, in the units of
// kTurnCostMax: 64 small ones (some 10 us), or one that is dearer.
inline constexpr uint64_t kCostPerHold = 64;
// Tables that have a step made for them in a turn, of those that still want one after it.
inline constexpr int kTendedPerTurn = 2;
// Timers run no more often, and connections are called at multiples of it: none of that needs to be
// more precise.
inline constexpr absl::Duration kTimerStep() { return absl::Milliseconds(20); }
// Connections whose time has come that are called in a turn. After a moment of silence all of them
// may be asked at once whether they live, by a READ each; thousands of those take long.
inline constexpr int kAlarmsPerTurn = 4;
// While replies wait for credits, which come without an event.
inline constexpr absl::Duration kBlockedStep() { return absl::Milliseconds(1); }
// From Stop: until then answers to what is under way may go out; then connections are ended.
inline constexpr absl::Duration kDrainMax() { return absl::Seconds(2); }
// … and by then the engine is done, even if a transport still holds connections.
inline constexpr absl::Duration kStopMax() { return absl::Seconds(3); }

struct EngineOptions {
  uint64_t incarnation = 0;  // random, not 0; the tables'
  size_t connections_max = 1024;
  // Shared by all engines of a server, which it must outlive; null: one of this engine's own, with
  // connections_max and no other bound.
  Admission* admission = nullptr;
  // Null: clients need not authenticate.
  rdma::AuthKey::Pointer key = nullptr;
  uint64_t value_bytes_max = uint64_t{1} << 20;
  std::string poll_mode = "none";  // for STATS
  // 64 random bits: session ids, challenges. Required.
  std::function<uint64_t()> random;
  // CPU time of the process, for STATS; may be empty.
  std::function<absl::Duration()> process_cpu;
  // A line for people, about a client that misbehaved or vanished; may be empty.
  std::function<void(absl::string_view)> log;
  // When there are several engines: what they share, and which this one is. Must outlive it.
  Pollers* pollers = nullptr;
  uint32_t poller = 0;
  // Where clients' reports of their GETs go. Shared by all engines of a server; must outlive them.
  // Null: clients are not asked for any.
  ClientGets* client_gets = nullptr;
};

// One transport, with the memory that was registered for it. The memory must outlive the engine.
struct EnginePort {
  std::unique_ptr<rdma::Transport> transport;
  const rdma::Memory* region = nullptr;   // the tables' bytes, Access::kRemoteRead
  const rdma::Memory* scratch = nullptr;  // kLivenessBytes, Access::kLocal
  // When there are several engines: their transports of the same domain, by poller. They outlive
  // all use of this one.
  std::vector<rdma::Transport*> by_poller = {};
};

class Engine {
 public:
  // Owns the transports; `tables` outlive it. `now` is the start of its time.
  Engine(Tables& tables, std::vector<EnginePort> ports, const EngineOptions& options,
         absl::Time now);
  // Breaks what is still connected.
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  // Accepts clients at `uri` on port `port_index`; returns the URI that they can use. Errors:
  // Transport::Listen's.
  absl::StatusOr<std::string> Listen(size_t port_index, absl::string_view uri);

  // One turn. True when something happened: there may be more. `now` never goes back.
  bool Poll(absl::Time now);

  // To sleep: false when there is something to do now; else each of fds() that becomes readable
  // wants a Poll.
  bool Arm();
  std::vector<int> fds() const;
  // When Poll is wanted, whatever the fds say.
  absl::Time next_timer() const { return std::min(next_timer_, alarms_.next()); }

  // Begins to end: answers what is under way, refuses what is new, says Goodbye, disconnects.
  void Stop(absl::Time now);
  // Nothing is left to do. By Stop + kStopMax at the latest.
  bool done() const { return done_; }
  // Not OK once a device went away: stop and end.
  const absl::Status& failure() const { return failure_; }

  const Counters& counters() const { return counters_; }
  size_t connections() const;
  size_t sessions() const { return sessions_.size(); }

 private:
  using Connections =
      absl::btree_map<rdma::ConnectionId, std::unique_ptr<Connection>>;  // ordered: replayable

  struct PortState {
    Port port;
    Connections connections;
    std::vector<rdma::Transport*> by_poller;
  };

  void Handle(PortState& state, const rdma::Event& event, absl::Time now);
  void HandleRequest(PortState& state, const rdma::Event& event, absl::Time now);
  void Refuse(PortState& state, const rdma::Event& event);
  bool HandOver(PortState& state, const rdma::Event& event);
  void HandleDisconnected(PortState& state, const rdma::Event& event, absl::Time now);
  void Touched(Connection& connection);
  void Enlist(Connection& connection);
  void RetryBlocked(absl::Time now);
  bool Work(absl::Time now);
  // engine_tables.cc
  void ExecuteGathered(absl::Time now);
  bool ExecuteOf(uint32_t partition, bool wait, absl::Time now);
  void PrefetchItems(const Gather::Request& first);
  bool TendTables(absl::Time now);
  bool TendTable(uint32_t partition, absl::Time now);
  uint64_t OwnPartitions() const;
  uint32_t NextUntended();
  void AwaitSweep(uint32_t partition, absl::Time now);
  void TakeTouched();
  void GrowBetween(absl::Time now);
  bool RunAlarms(absl::Time now);
  void RunTimers(absl::Time now);
  void AdvanceStop(absl::Time now);
  template <typename Function>
  void ForEachConnection(Function&& function);
  PollerReport Report() const;
  std::string Stats(const std::string& transport, absl::Time now) const;

  const EngineOptions options_;
  const absl::Time started_;
  Tables& tables_;
  TableAccess access_;
  const uint64_t own_partitions_;
  // By partition: when a sweep for what has expired is due; InfiniteFuture: not here.
  std::vector<absl::Time> sweep_at_;
  uint64_t untended_ = 0;     // partitions that may want growth or compaction, a bit each
  uint64_t used_ = 0;         // likewise, those that were used here since sweep_at_ was set
  uint32_t tended_last_ = 0;  // a partition: the next one comes first
  const std::unique_ptr<Admission> own_admission_;  // unless it is shared
  Admission& admission_;
  Counters counters_;
  uint64_t grown_at_ = 0;        // writes until the last step of growth between events
  uint64_t requests_taken_ = 0;  // of peers that ask to connect
  Sessions sessions_;
  Gather gather_;
  Shared shared_;
  // Connections hold spans of the table that READs may land in: the transports go first.
  std::vector<std::unique_ptr<PortState>> states_;
  std::vector<EnginePort> ports_;

  std::vector<rdma::Event> events_;
  std::vector<Connection*> blocked_;  // their replies wait for credits
  std::deque<Connection*> busy_;      // long writes go on for them, in turn
  Alarms<Connection> alarms_{kTimerStep()};
  absl::Time next_timer_;
  absl::Time timers_ran_at_ = absl::InfinitePast();
  absl::Time stopped_at_ = absl::InfiniteFuture();
  bool done_ = false;
  absl::Status failure_;
};

}  // namespace osprey::server

#endif  // OSPREY_SERVER_ENGINE_H_
