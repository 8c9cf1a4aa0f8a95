#include "server/server_parts.h"

#include <sys/random.h>
#include <sys/resource.h>

#include <algorithm>
#include <cassert>
#include <utility>

#include "absl/strings/str_cat.h"
#include "index/writer/table.h"
#include "rdma/open_domain.h"
#include "server/config/host_limits.h"
#include "server/data.h"

namespace osprey::server {

uint64_t Random() {
  for (int attempt = 0; attempt < 100; ++attempt) {
    uint64_t value = 0;
    // Reads of this size are complete once the kernel's generator has started. Before, getrandom
    // waits, or is interrupted.
    if (getrandom(&value, sizeof(value), 0) == sizeof(value) && value != 0) return value;
  }
  assert(false && "getrandom fails");
  return 0;
}

absl::Duration ProcessCpu() {
  rusage usage;
  const int result = getrusage(RUSAGE_SELF, &usage);
  assert(result == 0);
  (void)result;
  return absl::DurationFromTimeval(usage.ru_utime) + absl::DurationFromTimeval(usage.ru_stime);
}

Slot::~Slot() {
  engines.clear();
  if (snapshots != nullptr) snapshots->Close();
  tables.reset();
  places.clear();  // before `memory`
}

// The node uses tables, the log of a data directory those that give it their changes.
Server::~Server() {
  metrics.reset();
  directory.reset();
  for (const auto& slot : slots) {
    slot->engines.clear();
    if (slot->snapshots != nullptr) slot->snapshots->Close();
  }
  node.reset();
  durability.reset();
}

absl::Status OpenDomains(const Config& config, Server& server) {
  rdma::DomainOptions domain_options;
  domain_options.shm_socket_mode = config.socket_mode;
  domain_options.shm_peer_memories_max = MemoriesPerClient(config, ThisMachine());
  std::vector<rdma::Address> addresses = config.listen;
  if (config.cluster.has_value())
    addresses.insert(addresses.end(), config.cluster->listen.begin(), config.cluster->listen.end());
  for (const rdma::Address& address : addresses) {
    const bool open =
        std::any_of(server.places.begin(), server.places.end(),
                    [&](const Place& place) { return place.scheme == address.scheme; });
    if (open) continue;
    absl::StatusOr<std::unique_ptr<rdma::Domain>> domain =
        rdma::OpenDomain(address.ToString(), domain_options);
    if (!domain.ok()) {
      return absl::Status(
          domain.status().code(),
          absl::StrCat("cannot listen at ", address.ToString(), ": ", domain.status().message()));
    }
    server.places.push_back({address.scheme, *std::move(domain)});
  }
  return absl::OkStatus();
}

namespace {

absl::Status MakeMemory(const Config& config, const Server& server, Slot& slot) {
  rdma::HostMemoryOptions options;
  options.huge_pages = config.huge_pages;
  // RDMA devices pin all of it anyway; without one, memory is committed on use.
  options.prefault =
      std::any_of(server.places.begin(), server.places.end(),
                  [](const Place& place) { return place.scheme == rdma::Address::Scheme::kRdma; });
  absl::StatusOr<rdma::HostMemory> memory =
      rdma::HostMemory::Create("osprey-region", config.shard_bytes(), options);
  if (!memory.ok()) return memory.status();
  slot.memory = std::make_unique<rdma::HostMemory>(*std::move(memory));
  for (const Place& place : server.places) {
    absl::StatusOr<std::unique_ptr<rdma::Memory>> region =
        place.domain->Register(*slot.memory, rdma::Access::kRemoteRead);
    if (!region.ok()) return region.status();
    slot.places.push_back({*std::move(region), {}});
  }
  return absl::OkStatus();
}

absl::Status MakeTables(const Config& config, Server& server, Slot& slot) {
  index::TableOptions options;
  options.incarnation = slot.incarnation;
  options.hash_seed = Random();
  options.evict = config.evict == EvictMode::kClock;
  // It stands still while the tables are loaded.
  options.clock = [&slot] { return slot.runs ? slot.clock.Now() : absl::UnixEpoch(); };
  std::vector<PartitionChanges*> changes;
  if (server.durability != nullptr) {
    options.hash_seed = server.durability->hash_seed();
    if (const uint64_t last = server.durability->last_version(); last != 0)
      options.cas_version = last;
    changes = server.durability->changes();
  }
  if (server.cluster != nullptr) {
    options.hash_seed = server.cluster->record.hash_seed;
    slot.writes = std::make_unique<SlotWrites>(server.cluster->wake);
    for (uint32_t i = 0; i < config.partitions; ++i) {
      slot.writes->changes.push_back(std::make_unique<ReplicatedChanges>(
          i, slot.writes->writes, [&slot] { return slot.tables->LastVersion(); }));
      changes.push_back(slot.writes->changes.back().get());
    }
  }
  absl::StatusOr<std::unique_ptr<Tables>> tables = Tables::Create(
      {slot.memory->data(), slot.memory->size()}, config.partitions, options, std::move(changes));
  if (!tables.ok()) return tables.status();
  slot.tables = *std::move(tables);
  return absl::OkStatus();
}

}  // namespace

absl::Status MakeSlots(const Config& config, Server& server) {
  AdmissionLimits limits;
  limits.connections_max = config.connections_max;
  limits.per_source_max = config.connections_per_address_max;
  limits.requires_authentication = config.auth_key != nullptr;
  server.admission = std::make_unique<Admission>(limits);
  for (uint32_t number = 0; number < config.slots; ++number) {
    server.slots.push_back(std::make_unique<Slot>(number));
    Slot& slot = *server.slots.back();
    slot.incarnation = Random();
    if (absl::Status status = MakeMemory(config, server, slot); !status.ok()) return status;
    if (absl::Status status = MakeTables(config, server, slot); !status.ok()) return status;
    // Metrics use the pollers' reports.
    if (config.pollers > 1 || config.metrics.has_value())
      slot.pollers = std::make_unique<Pollers>(config.pollers);
    slot.heartbeats = std::vector<PollerHeartbeat>(config.pollers);
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<SessionImage>> Load(const Config& config, const std::atomic<bool>& stop,
                                               Server& server) {
  absl::StatusOr<std::vector<SessionImage>> sessions = std::vector<SessionImage>();
  if (server.durability != nullptr) {
    Slot& slot = *server.slots.front();
    sessions = LoadData(config, *server.durability, *slot.tables, stop);
    if (!sessions.ok()) return sessions;
    slot.clock.AdvanceTo(server.durability->clock_start());
    slot.snapshots = std::make_unique<SessionSnapshots>(config.pollers);
    if (!slot.snapshots->valid()) {
      return absl::ResourceExhaustedError(
          "no descriptor is left for the pollers; allow more open files (ulimit -n)");
    }
  }
  for (const auto& slot : server.slots) slot->runs = true;
  return sessions;
}

namespace {

// For each poller, a transport of each place.
absl::StatusOr<std::vector<std::vector<EnginePort>>> MakePorts(const Config& config,
                                                               const Server& server, Slot& slot) {
  std::vector<std::vector<EnginePort>> ports(config.pollers);
  for (size_t i = 0; i < server.places.size(); ++i) {
    const Place& place = server.places[i];
    SlotPlace& of_slot = slot.places[i];
    std::vector<rdma::Transport*> by_poller;
    for (std::vector<EnginePort>& own : ports) {
      absl::StatusOr<std::unique_ptr<rdma::Transport>> transport =
          place.domain->NewTransport(rdma::TransportOptionsOf(place.scheme));
      if (!transport.ok()) return transport.status();
      absl::StatusOr<std::unique_ptr<rdma::Memory>> scratch =
          place.domain->Allocate(kLivenessBytes, rdma::Access::kLocal);
      if (!scratch.ok()) return scratch.status();
      of_slot.scratch.push_back(*std::move(scratch));
      by_poller.push_back(transport->get());
      own.push_back(
          {*std::move(transport), of_slot.region.get(), of_slot.scratch.back().get(), {}});
    }
    for (std::vector<EnginePort>& own : ports) own.back().by_poller = by_poller;
  }
  return ports;
}

void SetDurability(const Config& config, Server& server, Slot& slot, EngineOptions& options) {
  Durability* const durability = server.durability.get();
  options.write_log = durability;
  // A server that only sleeps while it waits does not poll for more.
  if (config.poll != PollMode::kEvent) options.group_clock = [&slot] { return slot.clock.Now(); };
  options.session_snapshots = slot.snapshots.get();
  options.data_id = durability->data_id();
  options.session_begun = [durability](uint64_t id) { durability->SessionBegun(id); };
  options.session_ended = [durability](uint64_t id) { durability->SessionEnded(id); };
  options.durability_stats = [durability] { return durability->stats(); };
}

void SetCluster(const Config& config, Server& server, Slot& slot, EngineOptions& options) {
  ReplicatedWrites* const writes = &slot.writes->writes;
  ShardNode* const node = &server.node->slot(slot.number);
  slot.writes->logs.clear();
  if (config.poll != PollMode::kEvent) options.group_clock = [&slot] { return slot.clock.Now(); };
  options.session_snapshots = slot.snapshots.get();
  options.data_id = server.cluster->record.id;
  options.shards = config.shards;
  options.shard = slot.shard;
  options.in_cluster = true;
  options.session_begun = [writes](uint64_t id) { writes->SessionBegun(id); };
  options.session_ended = [writes](uint64_t id) { writes->SessionEnded(id); };
  options.may_answer = [node] { return node->MayAnswer(); };
  options.cluster_stats = [node] { return node->stats(); };
  options.cluster_servers = [&node = *server.node] { return node.client_addresses(); };
}

}  // namespace

absl::Status MakeEngines(const Config& config, absl::Span<const SessionImage> sessions,
                         Server& server, Slot& slot) {
  absl::StatusOr<std::vector<std::vector<EnginePort>>> ports = MakePorts(config, server, slot);
  if (!ports.ok()) return ports.status();
  if (slot.pollers != nullptr) slot.pollers->Restart();
  EngineOptions options;
  options.incarnation = slot.incarnation;
  options.connections_max = config.connections_max;
  options.admission = server.admission.get();
  options.key = config.auth_key;
  options.value_bytes_max = config.value_bytes_max;
  options.poll_mode = std::string(NameOf(config.poll));
  options.random = Random;
  options.process_cpu = ProcessCpu;
  options.log = [&server, &clock = server.slots.front()->clock](absl::string_view line) {
    server.client_log.Write(line, clock.Now());  // of all slots, by one clock
  };
  options.pollers = slot.pollers.get();
  if (config.metrics.has_value()) {
    options.client_gets = &server.client_gets;
    options.times_puts = true;
  }
  if (server.durability != nullptr) SetDurability(config, server, slot, options);
  if (server.cluster != nullptr) SetCluster(config, server, slot, options);
  for (std::vector<EnginePort>& own : *ports) {
    options.poller = static_cast<uint32_t>(slot.engines.size());
    PollerLog* log = nullptr;
    if (slot.writes != nullptr) {
      slot.writes->logs.push_back(
          std::make_unique<PollerLog>(slot.writes->writes, *slot.snapshots, options.poller));
      log = slot.writes->logs.back().get();
      options.write_log = log;
    }
    slot.engines.push_back(
        std::make_unique<Engine>(*slot.tables, std::move(own), options, slot.clock.Now()));
    if (log != nullptr) log->SetEngine(*slot.engines.back());
    slot.engines.back()->RestoreSessions(sessions, slot.clock.Now());
  }
  return absl::OkStatus();
}

absl::Status RunSlot(const Config& config, const std::function<void()>& started,
                     const std::function<void(const absl::Status&)>& ending, StopBell& bell,
                     Slot& slot) {
  std::vector<Engine*> engines;
  for (const std::unique_ptr<Engine>& engine : slot.engines) engines.push_back(engine.get());
  return RunEngines(
      engines, absl::MakeSpan(slot.heartbeats), config.poll, [&slot] { return slot.clock.Now(); },
      started, ending, bell);
}

absl::Status StartDurability(Server& server) {
  if (server.durability == nullptr) return absl::OkStatus();
  Slot& slot = *server.slots.front();
  return server.durability->Start([&slot] { return slot.clock.Now(); },
                                  [&slot] { return slot.snapshots->Take(); });
}

absl::Status EndDurability(Server& server) {
  if (server.durability == nullptr) return absl::OkStatus();
  Slot& slot = *server.slots.front();
  slot.engines.clear();
  slot.snapshots->Close();
  return server.durability->End();
}

absl::StatusOr<std::vector<std::string>> ListenAll(const Config& config, Server& server,
                                                   Slot& slot) {
  std::vector<std::string> uris;
  for (const rdma::Address& address : config.listen) {
    const auto place = std::find_if(server.places.begin(), server.places.end(),
                                    [&](const Place& p) { return p.scheme == address.scheme; });
    const size_t port = static_cast<size_t>(place - server.places.begin());
    // (Fit has checked that there is one.)
    const std::string own = rdma::ShardAddress(address, slot.shard)->ToString();
    absl::StatusOr<std::string> uri = slot.engines.front()->Listen(port, own);
    if (!uri.ok()) {
      return absl::Status(uri.status().code(),
                          absl::StrCat("cannot listen at ", own, ": ", uri.status().message()));
    }
    uris.push_back(*std::move(uri));
  }
  return uris;
}

}  // namespace osprey::server
