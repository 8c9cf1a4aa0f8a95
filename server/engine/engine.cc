#include "server/engine/engine.h"

#include <algorithm>
#include <bit>
#include <cassert>
#include <utility>

#include "absl/algorithm/container.h"
#include "rdma/wire/shard.h"

namespace osprey::server {

using rdma::Event;
using rdma::RejectReason;

namespace {

std::unique_ptr<Admission> OwnAdmission(const EngineOptions& options) {
  AdmissionLimits limits;
  limits.connections_max = options.connections_max;
  limits.requires_authentication = options.key != nullptr;
  return std::make_unique<Admission>(limits);
}

bool AwaitsSync(const EngineOptions& options) {
  return options.write_log != nullptr && options.write_log->AwaitsSync();
}

// The generator of session ids. With a data directory the ids of a single poller have an affinity
// as well: the next incarnation may have several pollers.
std::function<uint64_t()> SessionIds(const EngineOptions& options) {
  if (options.pollers == nullptr && options.data_id == 0) return options.random;
  const uint32_t pollers = options.pollers == nullptr ? 1 : options.pollers->count();
  return [random = options.random, poller = options.poller, pollers] {
    return SessionIdOf(random(), poller, pollers);
  };
}

}  // namespace

Engine::Engine(Tables& tables, std::vector<EnginePort> ports, const EngineOptions& options,
               absl::Time now)
    : options_(options),
      started_(now),
      tables_(tables),
      access_(tables),
      maintenance_(tables, access_, OwnPartitions()),
      own_admission_(options.admission == nullptr ? OwnAdmission(options) : nullptr),
      admission_(options.admission == nullptr ? *own_admission_ : *options.admission),
      // Twice the connections: each may have left a session for its client to resume.
      sessions_(2 * options.connections_max, SessionIds(options),
                {options.session_begun, options.session_ended}),
      partition_batch_(AwaitsSync(options)),
      direct_batch_(partition_batch_, access_, maintenance_, counters_),
      sync_group_(options.group_clock),
      shared_{options.incarnation,
              options.value_bytes_max,
              access_,
              sessions_,
              counters_,
              partition_batch_,
              [this](const std::string& transport, absl::Time at) { return Stats(transport, at); },
              options.log},
      ports_(std::move(ports)),
      events_(kEventsPerTurn),
      next_timer_(absl::InfiniteFuture()) {
  shared_.execute_batched = [this](absl::Time at) { ExecuteBatched(at); };
  shared_.key = options.key;
  shared_.random = options.random;
  shared_.client_gets = options.client_gets;
  shared_.times_puts = options.times_puts;
  shared_.write_log = options.write_log;
  shared_.may_answer = options.may_answer;
  access_.set_log(options.write_log);
  shared_.publish_decided = [this](absl::Time at) { (void)PublishDecided(at); };
  if (AwaitsSync(options)) {
    synced_batch_.emplace(partition_batch_, access_, *options.write_log,
                          [this](absl::Time at) { return ApplyDecided(at); });
  }
  shared_.data_id = options.data_id;
  shared_.in_cluster = options.in_cluster;
  shared_.shards = options.shards;
  shared_.shard = options.shard;
  shared_.cluster_servers = options.cluster_servers;
  shared_.only_tells_servers = options.only_tells_servers;
  assert(!options.only_tells_servers || (options.data_id != 0 && options.cluster_servers));
  assert(rdma::IsShardCount(options.shards) && options.shard < options.shards);
  assert(options.incarnation != 0 && options.random != nullptr && options.connections_max > 0);
  for (const EnginePort& port : ports_) {
    assert(port.scratch->size() >= kLivenessBytes);
    states_.push_back(std::make_unique<PortState>(
        PortState{{*port.transport, *port.region, *port.scratch}, {}, port.by_poller}));
  }
}

Engine::~Engine() {
  ports_.clear();  // from here on no READ can land
  ForEachConnection([](Connection& connection) { connection.Abandon(); });
}

absl::StatusOr<std::string> Engine::Listen(size_t port_index, absl::string_view uri) {
  assert(port_index < ports_.size());
  return ports_[port_index].transport->Listen(uri, options_.incarnation);
}

void Engine::RestoreSessions(absl::Span<const SessionImage> images, absl::Time now) {
  for (const SessionImage& image : images) {
    if (PollerOf(image.id, pollers()) == options_.poller) sessions_.Restore(image, now);
  }
  next_timer_ = std::min(next_timer_, sessions_.next_expiry());
}

size_t Engine::connections() const {
  size_t count = 0;
  for (const auto& state : states_) count += state->connections.size();
  return count;
}

template <typename Function>
void Engine::ForEachConnection(Function&& function) {
  for (const auto& state : states_) {
    for (const auto& [id, connection] : state->connections) function(*connection);
  }
}

bool Engine::Poll(absl::Time now) {
  ++shared_.turn;
  // A turn with a sync is long in any case, and what waits for the next one needs a sync more.
  const bool one_is_greedy = !synced_batch_.has_value() && shared_.greedy == 1 && connections() > 1;
  shared_.turn_cost_max = one_is_greedy ? kTurnCostBesideOthersMax : kTurnCostMax;
  shared_.greedy = 0;
  bool worked = synced_batch_.has_value() ? PollGroup(now) : PollPorts(now);
  if (!blocked_.empty()) RetryBlocked(now);
  if (timers_.next() <= now) worked |= RunConnectionTimers(now);
  const bool timers = now >= std::min(next_timer_, maintenance_.timer());
  if (timers) RunTimers(now);
  worked |= Work(now);
  if (!shared_.publishing.empty()) worked |= PublishDecided(now);
  worked |= maintenance_.Run(now);
  // Also what has no answer: evictions, and writes of clients that are gone.
  if (options_.write_log != nullptr && failure_.ok()) failure_ = options_.write_log->Commit();
  if (options_.session_snapshots != nullptr &&
      options_.session_snapshots->IsWanted(options_.poller))
    options_.session_snapshots->Give(options_.poller, sessions_.Images());
  // Sessions also end by time alone.
  if ((worked || timers) && options_.pollers != nullptr)
    options_.pollers->Report(options_.poller, Report());
  return worked;
}

// Long writes that were decided since the last sync share one. False: there were none.
bool Engine::PublishDecided(absl::Time now) {
  if (shared_.publishing.empty() || !failure_.ok()) return false;
  do {
    if (index::IsMutant(index::Mutant::kApplyBeforeCommit)) ApplyDecided(now);
    failure_ = options_.write_log->Commit();
    if (failure_.ok()) ApplyDecided(now);
  } while (!shared_.publishing.empty() && failure_.ok());
  return true;
}

// REQUIRES: they are durable. False: there were none.
bool Engine::ApplyDecided(absl::Time now) {
  const std::vector<Connection*> publishing = std::exchange(shared_.publishing, {});
  for (Connection* const connection : publishing) {
    connection->ApplyDecided(now);
    Touched(*connection);
  }
  return !publishing.empty();
}

inline void Engine::HandleFrame(PortState& state, const Event& event, absl::Time now) {
  Connection* const found = Find(state, event.connection);
  if (found == nullptr) return;  // it was rejected
  counters_.received_bytes += event.frame.size();
  found->HandleFrame(event.frame, now);
  // Otherwise after its requests have been executed (ExecuteBatched).
  if (!found->batched() && found->needs_timer()) Touched(*found);
}

// As PollPorts, once or several times, and then executes what came.
bool Engine::PollGroup(absl::Time now) {
  sync_group_.BeginTurn();
  bool worked = PollPorts(now);
  while (sync_group_.Awaits(partition_batch_.size())) worked |= PollPorts(now);
  ExecuteBatched(now);
  return worked;
}

// True if something came.
bool Engine::PollPorts(absl::Time now) {
  bool worked = false;
  for (const auto& state : states_) {
    const size_t count = state->port.transport.Poll(absl::MakeSpan(events_));
    shared_.server_time_ns = 0;
    for (size_t i = 0; i < count; ++i) {
      const Event& event = events_[i];
      if (event.kind == Event::Kind::kReceived) {
        HandleFrame(*state, event, now);
      } else {
        HandleOther(*state, event, now);
      }
      maintenance_.GrowBetween(counters_.writes(), now);
    }
    // While the transport still has the frames.
    if (!partition_batch_.keeps_frames()) ExecuteBatched(now);
    worked |= count > 0;
  }
  return worked;
}

// A connection's requests are executed before its other events. READs of others need not wait: what
// lands before the batch's sync may share it.
bool Engine::MayPrecedeBatch(PortState& state, const Event& event) {
  if (event.kind != Event::Kind::kReadsDone) return false;
  const Connection* const connection = Find(state, event.connection);
  return connection == nullptr || !connection->batched();
}

// One step for one connection, in turn: many long writes of a connection delay it alone. True while
// there is more work.
bool Engine::Work(absl::Time now) {
  if (busy_.empty()) return false;
  Connection& connection = *busy_.front();
  busy_.pop_front();
  if (connection.busy()) connection.Work(now);
  Touched(connection);
  return true;
}

Connection* Engine::Search(PortState& state, rdma::ConnectionId id) {
  const auto it = state.connections.find(id);
  if (it == state.connections.end()) return nullptr;
  return RecentPlace(state, id) = it->second.get();
}

void Engine::HandleOther(PortState& state, const Event& event, absl::Time now) {
  if (!MayPrecedeBatch(state, event)) ExecuteBatched(now);
  if (event.kind == Event::Kind::kConnectRequest) return HandleRequest(state, event, now);
  if (event.kind == Event::Kind::kDisconnected) return HandleDisconnected(state, event, now);
  if (event.kind == Event::Kind::kDeviceLost) {
    const absl::string_view then = options_.write_log == nullptr
                                       ? "empty, as there is no --data-dir"
                                       : "with the keys of its data directory";
    failure_ = absl::UnavailableError(absl::StrCat(
        "the RDMA device is being removed, or has failed; start kvserver again when it is back (it "
        "begins ",
        then, ")"));
    return;
  }
  Connection* const found = Find(state, event.connection);
  if (found == nullptr) return;
  Connection& connection = *found;
  switch (event.kind) {
    case Event::Kind::kConnected:
      connection.Handle({Input::Kind::kConnected, {}}, now);
      break;
    case Event::Kind::kReadsDone:
      connection.HandleReadsDone(event.cookie, event.status, now);
      break;
    case Event::Kind::kReceived:
    case Event::Kind::kConnectRequest:
    case Event::Kind::kDisconnected:
    case Event::Kind::kDeviceLost:
      break;  // above
  }
  Touched(connection);
}

// True if another poller takes the connection. Only the first poller listens; the others' connect
// requests come from it.
bool Engine::Migrate(PortState& state, const Event& event) {
  if (options_.pollers == nullptr || options_.poller != 0) return false;
  const uint32_t chosen = options_.pollers->Choose(event.affinity);
  if (chosen != 0) {
    const absl::Status status =
        state.port.transport.Migrate(event.connection, *state.by_poller[chosen]);
    if (absl::IsUnavailable(status)) return true;  // the peer is gone
    // Otherwise that poller has too many connections on their way: keep this one.
    if (status.ok()) options_.pollers->Given(chosen);
    if (status.ok()) return true;
  }
  options_.pollers->Given(0);
  return false;
}

// Refuses a peer whose source holds too many descriptors.
void Engine::Refuse(PortState& state, const Event& event) {
  ++counters_.connections_rejected;
  admission_.CountRefusedForDescriptors();
  if (options_.log) {
    options_.log(absl::StrCat("client ", event.text, " was refused: ", event.status.message(),
                              "; end the processes of this user that cause it"));
  }
  state.port.transport.Reject(event.connection, RejectReason::kSourceHoldsDescriptors);
}

// Whether an engine that only tells servers tells them to this peer.
bool Engine::IsTold(const Event& event, absl::Time now) {
  if (event.affinity == 0) return true;
  if (now < tells_returning_at_) return false;
  tells_returning_at_ = now + kTellReturningEvery();
  return true;
}

// Allocates nothing for a peer that is refused.
void Engine::HandleRequest(PortState& state, const Event& event, absl::Time now) {
  const bool stopping = stopped_at_ != absl::InfiniteFuture();
  const bool serving =
      !stopping && IsServing() && (!options_.only_tells_servers || IsTold(event, now));
  if (serving && Migrate(state, event)) return;
  ++requests_taken_;
  if (serving && !event.status.ok()) return Refuse(state, event);
  Admission::Answer admitted;
  admitted.refusal = stopping ? RejectReason::kShuttingDown : RejectReason::kNotServing;
  if (serving) admitted = admission_.Ask(event.source);
  if (!admitted.ticket.valid()) {
    ++counters_.connections_rejected;
    return state.port.transport.Reject(event.connection, admitted.refusal);
  }
  if (const absl::Status status = state.port.transport.Accept(event.connection); !status.ok()) {
    // The peer is gone, and kDisconnected reports it, or a resource is used up.
    if (absl::IsResourceExhausted(status) && options_.log)
      options_.log(absl::StrCat("client ", event.text, " cannot be accepted: ", status.message()));
    return;
  }
  ++counters_.connections_accepted;
  auto connection = std::make_unique<Connection>(shared_, state.port, event.connection, event.text,
                                                 std::move(admitted.ticket), now);
  Touched(*connection);
  state.connections.emplace(event.connection, std::move(connection));
}

void Engine::HandleDisconnected(PortState& state, const Event& event, absl::Time now) {
  auto it = state.connections.find(event.connection);
  if (it == state.connections.end()) return;
  Connection& connection = *it->second;
  // May resume the connection that waits for its session, which may belong to any port.
  Connection* const resumed = connection.HandleDisconnected(event.status, now);
  if (resumed != nullptr) Touched(*resumed);
  RecentPlace(state, event.connection) = nullptr;
  timers_.Remove(connection);
  std::erase(blocked_, &connection);
  std::erase(busy_, &connection);
  std::erase(shared_.publishing, &connection);  // after a failure
  state.connections.erase(it);
  next_timer_ = std::min(next_timer_, now + kSessionKept());
  if (stopped_at_ != absl::InfiniteFuture()) AdvanceStop(now);
}

// Called after an event of the connection, and after its batched requests: its deadline may be
// earlier now.
void Engine::Touched(Connection& connection) {
  timers_.Set(connection, connection.deadline());
  if (connection.awaits_retry()) timers_.SetExactly(connection, connection.deadline());
  connection.TimerSet();
  Enlist(connection);
}

void Engine::Enlist(Connection& connection) {
  if (connection.blocked() && !absl::c_linear_search(blocked_, &connection))
    blocked_.push_back(&connection);
  if (connection.busy() && !absl::c_linear_search(busy_, &connection)) busy_.push_back(&connection);
}

void Engine::ExecuteBatched(absl::Time now) {
  if (partition_batch_.empty()) return;
  const uint64_t puts_before = counters_.puts;
  if (synced_batch_.has_value()) {
    sync_group_.BeginRound();
    if (absl::Status status = synced_batch_->Execute(now); !status.ok() && failure_.ok())
      failure_ = std::move(status);
    sync_group_.EndRound(partition_batch_.size());
  } else {
    direct_batch_.Execute(now);
  }
  for (Connection* const connection : partition_batch_.connections()) {
    connection->EndBatched(now);
    if (connection->needs_timer()) Touched(*connection);
  }
  partition_batch_.Clear();
  const uint64_t puts = counters_.puts - puts_before;
  // From the start of the turn that received them.
  if (options_.times_puts && puts > 0) counters_.AddPuts(puts, tables_.ServerTime() - now);
}

// The partitions whose timers belong to this engine.
uint64_t Engine::OwnPartitions() const {
  uint64_t own = 0;
  for (uint32_t i = options_.poller; i < tables_.partitions(); i += pollers())
    own |= uint64_t{1} << i;
  return own;
}

void Engine::RetryBlocked(absl::Time now) {
  for (Connection* connection : blocked_) {
    connection->Handle({Input::Kind::kTime, {}}, now);
    timers_.Set(*connection, connection->deadline());
  }
  blocked_.erase(
      std::remove_if(blocked_.begin(), blocked_.end(), [](Connection* c) { return !c->blocked(); }),
      blocked_.end());
  if (!blocked_.empty()) next_timer_ = std::min(next_timer_, now + kBlockedStep());
}

// True if more are due.
bool Engine::RunConnectionTimers(absl::Time now) {
  for (int count = 0; count < kTimersPerTurn; ++count) {
    Connection* const connection = timers_.TakeDue(now);
    if (connection == nullptr) return false;
    if (now >= connection->deadline()) connection->Handle({Input::Kind::kTime, {}}, now);
    // If it is still due, then with the next step: there was no work for it.
    timers_.Set(*connection, std::max(connection->deadline(), now + absl::Nanoseconds(1)));
    if (connection->awaits_retry() && connection->deadline() > now)
      timers_.SetExactly(*connection, connection->deadline());
    Enlist(*connection);
    next_timer_ = std::min(next_timer_, timers_ran_at_ + kTimerStep());
  }
  return timers_.next() <= now;
}

void Engine::RunTimers(absl::Time now) {
  timers_ran_at_ = now;
  absl::Time next = maintenance_.WakeDue(now);
  sessions_.Expire(now);
  next = std::min(next, sessions_.next_expiry());
  if (stopped_at_ != absl::InfiniteFuture()) {
    AdvanceStop(now);
    if (!done_) next = now;  // continue the stop at each step
  }
  next_timer_ = std::max(next, now + kTimerStep());
  if (!blocked_.empty()) next_timer_ = now + kBlockedStep();
}

void Engine::Stop(absl::Time now) {
  if (stopped_at_ != absl::InfiniteFuture()) return;
  stopped_at_ = now;
  ForEachConnection([this, now](Connection& connection) {
    connection.Handle({Input::Kind::kStop, {}}, now);
    Touched(connection);
  });
  next_timer_ = now + kTimerStep();
  AdvanceStop(now);
}

void Engine::AdvanceStop(absl::Time now) {
  // What may not be answered is not waited for: the clients have another server by then.
  const bool serves = IsServing();
  if (!serves || now >= stopped_at_ + kDrainMax()) {
    ForEachConnection([](Connection& connection) {
      connection.Close(CloseReason::kStopping, "the server ends");
    });
  }
  done_ =
      done_ || connections() == 0 || now >= stopped_at_ + (serves ? kStopMax() : kDeposedStopMax());
}

bool Engine::Arm() {
  bool idle = true;
  for (const EnginePort& port : ports_) idle &= port.transport->Arm();
  return idle;
}

std::vector<int> Engine::fds() const {
  std::vector<int> fds;
  for (const EnginePort& port : ports_) fds.push_back(port.transport->fd());
  if (options_.session_snapshots != nullptr)
    fds.push_back(options_.session_snapshots->fd(options_.poller));
  return fds;
}

PollerReport Engine::Report() const {
  return {counters_, connections(), sessions_.size(), sessions_.kept(), requests_taken_};
}

std::string Engine::Stats(const std::string& transport, absl::Time now) const {
  StatsInput input;
  input.transport = transport;
  input.poll_mode = options_.poll_mode;
  input.evict_mode = tables_.evicts() ? "clock" : "none";
  input.uptime = now - started_;
  if (options_.process_cpu) input.process_cpu = options_.process_cpu();
  input.incarnation = options_.incarnation;
  PollerReport report = Report();
  if (options_.pollers != nullptr) {
    report.Add(options_.pollers->SumOfOthers(options_.poller));
    input.pollers = options_.pollers->count();
  }
  input.partitions = tables_.partitions();
  input.connections = report.connections;
  input.connections_max = options_.connections_max;
  input.has_key = options_.key != nullptr;
  input.unauthenticated = admission_.unauthenticated();
  input.refusals = admission_.refusals();
  input.sessions = report.sessions;
  input.sessions_kept = report.sessions_kept;
  input.value_bytes_max = options_.value_bytes_max;
  if (options_.client_gets != nullptr) input.client_gets = options_.client_gets->Counts();
  if (options_.durability_stats) input.durability = options_.durability_stats();
  if (options_.cluster_stats) input.cluster = options_.cluster_stats();
  input.table = tables_.stats();
  input.counters = report.counters;
  return StatsText(input);
}

}  // namespace osprey::server
