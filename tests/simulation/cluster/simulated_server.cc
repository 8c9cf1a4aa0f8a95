#include "tests/simulation/cluster/simulated_server.h"

#include <algorithm>
#include <utility>

#include "index/writer/table.h"
#include "rdma/wire/shard.h"
#include "server/cluster_service.h"
#include "server/wal/format/entries.h"

namespace osprey {

SimulatedServer::SimulatedServer(ClusterWorld& world, StoreState& store, uint32_t number)
    : world_(world), store_(store), id_(ClusterWorld::ServerName(number)), host_(id_) {
  host_.time_of_day = 1'800'000'000 * kSecond;
}

server::Config SimulatedServer::MakeConfig() const {
  server::Config config;
  config.listen = {*rdma::ParseAddress(address())};
  config.memory_bytes = world_.plan.slots * kShardBytesMin;
  config.shards = world_.plan.shards;
  config.slots = world_.plan.slots;
  config.poll = world_.plan.poll;
  config.connections_max = 64;
  config.value_bytes_max = 64 << 10;
  config.pollers = world_.plan.pollers;
  config.partitions = kClusterPartitions;
  config.cluster.emplace();
  config.cluster->server_id = id_;
  config.cluster->listen = {*rdma::ParseAddress(absl::StrCat("shm:///links-", id_))};
  config.cluster->backup_timeout = absl::Seconds(1);
  config.cluster->rejoin_after = absl::Seconds(3);
  return config;
}

void SimulatedServer::Start() {
  processes_.push_back(std::make_unique<Process>());
  process_ = processes_.back().get();
  process_->domain = absl::StrCat(id_, ".", ++lives_);
  process_->thread = world_.threads.Start(host_, absl::StrCat("main.", lives_),
                                          [this, &process = *process_] { Run(process); });
}

// As serve.cc.
void SimulatedServer::Run(Process& process) {
  const server::Config config = MakeConfig();
  process.server = std::make_unique<server::Server>();
  server::Server& server = *process.server;
  server.places.push_back({rdma::Address::Scheme::kShm, world_.network.NewDomain(process.domain)});
  server.cluster = std::make_unique<server::ClusterParts>("/osprey/simulated/");
  for (const auto& [store, seen] : {std::pair(&server.cluster->renewals, &process.renewals),
                                    std::pair(&server.cluster->calls, &process.calls)}) {
    auto made = std::make_unique<SimulatedStore>(
        world_, store_, world_.keys.Server(id_),
        [this, &process] { return process.is_killed || is_cut_from_store; });
    *seen = made.get();
    *store = std::move(made);
  }
  server.cluster->clock_sources = [] { return std::make_unique<HostClocks>(); };
  server.cluster->record = world_.cluster;
  absl::Status status = server::MakeSlots(config, server);
  for (const auto& slot : server.slots)
    slot->writes->writes.SetPartLengths({.value = 12'000, .part = 2000});
  if (status.ok()) status = server::Load(config, process.bell.flag(), server).status();
  if (status.ok()) status = server::StartNode(config, process.bell.flag(), server);
  if (status.ok()) status = server::RunAsMember(config, process.bell, server);
  if (!status.ok() && !process.is_killed)
    world_.Wrong(absl::StrCat("server ", id_, " ends: ", status.ToString()));
  if (server.node != nullptr) promotions_ += server.node->stats().promotions;
  server.directory.reset();
  server.node.reset();
  process.calls = process.renewals = nullptr;
  process.server.reset();
  process.has_ended = true;
}

void SimulatedServer::Kill(bool is_reported) {
  process_->is_killed = true;
  world_.network.EndDomain(process_->domain, is_reported);
  process_->bell.Ring();
  process_ = nullptr;
}

void SimulatedServer::Stop() { process_->bell.Ring(); }

void SimulatedServer::Join() {
  for (const auto& process : processes_) world_.threads.Join(process->thread);
  processes_.clear();
  process_ = nullptr;
}

bool SimulatedServer::has_transaction() const {
  return process_ != nullptr && process_->calls != nullptr && process_->calls->is_busy();
}

// (Renewals create the key.)
int64_t SimulatedServer::create_revision() const {
  return process_ == nullptr || process_->renewals == nullptr
             ? 0
             : process_->renewals->create_revision();
}

std::map<std::string, SimulatedServer::Content> SimulatedServer::ContentsOf(uint32_t shard) {
  std::map<std::string, Content> contents;
  if (process_ == nullptr || process_->server == nullptr) return contents;
  for (const auto& slot : process_->server->slots) {
    server::Tables& tables = *slot->tables;
    for (uint32_t i = 0; i < tables.partitions(); ++i) {
      const server::LockedTable table = tables.Lock(i);
      uint64_t cursor = 0;
      do {
        cursor = table->Walk(cursor, 1 << 20, [&](const index::WalkedKey& key) {
          if (rdma::ShardOf(key.key, world_.plan.shards) != shard) return;
          contents[std::string(key.key)] = {std::string(server::wal::TextOf(key.value)),
                                            key.version, key.expiry_ns};
        });
      } while (cursor != 0);
    }
  }
  return contents;
}

}  // namespace osprey
