#include "tests/simulation.h"

#include <algorithm>
#include <cassert>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "client/engine.h"
#include "client/reasons.h"
#include "index/hash.h"
#include "index/table.h"
#include "index/test_hooks.h"
#include "server/engine.h"
#include "server/tables.h"
#include "tests/fake_transport.h"
#include "tests/index_test_util.h"
#include "tests/linearizability.h"

namespace osprey {
namespace {

using Kind = Operation::Kind;

constexpr char kUri[] = "rdma://server:7411";
constexpr uint64_t kHashSeed = 42;
// How long after its deadline an operation may be answered: the longest step of time, and a turn.
constexpr int64_t kLateMax = 700'000'000;

// Expiries are kept in steps, rounded up.
constexpr int64_t kTtlSlack = 1 << 16;

// Keys that share windows, so that there are chains.
std::vector<std::string> CrowdedKeys() {
  constexpr uint32_t kHome = 77;
  const std::vector<std::string> of_home = index::KeysOfHome(kHome, 45, false, kHashSeed);
  const std::vector<std::string> of_next = index::KeysOfHome(kHome + 1, 45, false, kHashSeed);
  std::vector<std::string> keys;
  for (size_t i = 0; i < of_home.size(); ++i) {
    keys.push_back(of_home[i]);
    keys.push_back(of_next[i]);
  }
  return keys;
}

// Two keys that only their items tell apart.
std::vector<std::string> Twins() {
  std::map<std::pair<uint32_t, uint32_t>, std::string> seen;
  for (uint64_t i = 0;; ++i) {
    std::string key = absl::StrCat("t", i);
    const index::KeyHash hash = index::HashKey(key, kHashSeed);
    const auto [at, is_new] = seen.emplace(std::make_pair(hash.home(), hash.fingerprint()), key);
    if (!is_new) return {at->second, key};
  }
}

class Simulation final : public index::StoreObserver {
 public:
  explicit Simulation(const SimulationOptions& options);
  ~Simulation() override;

  SimulationReport Run();

  void BeforeStore() override {
    if (Chance(store_percent_)) LetOthersGoOn();
  }

 private:
  // A life of the server.
  struct Server {
    std::unique_ptr<rdma::Domain> domain;
    std::unique_ptr<rdma::Memory> region, scratch;
    std::unique_ptr<server::Tables> tables;
    std::unique_ptr<server::Engine> engine;
    bool polling = false;
  };
  struct Client {
    int number = 0;
    std::unique_ptr<rdma::Domain> domain;
    std::unique_ptr<client::Engine> engine;
    absl::Duration clock_offset;
    int64_t clock_ppm = 0;
    int depth = 1;
    bool polling = false;
    bool closing = false;
    int64_t asleep_until = 0;
    std::map<std::string, uint64_t> versions;  // seen last
  };

  uint64_t Random(uint64_t below) { return random_() % below; }
  bool Chance(uint64_t percent) { return random_() % 100 < percent; }
  // Every look at the clock is at another time.
  int64_t Tick() { return ++now_; }
  absl::Time ServerTime() { return absl::FromUnixNanos(Tick()) + absl::Hours(400000); }
  absl::Time ClientTime(const Client& client) {
    const int64_t now = Tick();
    return absl::FromUnixNanos(now + now * client.clock_ppm / 1'000'000) + client.clock_offset;
  }

  void StartServer();
  void KillServer();
  void StartClient(Client& client);
  void PollServer();
  void PollClient(Client& client);
  void LetOthersGoOn();
  void Step();
  void PassTime();
  void Fault();

  const std::string& ChooseKey();
  std::string NewValue();
  void MayStart(Client& client);
  void StartOperation(Client& client);
  void Started(const absl::Status& status, const std::shared_ptr<Operation>& operation);
  template <typename T>
  void Ended(Client& client, const std::string& key, const std::shared_ptr<Operation>& operation,
             int64_t deadline, const absl::StatusOr<T>& answer);
  void Wrong(std::string what) {
    if (report_.wrong.empty()) report_.wrong = std::move(what);
  }
  void Count(const Client& client);
  void Judge();

  const SimulationOptions options_;
  std::mt19937_64 random_;
  int64_t now_ = 1'000'000'000;
  SimulationReport report_;

  // Of this run.
  uint32_t partitions_ = 1;
  size_t region_bytes_ = 0;
  std::vector<std::string> keys_;
  uint64_t value_bytes_max_ = 0;
  uint64_t value_bytes_min_ = 0;
  uint64_t delete_percent_ = 10;
  uint32_t split_percent_ = 0;
  uint64_t piece_percent_ = 0;  // of pieces of READs before which others go on
  uint64_t store_percent_ = 0;  // of stores, likewise
  uint64_t fault_per_mille_ = 0;
  bool with_ttl_ = false;
  bool server_dies_ = false;
  bool clients_die_ = false;

  std::unique_ptr<fake::Network> network_;
  uint64_t lives_ = 0;
  std::unique_ptr<Server> server_;
  int64_t server_back_at_ = 0;
  std::vector<std::unique_ptr<Client>> clients_;
  int depth_ = 0;  // of polls within polls
  int started_ = 0;
  bool ending_ = false;
  int in_flight_ = 0;
  uint64_t last_value_ = 0;
  std::map<std::string, std::vector<std::shared_ptr<Operation>>> histories_;
};

Simulation::Simulation(const SimulationOptions& options)
    : options_(options), random_(options.seed) {
  static const std::vector<std::string> crowded = CrowdedKeys();
  static const std::vector<std::string> twins = Twins();
  fake::NetworkOptions network;
  network.seed = random_();
  const uint32_t pieces[] = {0, 1, 8, 16, 64};
  network.read_piece_bytes = pieces[Random(5)];
  network.shuffle_pieces = Chance(80);
  network_ = std::make_unique<fake::Network>(network);
  // About as often whatever the pieces are.
  piece_percent_ = network.read_piece_bytes == 1 ? 1 : 4 + Random(20);
  store_percent_ = Chance(50) ? 1 + Random(5) : 10 + Random(50);
  network_->before_piece = [this](absl::Span<const std::byte>) {
    if (Chance(piece_percent_)) LetOthersGoOn();
  };
  partitions_ = Chance(30) ? 2 : 1;
  region_bytes_ = partitions_ * (size_t{256} << 10 << Random(3));
  const uint64_t bounds[] = {20, 60, 300, 3000, 20000};
  value_bytes_max_ = bounds[Random(5)];
  // Values of one size take each other's places.
  if (Chance(50)) value_bytes_min_ = value_bytes_max_ - 1;
  fault_per_mille_ = Chance(40) ? 0 : 1 + Random(20);
  split_percent_ = Chance(40) ? 0 : index::kSplitPercent;
  with_ttl_ = Chance(40);
  server_dies_ = Chance(30);
  clients_die_ = Chance(30);
  if (Chance(50)) {
    keys_.assign(crowded.begin(), crowded.begin() + 20 + static_cast<ptrdiff_t>(Random(70)));
    delete_percent_ = 1 + Random(10);
  } else {
    for (uint64_t i = 1 + Random(Chance(50) ? 2 : 7); i > 0; --i)
      keys_.push_back(absl::StrCat("k", i));
  }
  if (Chance(50)) keys_.insert(keys_.end(), twins.begin(), twins.end());
  // Many keys that are written once in a while, so that the table grows.
  if (Chance(20)) {
    for (int i = 0; i < 200; ++i) keys_.push_back(absl::StrCat("many", i));
  }
  StartServer();
  for (int i = 0; i < 2 + static_cast<int>(Random(3)); ++i) {
    auto client = std::make_unique<Client>();
    client->number = i;
    // Operations at once on one key are what the judge's work grows with.
    client->depth = 1 + static_cast<int>(Random(keys_.size() < 4 ? 2 : 6));
    client->clock_offset = absl::Seconds(static_cast<int64_t>(Random(7200)) - 3600);
    client->clock_ppm = static_cast<int64_t>(Random(800)) - 400;
    StartClient(*client);
    clients_.push_back(std::move(client));
  }
#ifdef OSPREY_INDEX_TEST_HOOKS
  index::store_observer = this;
#endif
}

Simulation::~Simulation() {
#ifdef OSPREY_INDEX_TEST_HOOKS
  index::store_observer = nullptr;
#endif
}

// --- Processes -----------------------------------------------------------------------------------

void Simulation::StartServer() {
  ++report_.server_starts;
  auto server = std::make_unique<Server>();
  const uint64_t incarnation = 0xABC000 + ++lives_;
  server->domain = network_->NewDomain("server");
  server->region = server->domain->Allocate(region_bytes_, rdma::Access::kRemoteRead).value();
  server->scratch = server->domain->Allocate(server::kLivenessBytes, rdma::Access::kLocal).value();
  index::TableOptions table;
  table.incarnation = incarnation;
  table.hash_seed = kHashSeed;
  table.reuse_grace = absl::Milliseconds(static_cast<int64_t>(Random(20)));
  table.clock = [this] { return ServerTime(); };
  table.split_percent = split_percent_;
  table.small_items_percent = split_percent_ == 0 ? index::kSmallItemsPercent : 100;
  server->tables =
      server::Tables::Create({server->region->data(), server->region->size()}, partitions_, table)
          .value();
  server::EngineOptions options;
  options.incarnation = incarnation;
  options.connections_max = 64;
  options.value_bytes_max = 64 << 10;
  options.random = [this] { return random_() | 1; };
  std::vector<server::EnginePort> ports;
  ports.push_back(
      {server->domain->NewTransport({}).value(), server->region.get(), server->scratch.get()});
  server->engine =
      std::make_unique<server::Engine>(*server->tables, std::move(ports), options, ServerTime());
  server_ = std::move(server);
  if (!server_->engine->Listen(0, kUri).ok()) Wrong("the server cannot listen");
}

// As kill -9: nothing is said to anybody.
void Simulation::KillServer() {
  const index::Table::Stats stats = server_->tables->stats();
  report_.splits += stats.splits;
  report_.chained += stats.chained_inserts;
  report_.expired += stats.expiries;
  server_.reset();
}

void Simulation::StartClient(Client& client) {
  client.domain = network_->NewDomain(absl::StrCat("client", client.number));
  client::EngineOptions options;
  options.connection.uri = kUri;
  options.connection.seed = random_();
  options.clock = [this, &client] { return ClientTime(client); };
  options.slot_cache_bytes = Chance(80) ? 1 << 16 : 0;
  options.eager_bytes_max = Chance(50) ? client::kEagerBytesMax : 64;
  client.engine =
      client::Engine::Create(*client.domain, client.domain->NewTransport({}).value(), options)
          .value();
  client.closing = false;
}

void Simulation::PollServer() {
  if (server_ == nullptr || server_->polling) return;
  server_->polling = true;
  server_->engine->Poll(ServerTime());
  server_->polling = false;
}

void Simulation::PollClient(Client& client) {
  if (client.engine == nullptr || client.polling || now_ < client.asleep_until) return;
  client.polling = true;
  client.engine->Poll(ClientTime(client));
  client.polling = false;
}

// In the middle of somebody's step.
void Simulation::LetOthersGoOn() {
  if (depth_ >= 2) return;
  ++depth_;
  if (Chance(60)) PollServer();
  // Enough for whole operations, one after the other, between two stores.
  for (uint64_t turns = 1 + Random(Chance(25) ? 30 : 8); turns > 0; --turns) {
    Client& client = *clients_[Random(clients_.size())];
    if (!client.polling) MayStart(client);
    PollClient(client);
    Tick();
  }
  --depth_;
}

// --- What is done --------------------------------------------------------------------------------

const std::string& Simulation::ChooseKey() {
  // Half of all go to a few.
  const uint64_t few = std::min<uint64_t>(keys_.size(), 4);
  return keys_[Chance(50) ? Random(few) : Random(keys_.size())];
}

std::string Simulation::NewValue() {
  std::string value = absl::StrCat("v", ++last_value_, ".");
  const uint64_t bytes = value_bytes_min_ + Random(value_bytes_max_ + 1 - value_bytes_min_);
  while (value.size() < bytes) value.push_back(static_cast<char>('a' + value.size() % 26));
  return value;
}

// For what keeps or ends a time to live.
void NoTtl(Operation& operation, WriteOptions& options) {
  operation.ttl = 0;
  options.ttl = absl::ZeroDuration();
}

void Simulation::StartOperation(Client& client) {
  // At first each key once, so that windows are full.
  const bool first = static_cast<size_t>(started_) < keys_.size();
  const std::string key = first ? keys_[static_cast<size_t>(started_)] : ChooseKey();
  auto operation = std::make_shared<Operation>();
  operation->client = client.number;
  operation->call = Tick();
  const int64_t deadline =
      now_ + 1'000'000 * static_cast<int64_t>(2 + Random(Chance(50) ? 20 : 900));
  // The client's clock is another one, and not quite as fast.
  const absl::Time until = ClientTime(client) + absl::Nanoseconds(deadline - now_);
  const auto done = [this, &client, key, operation, deadline](const auto& answer) {
    Ended(client, key, operation, deadline, answer);
  };
  const auto version = client.versions.find(key);
  WriteOptions options;
  // Of runs with times to live: of a write in three. Some of it passes before the write is there.
  if (with_ttl_ && Chance(33)) {
    operation->ttl = 1000 * static_cast<int64_t>(1 + Random(Chance(50) ? 200 : 20000));
    operation->ttl_slack = kTtlSlack;
    options.ttl = absl::Nanoseconds(operation->ttl);
  }
  absl::Status status;
  const uint64_t what = first ? 60 : Random(100);
  ++in_flight_;
  ++started_;
  if (with_ttl_ && what >= 44 && what < 50) {
    operation->kind = operation->ttl == 0 ? Kind::kPersist : Kind::kExpire;
    const absl::Duration ttl = operation->ttl == 0 ? absl::InfiniteDuration() : options.ttl;
    options.ttl = absl::ZeroDuration();
    status = client.engine->StartExpire(key, ttl, options, until, done);
  } else if (what < 50) {
    operation->kind = Kind::kGet;
    operation->ttl = 0;
    status = client.engine->StartGet(key, true, until, done);
  } else if (what < 70) {
    operation->kind = Kind::kPut;
    operation->value = NewValue();
    status = client.engine->StartPut(key, operation->value, options, until, done);
  } else if (what < 74) {
    operation->kind = Kind::kPutIfAbsent;
    operation->value = NewValue();
    options.if_absent = true;
    status = client.engine->StartPut(key, operation->value, options, until, done);
  } else if (what < 79 && version != client.versions.end()) {
    operation->kind = Kind::kPutIfVersion;
    operation->value = NewValue();
    operation->if_version = options.if_version = version->second;
    status = client.engine->StartPut(key, operation->value, options, until, done);
  } else if (what < 81 && version != client.versions.end()) {
    operation->kind = Kind::kDeleteIfVersion;
    NoTtl(*operation, options);
    operation->if_version = options.if_version = version->second;
    status = client.engine->StartDelete(key, options, until, done);
  } else if (what < 81 + delete_percent_) {
    operation->kind = Kind::kDelete;
    NoTtl(*operation, options);
    status = client.engine->StartDelete(key, options, until, done);
  } else if (what < 84 + delete_percent_) {
    operation->kind = Kind::kIncrement;
    NoTtl(*operation, options);
    operation->by = 1 + static_cast<int64_t>(Random(9));
    status = client.engine->StartIncrement(key, operation->by, options, until, done);
  } else if (what < 88 + delete_percent_) {
    operation->kind = Kind::kAppend;
    NoTtl(*operation, options);
    operation->value = absl::StrCat("+", ++last_value_);
    status = client.engine->StartAppend(key, operation->value, options, until, done);
  } else {
    operation->kind = Kind::kPut;
    operation->value = NewValue();
    status = client.engine->StartPut(key, operation->value, options, until, done);
  }
  if (status.ok()) {
    histories_[key].push_back(operation);
    return;
  }
  --in_flight_;
  if (status.code() != absl::StatusCode::kCancelled &&
      status.code() != absl::StatusCode::kResourceExhausted) {
    Wrong(absl::StrCat("not started: ", status.ToString()));
  }
}

void Tell(const Value& value, Operation& operation) {
  operation.answer = value.bytes;
  operation.version = value.version;
}
void Tell(const Number& number, Operation& operation) {
  operation.answer = absl::StrCat(number.value);
  operation.version = number.version;
}
void Tell(uint64_t version, Operation& operation) { operation.version = version; }

Operation::Outcome OutcomeOf(const absl::Status& status, Kind kind) {
  switch (status.code()) {
    case absl::StatusCode::kOk:
      return Operation::Outcome::kOk;
    case absl::StatusCode::kNotFound:
      return Operation::Outcome::kNotFound;
    case absl::StatusCode::kAlreadyExists:
      return Operation::Outcome::kExists;
    case absl::StatusCode::kFailedPrecondition:
      return Operation::Outcome::kWrong;
    default:
      break;
  }
  if (kind == Kind::kGet || MayBeApplied(status)) return Operation::Outcome::kUnknown;
  return Operation::Outcome::kUnapplied;
}

template <typename T>
void Simulation::Ended(Client& client, const std::string& key,
                       const std::shared_ptr<Operation>& operation, int64_t deadline,
                       const absl::StatusOr<T>& answer) {
  --in_flight_;
  ++report_.operations;
  operation->returned = Tick();
  operation->outcome = OutcomeOf(answer.status(), operation->kind);
  if (operation->outcome == Operation::Outcome::kUnknown && operation->kind != Kind::kGet)
    ++report_.unknown;
  if (answer.ok()) {
    Tell(*answer, *operation);
    client.versions[key] = operation->version;
  }
  const absl::StatusCode code = answer.status().code();
  if (code == absl::StatusCode::kInternal || code == absl::StatusCode::kInvalidArgument ||
      code == absl::StatusCode::kDataLoss) {
    Wrong(absl::StrCat(operation->ToString(), ": ", answer.status().ToString()));
  }
  if (operation->returned > std::max(deadline, client.asleep_until) + kLateMax) {
    Wrong(absl::StrCat(operation->ToString(), " was answered ",
                       (operation->returned - deadline) / 1'000'000, " ms late"));
  }
}

// --- What goes wrong -----------------------------------------------------------------------------

void Simulation::Fault() {
  Client& client = *clients_[Random(clients_.size())];
  const rdma::ConnectionId id = client.engine->connection().id();
  switch (Random(10)) {
    case 0:
    case 1:
    case 2:
      return network_->Break(id, Chance(50));
    case 3:
      return network_->Cut(id);
    case 4:
      return network_->HoldReads(id, true);
    case 5:
      return network_->HoldReads(id, false);
    case 6:
      return network_->FailNextReads(id, absl::UnavailableError("a READ failed"));
    case 7:
      client.asleep_until = now_ + 1'000'000 * static_cast<int64_t>(Random(3000));
      return;
    case 8:
      if (!clients_die_ || client.closing) return;
      client.closing = true;
      return client.engine->Close();
    default:
      if (!server_dies_ || server_ == nullptr) return;
      KillServer();
      server_back_at_ = now_ + 1'000'000 * static_cast<int64_t>(Random(300));
  }
}

void Simulation::PassTime() {
  const uint64_t kind = Random(1000);
  if (kind < 900) {
    now_ += 1 + static_cast<int64_t>(Random(3000));
  } else if (kind < 995) {
    now_ += static_cast<int64_t>(Random(1'000'000));
  } else {
    now_ += static_cast<int64_t>(Random(kind == 999 ? 400'000'000 : 20'000'000));
  }
}

void Simulation::Step() {
  PassTime();
  if (Random(1000) < fault_per_mille_) Fault();
  if (server_ == nullptr && now_ >= server_back_at_) {
    StartServer();
    // All that was there is gone, at some instant of it.
    for (auto& [key, history] : histories_) {
      auto lost = std::make_shared<Operation>();
      lost->kind = Kind::kLoss;
      lost->outcome = Operation::Outcome::kOk;
      lost->call = server_back_at_ - 1;
      lost->returned = now_;
      history.push_back(lost);
    }
  }
  if (Chance(50)) PollServer();
  Client& client = *clients_[Random(clients_.size())];
  if (client.closing) {
    PollClient(client);
    if (!client.engine->closed()) return;
    Count(client);
    client.engine.reset();
    client.domain.reset();
    client.versions.clear();
    StartClient(client);
    return;
  }
  MayStart(client);
  PollClient(client);
}

void Simulation::MayStart(Client& client) {
  if (started_ < options_.operations && !ending_ && !client.closing &&
      now_ >= client.asleep_until && client.engine->in_flight() < client.depth) {
    StartOperation(client);
  }
}

// --- The whole -----------------------------------------------------------------------------------

void Simulation::Count(const Client& client) {
  const Counters& counters = client.engine->counters();
  report_.gets += counters.gets;
  report_.torn += counters.torn;
  report_.retries += counters.retries;
  report_.stale_hints += counters.stale_hints;
  report_.rpc_gets += counters.rpc_gets;
  report_.connects += counters.connects;
}

void Simulation::Judge() {
  for (const auto& [key, pointers] : histories_) {
    std::vector<Operation> history;
    for (const auto& operation : pointers) history.push_back(*operation);
    const Verdict verdict = CheckLinearizable(std::move(history));
    report_.undecided += verdict.decided ? 0 : 1;
    if (!verdict.linearizable) {
      Wrong(absl::StrCat("key '", key, "': ", verdict.explanation));
      return;
    }
  }
}

SimulationReport Simulation::Run() {
  // Time goes on by some microseconds a step: this bounds it to minutes.
  const int64_t steps_max = 20000 + int64_t{4000} * options_.operations;
  int64_t step = 0;
  for (; step < steps_max && report_.wrong.empty(); ++step) {
    if (started_ >= options_.operations && in_flight_ == 0) break;
    Step();
  }
  if (report_.wrong.empty() && in_flight_ != 0)
    Wrong(absl::StrCat(in_flight_, " operations are never answered"));
  if (report_.wrong.empty()) Judge();
  ending_ = true;
  for (const auto& client : clients_) {
    client->asleep_until = 0;
    if (!client->closing) client->engine->Close();
    for (int i = 0; i < 100000 && !client->engine->closed(); ++i) {
      now_ += 1'000'000;
      PollServer();
      PollClient(*client);
    }
    if (!client->engine->closed()) Wrong("a client does not close");
    Count(*client);
    client->engine.reset();
  }
  if (server_ != nullptr) KillServer();
  if (!report_.wrong.empty())
    absl::StrAppend(&report_.wrong, "\nseed ", options_.seed, ", ", options_.operations,
                    " operations");
  return report_;
}

}  // namespace

SimulationReport Simulate(const SimulationOptions& options) { return Simulation(options).Run(); }

}  // namespace osprey
