// The server as a state machine without clock, sleep or thread: each call advances it to the given
// time.
//
//   Engine::Poll(now)
//     |
//     |-- each port: Transport::Poll, at most kEventsPerTurn events
//     |     kConnectRequest  -> below the limits? a Connection : Reject
//     |     kReceived        -> Connection: Hello; or a request: batched with others
//     |                         (partition_batch.h), or executed at once, after those
//     |     kReadsDone       -> Connection: a piece of a large value has landed, or the peer lives
//     |     kDisconnected    -> its session is kept; the Connection ends
//     |   then the batched requests are executed, partition by partition, and answered; those of
//     |   all ports together, after further polls, if they share a sync (sync_group.h)
//     |
//     |-- connections whose replies wait for credits: try again
//     |-- long appends: one step of one of them
//     |-- for each table that was used and needs it, and with the timers for all: a step of growth
//     |   (one more in between after kWritesPerGrowStep writes), of a sweep, of eviction, of
//     |   compaction
//     |
//     |-- connections whose timer is due, kTimersPerTurn at most: silence, Hello in time
//     '-- timers that are due: sessions kept long enough, sweeps, the end
//
// One turn is bounded: kEventsPerTurn events a port, each of bounded work. It is fair, because
// credits bound a connection's frames in flight, and the transport serves connections in turn.
//
//   Engine engine(tables, std::move(ports), options, Now());
//   engine.Listen("rdma://0.0.0.0:7411");
//   while (!engine.done()) {
//     if (engine.Poll(Now())) continue;  // there was work: poll again
//     if (engine.Arm()) poll(engine.fds(), until engine.next_timer());  // sleep
//   }
//
// A server may have several engines, each on its own thread (pollers.h).
//
// Thread rule: one thread each.

#ifndef OSPREY_SERVER_ENGINE_ENGINE_H_
#define OSPREY_SERVER_ENGINE_ENGINE_H_

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "absl/container/btree_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "rdma/authentication.h"
#include "rdma/transport.h"
#include "server/engine/connection/connection.h"
#include "server/engine/connection/partition_batch.h"
#include "server/engine/connection/timer_queue.h"
#include "server/engine/direct_batch.h"
#include "server/engine/maintenance.h"
#include "server/engine/pollers.h"
#include "server/engine/session_snapshots.h"
#include "server/engine/sync_group.h"
#include "server/engine/synced_batch.h"
#include "server/requests/sessions.h"
#include "server/requests/tables.h"
#include "server/requests/write_log.h"
#include "server/stats/admission.h"
#include "server/stats/client_gets.h"
#include "server/stats/stats.h"

namespace osprey::server {

// The limit of events from a transport in one turn: enough to amortise the poll, few enough that a
// turn takes some 100 us (a few ms if each is a full Batch).
inline constexpr size_t kEventsPerTurn = 64;
// The limit of due connections that are handled in a turn. After a moment of silence all
// connections may be due at once, for a heartbeat READ each. Thousands of those would take long.
inline constexpr int kTimersPerTurn = 4;
// The poll interval while replies wait for credits, which come without an event.
inline constexpr absl::Duration kBlockedStep() { return absl::Milliseconds(1); }
// The time from Stop in which pending answers may be sent, while the server may answer; then
// connections are closed.
inline constexpr absl::Duration kDrainMax() { return absl::Seconds(2); }
// … and in which the engine is done, even if a transport still holds connections.
inline constexpr absl::Duration kStopMax() { return absl::Seconds(3); }
// The same of an engine that may not answer: another server has the data. Those that take it over wait for this one,
// and so do the other shards of this server.
inline constexpr absl::Duration kDeposedStopMax() { return absl::Milliseconds(200); }
// EngineOptions::only_tells_servers.
inline constexpr absl::Duration kTellReturningEvery() { return absl::Milliseconds(100); }

struct EngineOptions {
  uint64_t incarnation = 0;  // random, not 0; that of the tables
  size_t connections_max = 1024;
  // Shared by all engines of a server, and must outlive them. Null: the engine has its own, with
  // connections_max and no other limit.
  Admission* admission = nullptr;
  // Null: clients need not authenticate.
  rdma::AuthKey::Pointer key = nullptr;
  uint64_t value_bytes_max = uint64_t{1} << 20;
  std::string poll_mode = "none";  // for STATS
  // Returns 64 random bits for session ids and challenges. Required.
  std::function<uint64_t()> random;
  // CPU time of the process, for STATS; may be empty.
  std::function<absl::Duration()> process_cpu;
  // Takes a log line about a client that misbehaved or vanished; may be empty.
  std::function<void(absl::string_view)> log;
  // With several engines: their shared state, and this engine's number. Must outlive it.
  Pollers* pollers = nullptr;
  uint32_t poller = 0;
  // Identifies the data directory, 64 random bits. A client of an earlier incarnation with the same
  // id may resume its session. 0: data in memory.
  uint64_t data_id = 0;
  // The Welcome says so: READs of clients count only under a lease (client/lease/reader_lease.h).
  bool in_cluster = false;
  // The cluster's shards, a power of two, at most rdma::kShardsMax, and the one that this server has.
  // Clients that request another one, and requests on keys of others, are refused (rdma/wire/shard.h).
  uint32_t shards = 1;
  uint32_t shard = 0;
  // Receive the id of each session that begins, before its Welcome is sent, and of each that ends.
  // A restored session does not begin again, and no session ends because the engine does. Called on
  // the engine's thread. May be empty.
  std::function<void(uint64_t session)> session_begun;
  std::function<void(uint64_t session)> session_ended;
  // Sums clients' reports of their GETs. Shared by all engines of a server, and must outlive them.
  // Null: clients send no reports.
  ClientGets* client_gets = nullptr;
  // Counts answered PUTs by their time at the server (Counters::put_latencies), for one more look at
  // the clock in each turn with PUTs.
  bool times_puts = false;
  // The log of the tables' changes. Shared by all engines of a server, and must outlive them. Null:
  // the server holds its data in memory only.
  WriteLog* write_log = nullptr;
  // With a log that awaits syncs: the time, which goes on during a turn. Then the engine polls a
  // moment longer for requests that may share a sync (sync_group.h). Empty: it does not.
  std::function<absl::Time()> group_clock;
  // Of a server in a cluster: whether it has the right to answer now. Asked before each frame leaves,
  // after its contents were taken from the tables. If not, the frame is dropped and its connection is
  // closed; requests to connect are rejected. Called on the engine's thread; cheap. Empty: always.
  std::function<bool()> may_answer;
  // With a log: hands the sessions to checkpoints. Likewise.
  SessionSnapshots* session_snapshots = nullptr;
  // With a log: what STATS tells of it. Called on the engine's thread. Empty: nothing.
  std::function<DurabilityStats()> durability_stats;
  // In a cluster: likewise of its part in it.
  std::function<ClusterStats()> cluster_stats;
  // In a cluster: the addresses of its servers for clients, those of shard 0, one a line. Likewise.
  std::function<std::string()> cluster_servers;
  // It has no shard to serve. A client gets cluster_servers instead of a Welcome, once it has proved the key. Of clients
  // that have been connected before, thousands may come at once when a server is lost. So it rejects these, but for one
  // every kTellReturningEvery.
  bool only_tells_servers = false;
};

// A transport with its registered memory, which must outlive the engine.
struct EnginePort {
  std::unique_ptr<rdma::Transport> transport;
  const rdma::Memory* region = nullptr;   // the tables' bytes, Access::kRemoteRead
  const rdma::Memory* scratch = nullptr;  // kLivenessBytes, Access::kLocal
  // With several engines: their transports of the same domain, by poller. They outlive all use of
  // this one.
  std::vector<rdma::Transport*> by_poller = {};
};

// One poller. A turn runs through all its parts, which are its members: more than other classes have.
class Engine {
 public:
  // Owns the transports; `tables` outlive it. `now` is the start of its time.
  Engine(Tables& tables, std::vector<EnginePort> ports, const EngineOptions& options,
         absl::Time now);
  // Breaks the remaining connections.
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  // Accepts clients at `uri` on port `port_index`; returns the URI for clients. Errors: those of
  // Transport::Listen.
  absl::StatusOr<std::string> Listen(size_t port_index, absl::string_view uri);

  // The sessions of an earlier incarnation with the same data_id: takes those of this poller
  // (PollerOf), kept from `now` on. If there are too many, the first of them are dropped, and
  // reported by session_ended. Called before Listen, so that no client comes earlier. REQUIRES: as
  // Sessions::Restore.
  void RestoreSessions(absl::Span<const SessionImage> images, absl::Time now);
  // All sessions with their remembered answers. Thread rule: as Poll.
  std::vector<SessionImage> SessionImages() const { return sessions_.Images(); }

  // One turn. True if there was work: there may be more. `now` never decreases.
  bool Poll(absl::Time now);

  // Before a sleep: false if there is work now. Otherwise each of fds() that becomes readable
  // requires a Poll.
  bool Arm();
  std::vector<int> fds() const;
  // The time of the next Poll, even without a readable descriptor.
  absl::Time next_timer() const {
    return std::min({next_timer_, maintenance_.timer(), timers_.next()});
  }

  // Begins to stop: answers pending requests, refuses new ones, sends DisconnectNotice,
  // disconnects.
  void Stop(absl::Time now);
  // No work is left. By Stop + kStopMax at the latest, or kDeposedStopMax.
  bool done() const { return done_; }
  // Not OK after the loss of a device: stop and end.
  const absl::Status& failure() const { return failure_; }

  const Counters& counters() const { return counters_; }
  size_t connections() const;
  size_t sessions() const { return sessions_.size(); }

 private:
  using Connections =
      absl::btree_map<rdma::ConnectionId, std::unique_ptr<Connection>>;  // ordered: replayable

  // The connections of recent events, by their ids: mostly no search is needed.
  using Recent = std::array<Connection*, 64>;

  struct PortState {
    Port port;
    Connections connections;
    std::vector<rdma::Transport*> by_poller;
    Recent recent = {};
  };

  static Connection*& RecentPlace(PortState& state, rdma::ConnectionId id) {
    return state.recent[static_cast<uint64_t>(id) % std::tuple_size_v<Recent>];
  }
  static Connection* Find(PortState& state, rdma::ConnectionId id) {
    Connection* const recent = RecentPlace(state, id);
    return recent != nullptr && recent->id() == id ? recent : Search(state, id);
  }
  static Connection* Search(PortState& state, rdma::ConnectionId id);
  bool PollPorts(absl::Time now);
  bool PollGroup(absl::Time now);
  void HandleFrame(PortState& state, const rdma::Event& event, absl::Time now);
  void HandleOther(PortState& state, const rdma::Event& event, absl::Time now);
  void HandleRequest(PortState& state, const rdma::Event& event, absl::Time now);
  void Refuse(PortState& state, const rdma::Event& event);
  bool IsServing() const { return options_.may_answer == nullptr || options_.may_answer(); }
  bool Migrate(PortState& state, const rdma::Event& event);
  bool IsTold(const rdma::Event& event, absl::Time now);
  void HandleDisconnected(PortState& state, const rdma::Event& event, absl::Time now);
  void Touched(Connection& connection);
  void Enlist(Connection& connection);
  void RetryBlocked(absl::Time now);
  bool Work(absl::Time now);
  void ExecuteBatched(absl::Time now);
  bool MayPrecedeBatch(PortState& state, const rdma::Event& event);
  bool PublishDecided(absl::Time now);
  bool ApplyDecided(absl::Time now);
  uint32_t pollers() const { return options_.pollers == nullptr ? 1 : options_.pollers->count(); }
  uint64_t OwnPartitions() const;
  bool RunConnectionTimers(absl::Time now);
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
  Maintenance maintenance_;
  const std::unique_ptr<Admission> own_admission_;  // unless it is shared
  Admission& admission_;
  Counters counters_;
  uint64_t requests_taken_ = 0;  // connect requests that were handled
  Sessions sessions_;
  PartitionBatch partition_batch_;
  DirectBatch direct_batch_;
  std::optional<SyncedBatch> synced_batch_;  // where a change is made only when it is durable
  SyncGroup sync_group_;                     // likewise
  Shared shared_;
  // Connections hold spans of the table in which READs may land: destroy the transports first.
  std::vector<std::unique_ptr<PortState>> states_;
  std::vector<EnginePort> ports_;

  std::vector<rdma::Event> events_;
  std::vector<Connection*> blocked_;  // their replies wait for credits
  std::deque<Connection*> busy_;      // their long writes continue, in turn
  TimerQueue<Connection> timers_{kTimerStep()};
  absl::Time next_timer_;
  absl::Time timers_ran_at_ = absl::InfinitePast();
  absl::Time tells_returning_at_ = absl::InfinitePast();  // not earlier
  absl::Time stopped_at_ = absl::InfiniteFuture();
  bool done_ = false;
  absl::Status failure_;
};

}  // namespace osprey::server

#endif  // OSPREY_SERVER_ENGINE_ENGINE_H_
