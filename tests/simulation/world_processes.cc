// The processes of a simulated world: incarnations of the server, and clients.

#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/simulation/world.h"

namespace osprey {
namespace {

constexpr char kUri[] = "rdma://server:7411";
// Above 64 KiB a log has a value in pieces.
constexpr uint64_t kValueBytesMax = 128 << 10;

}  // namespace

bool World::StartServer() {
  ++report_.server_starts;
  auto server = std::make_unique<Server>();
  ++lives_;
  server->incarnation = 0xABC000 + lives_;
  server->domain = network_->NewDomain("server");
  server->region =
      server->domain->Allocate(plan_.region_bytes * plan_.partitions, rdma::Access::kRemoteRead)
          .value();
  server->scratch = server->domain->Allocate(server::kLivenessBytes, rdma::Access::kLocal).value();
  index::TableOptions table;
  table.incarnation = server->incarnation;
  table.hash_seed = kSimulatedHashSeed + (plan_.seed_of_each_life ? lives_ : 0);
  table.reuse_grace = absl::Milliseconds(
      static_cast<int64_t>(rng_.Below(static_cast<uint64_t>(plan_.grace_ms_max) + 1)));
  // It stands still while the tables are loaded.
  table.clock = [this] {
    return data_ == nullptr || data_->is_loaded() ? ServerTime() : absl::UnixEpoch();
  };
  std::vector<server::PartitionChanges*> changes;
  if (data_ != nullptr) {
    if (!data_->Open()) return FailStart();
    changes = data_->changes();
    table.hash_seed = data_->durability().hash_seed();
    if (const uint64_t last = data_->durability().last_version(); last != 0)
      table.cas_version = last;
  }
  table.split_percent = plan_.split_percent;
  table.small_items_percent = plan_.split_percent == 0 ? index::kSmallItemsPercent : 100;
  table.evict = plan_.evicts;
  server->tables = server::Tables::Create({server->region->data(), server->region->size()},
                                          plan_.partitions, table, std::move(changes))
                       .value();
  if (data_ != nullptr && !LoadData(*server)) return FailStart();
  StartEngines(*server);
  server_ = std::move(server);
  if (!server_->engines[0]->Listen(0, kUri).ok()) wrong_ = "the server cannot listen";
  if (haunted_ != rdma::ConnectionId::kNone) network_->Haunt(haunted_, *server_->region);
  haunted_ = rdma::ConnectionId::kNone;
  return true;
}

void World::StartEngines(Server& server) {
  server::EngineOptions options;
  options.incarnation = server.incarnation;
  options.connections_max = 64;
  options.value_bytes_max = kValueBytesMax;
  options.key = key_;
  options.random = [this] { return rng_.Next() | 1; };
  if (plan_.pollers > 1) {
    server.pollers = std::make_unique<server::Pollers>(plan_.pollers);
    options.pollers = server.pollers.get();
  }
  if (data_ != nullptr) {
    server::Durability& durability = data_->durability();
    options.write_log = &durability;
    options.data_id = durability.data_id();
    options.session_begun = [&durability](uint64_t id) { durability.SessionBegun(id); };
    options.session_ended = [&durability](uint64_t id) { durability.SessionEnded(id); };
  }
  std::vector<std::unique_ptr<rdma::Transport>> transports;
  std::vector<rdma::Transport*> by_poller;
  for (uint32_t i = 0; i < plan_.pollers; ++i) {
    transports.push_back(server.domain->NewTransport({}).value());
    by_poller.push_back(transports.back().get());
  }
  for (uint32_t i = 0; i < plan_.pollers; ++i) {
    std::vector<server::EnginePort> ports;
    ports.push_back(
        {std::move(transports[i]), server.region.get(), server.scratch.get(), by_poller});
    options.poller = i;
    server.engines.push_back(
        std::make_unique<server::Engine>(*server.tables, std::move(ports), options, ServerTime()));
    if (data_ != nullptr) server.engines[i]->RestoreSessions(data_->sessions(), ServerTime());
  }
}

// As kill -9: no peer is notified.
void World::KillServer() {
  const index::Table::Stats stats = server_->tables->stats();
  report_.splits += stats.splits;
  report_.merges += stats.merges;
  report_.chained += stats.chained_inserts;
  report_.expired += stats.expiries;
  report_.moved += stats.compaction_items;
  report_.evicted += stats.evictions;
  if (plan_.haunts && !calm_ && rng_.Chance(70)) {
    SimulatedClient& client = *clients_[0];
    haunted_ = client.engine->connection().id();
    network_->Cut(haunted_);
  }
  if (data_ != nullptr) {
    for (const auto& engine : server_->engines) {
      report_.writes_repeated += engine->counters().writes_repeated;
    }
  }
  server_.reset();
  server_asleep_until_ = 0;
  if (data_ != nullptr) EndData();
}

void World::StartClient(SimulatedClient& client) {
  client.domain = network_->NewDomain(absl::StrCat("client", client.number));
  client::EngineOptions options;
  options.connection.uri = kUri;
  options.connection.seed = rng_.Next();
  options.connection.key = key_;
  options.connection.backoff_first = absl::Microseconds(static_cast<int64_t>(plan_.backoff_us));
  options.connection.backoff_last = 100 * options.connection.backoff_first;
  options.connection.nonce = [this] {
    rdma::Nonce nonce{};
    for (std::byte& byte : nonce) byte = static_cast<std::byte>(rng_.Next());
    return nonce;
  };
  options.clock = [this, &client] { return ClientTime(client); };
  options.coarse_clock = [this, &client] { return CoarseClientTime(client); };
  options.slot_cache_bytes = rng_.Chance(plan_.cache_percent) ? 1 << 13 : 0;
  options.eager_bytes_max = rng_.Chance(plan_.eager_percent) ? client::kEagerBytesMax : 64;
  client.engine =
      client::ClientEngine::Create(*client.domain, client.domain->NewTransport({}).value(), options)
          .value();
  client.closing = client.device_lost = false;
}

// One of the pollers. (Never two nested turns: the outer one may hold a lock.)
void World::PollServer() {
  if (server_ == nullptr || server_->polling || now_ < server_asleep_until_) return;
  if (data_ != nullptr) RunDuties();
  server_->polling = true;
  const size_t count = server_->engines.size();
  server_->engines[count == 1 ? 0 : rng_.Below(count)]->Poll(ServerTime());
  server_->polling = false;
  actor_->ServerTurnEnded();
}

void World::PollClient(SimulatedClient& client) {
  if (client.engine == nullptr || client.polling || now_ < client.asleep_until) return;
  client.polling = true;
  client.previous_poll_began = std::exchange(client.poll_began, now_);
  client.engine->Poll(ClientTime(client));
  client.polling = false;
  actor_->HadTurn(client);
}

}  // namespace osprey
