#include "tests/simulation/cluster/cluster_clients.h"

#include <poll.h>

#include <algorithm>
#include <utility>

#include "rdma/raw_clock.h"
#include "tests/history/outcome.h"

namespace osprey {
namespace {

using Kind = Operation::Kind;
using Outcome = Operation::Outcome;

// An operation is answered in the first turn that begins so long after its deadline.
constexpr int64_t kLateMax = 5 * kMillisecond;
constexpr int kDepthMax = 4;
// Without faults. (Threads are held up, and shards are handed over for balance.)
constexpr int64_t kAnsweredMax = 10 * kSecond;
// Of a long value: the server READs it.
constexpr size_t kLongMin = 13'000;

void Tell(const Value& value, Operation& operation) {
  operation.answer = value.bytes;
  operation.version = value.version;
}
void Tell(const Number& number, Operation& operation) {
  operation.answer = absl::StrCat(number.value);
  operation.version = number.version;
}
void Tell(uint64_t version, Operation& operation) { operation.version = version; }

}  // namespace

SimulatedClusterClient::SimulatedClusterClient(ClusterWorld& world, int number, std::string uris,
                                               int operations, bool is_calm,
                                               ClusterHistories& histories)
    : world_(world),
      number_(number),
      uris_(std::move(uris)),
      left_(operations),
      is_calm_(is_calm),
      histories_(histories),
      host_(absl::StrCat("client", number)) {
  // (Clocks of clients are wrong by anything.)
  host_.time_of_day = 1'000'000'000 * kSecond;
}

absl::Time SimulatedClusterClient::Now() const { return absl::FromUnixNanos(RawClockNs()); }

void SimulatedClusterClient::Start() {
  thread_ = world_.threads.Start(host_, "client", [this] { Run(); });
}

std::vector<rdma::ConnectionId> SimulatedClusterClient::connections() const {
  std::vector<rdma::ConnectionId> ids;
  for (uint32_t i = 0; engines_ != nullptr && engines_->is_open() && i < engines_->count(); ++i)
    ids.push_back(engines_->at(i).connection().id());
  return ids;
}

void SimulatedClusterClient::Run() {
  domain_ = world_.network.NewDomain(domain());
  lease_clock_ = std::make_unique<LeaseClock>(std::make_unique<HostClocks>());
  client::EngineOptions options;
  options.connection.uri = uris_;
  options.connection.seed = world_.random.Next();
  options.clock = [this] { return Now(); };
  options.lease_clock = [this] { return lease_clock_->Now(); };
  options.slot_cache_bytes = world_.random.Chance(80) ? 1 << 14 : 0;
  engines_ = std::make_unique<client::ShardEngines>(
      *domain_, [this] { return domain_->NewTransport({}); }, options);
  if (Connect(*engines_)) Work();
  const Counters& counters = engines_->counters();
  world_.report.uncovered_reads += counters.uncovered_reads;
  world_.report.read_gets += counters.gets - std::min(counters.gets, counters.rpc_gets);
  engines_->Close();
  while (!engines_->closed()) {
    Poll();
    Sleep(Now() + absl::Milliseconds(1));
  }
  engines_.reset();
  domain_.reset();
  has_ended_ = true;
}

bool SimulatedClusterClient::Connect(client::ShardEngines& engines) {
  absl::Status status = engines.Open();
  while (status.ok() && engines.first().connection().times_ready() == 0) {
    Poll();
    Sleep(Now() + absl::Milliseconds(10));
  }
  if (status.ok() && engines.first().connection().terms().shards > 1) status = engines.AddShards();
  if (!status.ok()) world_.Wrong(absl::StrCat("a client does not begin: ", status.ToString()));
  return status.ok();
}

void SimulatedClusterClient::Work() {
  absl::Time next = Now();
  while (left_ > 0 || under_way_ > 0) {
    if (left_ > 0 && under_way_ < kDepthMax && Now() >= next) {
      Begin();
      const int64_t pause =
          world_.random.Chance(60) ? 0 : world_.Random(world_.plan.think_ms_max * kMillisecond);
      next = Now() + absl::Nanoseconds(pause);
    }
    Poll();
    Sleep(left_ > 0 && under_way_ < kDepthMax ? next : absl::InfiniteFuture());
  }
}

void SimulatedClusterClient::Poll() {
  previous_poll_began_ = std::exchange(poll_began_, world_.now());
  (void)engines_->Poll(Now());
}

void SimulatedClusterClient::Sleep(absl::Time until) {
  if (!engines_->Arm()) return;
  const absl::Duration left = std::min(until, engines_->NextTimer()) - Now();
  if (left <= absl::ZeroDuration()) return;
  std::vector<pollfd> waits;
  for (uint32_t i = 0; i < engines_->count(); ++i)
    waits.push_back({engines_->at(i).transport().fd(), POLLIN, 0});
  const timespec timeout = absl::ToTimespec(std::min(left, absl::Seconds(3600)));
  (void)ppoll(waits.data(), waits.size(), &timeout, nullptr);
}

// --- Operations ----------------------------------------------------------------------------------

Operation::Kind SimulatedClusterClient::ChooseKind() {
  const uint64_t what = world_.random.Below(100);
  if (what < 45) return Kind::kGet;
  if (what < 63) return Kind::kPut;
  if (what < 77) return Kind::kIncrement;
  if (what < 82) return Kind::kAppend;
  if (what < 88) return Kind::kDelete;
  if (what < 91) return Kind::kPutIfAbsent;
  if (what < 94) return Kind::kPutIfVersion;
  if (what < 97) return Kind::kExists;
  return world_.plan.ttl_percent == 0 ? Kind::kGet : Kind::kPersist;
}

void SimulatedClusterClient::Begin() {
  --left_;
  Call call;
  // A counter, and a value that is put.
  const int64_t number = world_.Random(world_.random.Chance(50) ? 3 : world_.plan.keys);
  Kind kind = ChooseKind();
  call.key = absl::StrCat(kind == Kind::kIncrement ? "counter" : "key", number);
  if (kind == Kind::kGet && world_.random.Chance(30)) call.key = absl::StrCat("counter", number);
  if (kind == Kind::kPutIfVersion && !versions_.contains(call.key)) kind = Kind::kPut;
  call.operation = std::make_shared<Operation>();
  Operation& operation = *call.operation;
  operation.kind = kind;
  operation.client = number_;
  operation.call = world_.threads.Tick();
  int64_t time =
      200 * kMillisecond + world_.Random(world_.random.Chance(50) ? kSecond : 6 * kSecond);
  if (is_calm_) time = kAnsweredMax;
  call.deadline = world_.now() + time;
  call.until = Now() + absl::Nanoseconds(time);
  switch (kind) {
    case Kind::kPut:
    case Kind::kPutIfAbsent:
    case Kind::kPutIfVersion:
      operation.value = absl::StrCat("v", number_, ".", left_, ".");
      operation.value.resize(operation.value.size() + static_cast<size_t>(world_.Random(
                                                          world_.random.Chance(20) ? 9000 : 60)),
                             'x');
      if (world_.plan.long_percent > 0 && world_.random.Chance(world_.plan.long_percent)) {
        call.is_long = true;
        operation.value.resize(kLongMin + static_cast<size_t>(world_.Random(kLongMin / 2)), 'l');
      }
      if (world_.random.Chance(world_.plan.ttl_percent)) {
        const int64_t ttl = 10 * kMillisecond + world_.Random(3 * kSecond);
        call.options.ttl = absl::Nanoseconds(ttl);
        // A new primary's clock may be ahead by as much as a mark, and more after each failover: a key may end at any
        // time, but it does not come back. (Clocks differ by less than a thousandth.)
        operation.ttl = 1;
        operation.ttl_slack = ttl + ttl / 100 + 20 * kMillisecond;
      }
      break;
    case Kind::kAppend:
      operation.value = absl::StrCat("+", number_, ".", left_);
      break;
    case Kind::kIncrement:
      operation.by = 1 + world_.Random(9);
      break;
    default:
      break;
  }
  call.options.if_absent = kind == Kind::kPutIfAbsent;
  if (kind == Kind::kPutIfVersion)
    operation.if_version = call.options.if_version = versions_.at(call.key);
  histories_[call.key].push_back(call.operation);
  call.server = engines_->Of(call.key).connection().uri();
  ++under_way_;
  if (const absl::Status status = Begin(call); !status.ok()) {
    --under_way_;
    operation.returned = world_.threads.Tick();
    operation.outcome = IsRead(kind) ? Outcome::kUnknown : Outcome::kUnapplied;
  }
}

absl::Status SimulatedClusterClient::Begin(Call& call) {
  client::OperationStarter& start = engines_->Of(call.key).start();
  const Operation& operation = *call.operation;
  const auto ending = [this, call]<typename T>(const absl::StatusOr<T>& answer) {
    Ended(call, answer);
  };
  switch (operation.kind) {
    case Kind::kGet:
      return start.Get(call.key, true, call.until, ending);
    case Kind::kExists:
      return start.Exists(call.key, call.until, [this, call](const absl::StatusOr<bool>& found) {
        absl::StatusOr<uint64_t> answer = uint64_t{0};
        if (!found.ok()) answer = found.status();
        if (found.ok() && !*found) answer = absl::NotFoundError("");
        Ended(call, answer);
      });
    case Kind::kPut:
    case Kind::kPutIfAbsent:
    case Kind::kPutIfVersion:
      return start.Put(call.key, operation.value, call.options, call.until, ending);
    case Kind::kDelete:
      return start.Delete(call.key, call.options, call.until, ending);
    case Kind::kIncrement:
      return start.Increment(call.key, operation.by, call.options, call.until, ending);
    case Kind::kAppend:
      return start.Append(call.key, operation.value, call.options, call.until, ending);
    default:
      return start.Expire(call.key, absl::InfiniteDuration(), call.options, call.until, ending);
  }
}

template <typename T>
void SimulatedClusterClient::Ended(const Call& call, const absl::StatusOr<T>& answer) {
  --under_way_;
  ClusterReport& report = world_.report;
  ++report.operations;
  Operation& operation = *call.operation;
  operation.returned = world_.threads.Tick();
  operation.outcome = OutcomeOf(answer.status(), operation.kind);
  const bool is_write = !IsRead(operation.kind);
  report.long_puts += call.is_long && answer.ok();
  if (operation.outcome == Outcome::kUnknown && is_write) ++report.unknown;
  if (answer.ok()) {
    Tell(*answer, operation);
    if (operation.version != 0) versions_[call.key] = operation.version;
    if (is_write && engines_->Of(call.key).connection().uri() != call.server)
      ++report.answered_elsewhere;
  }
  if (world_.options.log)
    world_.Log(absl::StrCat(call.key, " ", operation.ToString(), " ", answer.status().ToString()));
  for (const uint64_t word : {static_cast<uint64_t>(operation.returned), operation.version,
                              static_cast<uint64_t>(operation.outcome)})
    report.trace_hash = (report.trace_hash ^ word) * 0x100000001b3;
  const absl::StatusCode code = answer.status().code();
  if (code == absl::StatusCode::kInternal || code == absl::StatusCode::kInvalidArgument ||
      code == absl::StatusCode::kDataLoss)
    world_.Wrong(absl::StrCat(operation.ToString(), ": ", answer.status().ToString()));
  // (What is deleted is kept for readers for a while, so memory may be full.)
  if (is_calm_ && code != absl::StatusCode::kResourceExhausted &&
      (operation.outcome == Outcome::kUnknown || operation.outcome == Outcome::kUnapplied))
    world_.Wrong(absl::StrCat(operation.ToString(),
                              " failed without a fault: ", answer.status().ToString()));
  if (previous_poll_began_ > call.deadline + kLateMax)
    world_.Wrong(absl::StrCat(operation.ToString(), " was answered ",
                              (previous_poll_began_ - call.deadline) / kMillisecond,
                              " ms after its deadline"));
}

// --- The check -----------------------------------------------------------------------------------

std::string Judge(const ClusterHistories& histories, ClusterReport& report) {
  for (const auto& [key, history] : histories) {
    std::vector<const Operation*> operations;
    for (const auto& operation : history) operations.push_back(operation.get());
    ++report.histories;
    const Verdict verdict = CheckLinearizable(operations);
    report.undecided += verdict.decided ? 0 : 1;
    if (!verdict.linearizable) return absl::StrCat("key ", key, ": ", verdict.explanation);
  }
  return "";
}

}  // namespace osprey
