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
    server.places.push_back({address.scheme, *std::move(domain), nullptr, {}});
  }
  return absl::OkStatus();
}

absl::Status MakeMemory(const Config& config, Server& server) {
  rdma::HostMemoryOptions options;
  options.huge_pages = config.huge_pages;
  // RDMA devices pin all of it anyway; without one, memory is committed on use.
  options.prefault =
      std::any_of(server.places.begin(), server.places.end(),
                  [](const Place& place) { return place.scheme == rdma::Address::Scheme::kRdma; });
  absl::StatusOr<rdma::HostMemory> memory =
      rdma::HostMemory::Create("osprey-region", config.memory_bytes, options);
  if (!memory.ok()) return memory.status();
  server.memory = std::make_unique<rdma::HostMemory>(*std::move(memory));
  for (Place& place : server.places) {
    absl::StatusOr<std::unique_ptr<rdma::Memory>> region =
        place.domain->Register(*server.memory, rdma::Access::kRemoteRead);
    if (!region.ok()) return region.status();
    place.region = *std::move(region);
  }
  return absl::OkStatus();
}

absl::Status MakeTables(const Config& config, uint64_t incarnation, const Clock& clock,
                        Server& server) {
  index::TableOptions options;
  options.incarnation = incarnation;
  options.hash_seed = Random();
  options.evict = config.evict == EvictMode::kClock;
  // It stands still while the tables are loaded.
  options.clock = [&clock, &server] { return server.runs ? clock.Now() : absl::UnixEpoch(); };
  std::vector<PartitionChanges*> changes;
  if (server.durability != nullptr) {
    options.hash_seed = server.durability->hash_seed();
    if (const uint64_t last = server.durability->last_version(); last != 0)
      options.cas_version = last;
    changes = server.durability->changes();
  }
  if (server.cluster != nullptr) {
    options.hash_seed = server.cluster->record.hash_seed;
    for (uint32_t i = 0; i < config.partitions; ++i) {
      server.cluster->changes.push_back(std::make_unique<ReplicatedChanges>(
          i, server.cluster->writes, [&server] { return server.tables->LastVersion(); }));
      changes.push_back(server.cluster->changes.back().get());
    }
  }
  absl::StatusOr<std::unique_ptr<Tables>> tables =
      Tables::Create({server.memory->data(), server.memory->size()}, config.partitions, options,
                     std::move(changes));
  if (!tables.ok()) return tables.status();
  server.tables = *std::move(tables);
  return absl::OkStatus();
}

absl::StatusOr<std::vector<SessionImage>> Load(const Config& config, Clock& clock,
                                               const std::atomic<bool>& stop, Server& server) {
  absl::StatusOr<std::vector<SessionImage>> sessions = std::vector<SessionImage>();
  if (server.durability != nullptr) {
    sessions = LoadData(config, *server.durability, *server.tables, stop);
    if (!sessions.ok()) return sessions;
    clock.AdvanceTo(server.durability->clock_start());
    server.snapshots = std::make_unique<SessionSnapshots>(config.pollers);
    if (!server.snapshots->valid()) {
      return absl::ResourceExhaustedError(
          "no descriptor is left for the pollers; allow more open files (ulimit -n)");
    }
  }
  server.runs = true;
  return sessions;
}

namespace {

// For each poller, a transport of each place.
absl::StatusOr<std::vector<std::vector<EnginePort>>> MakePorts(const Config& config,
                                                               Server& server) {
  std::vector<std::vector<EnginePort>> ports(config.pollers);
  for (Place& place : server.places) {
    std::vector<rdma::Transport*> by_poller;
    for (std::vector<EnginePort>& own : ports) {
      absl::StatusOr<std::unique_ptr<rdma::Transport>> transport =
          place.domain->NewTransport(rdma::TransportOptionsOf(place.scheme));
      if (!transport.ok()) return transport.status();
      absl::StatusOr<std::unique_ptr<rdma::Memory>> scratch =
          place.domain->Allocate(kLivenessBytes, rdma::Access::kLocal);
      if (!scratch.ok()) return scratch.status();
      place.scratch.push_back(*std::move(scratch));
      by_poller.push_back(transport->get());
      own.push_back({*std::move(transport), place.region.get(), place.scratch.back().get(), {}});
    }
    for (std::vector<EnginePort>& own : ports) own.back().by_poller = by_poller;
  }
  return ports;
}

}  // namespace

void MakeShared(const Config& config, Server& server) {
  AdmissionLimits limits;
  limits.connections_max = config.connections_max;
  limits.per_source_max = config.connections_per_address_max;
  limits.requires_authentication = config.auth_key != nullptr;
  server.admission = std::make_unique<Admission>(limits);
  // Metrics use the pollers' reports.
  if (config.pollers > 1 || config.metrics.has_value())
    server.pollers = std::make_unique<Pollers>(config.pollers);
  server.heartbeats = std::vector<PollerHeartbeat>(config.pollers);
}

absl::Status MakeEngines(const Config& config, uint64_t incarnation,
                         absl::Span<const SessionImage> sessions, const Clock& clock,
                         Server& server) {
  absl::StatusOr<std::vector<std::vector<EnginePort>>> ports = MakePorts(config, server);
  if (!ports.ok()) return ports.status();
  if (server.pollers != nullptr) server.pollers->Restart();
  EngineOptions options;
  options.incarnation = incarnation;
  options.connections_max = config.connections_max;
  options.admission = server.admission.get();
  options.key = config.auth_key;
  options.value_bytes_max = config.value_bytes_max;
  options.poll_mode = std::string(NameOf(config.poll));
  options.random = Random;
  options.process_cpu = ProcessCpu;
  options.log = [&](absl::string_view line) { server.client_log.Write(line, clock.Now()); };
  options.pollers = server.pollers.get();
  if (config.metrics.has_value()) {
    options.client_gets = &server.client_gets;
    options.times_puts = true;
  }
  if (server.durability != nullptr) {
    Durability* const durability = server.durability.get();
    options.write_log = durability;
    // A server that only sleeps while it waits does not poll for more.
    if (config.poll != PollMode::kEvent) options.group_clock = [&clock] { return clock.Now(); };
    options.session_snapshots = server.snapshots.get();
    options.data_id = durability->data_id();
    options.session_begun = [durability](uint64_t id) { durability->SessionBegun(id); };
    options.session_ended = [durability](uint64_t id) { durability->SessionEnded(id); };
    options.durability_stats = [durability] { return durability->stats(); };
  }
  if (server.cluster != nullptr) {
    ReplicatedWrites* const writes = &server.cluster->writes;
    server.cluster->logs.clear();
    if (config.poll != PollMode::kEvent) options.group_clock = [&clock] { return clock.Now(); };
    options.session_snapshots = server.snapshots.get();
    options.data_id = server.cluster->record.id;
    options.in_cluster = true;
    options.session_begun = [writes](uint64_t id) { writes->SessionBegun(id); };
    options.session_ended = [writes](uint64_t id) { writes->SessionEnded(id); };
    options.may_answer = [&node = *server.node] { return node.MayAnswer(); };
    options.cluster_stats = [&node = *server.node] { return node.stats(); };
  }
  for (std::vector<EnginePort>& own : *ports) {
    options.poller = static_cast<uint32_t>(server.engines.size());
    PollerLog* log = nullptr;
    if (server.cluster != nullptr) {
      server.cluster->logs.push_back(
          std::make_unique<PollerLog>(server.cluster->writes, *server.snapshots, options.poller));
      log = server.cluster->logs.back().get();
      options.write_log = log;
    }
    server.engines.push_back(
        std::make_unique<Engine>(*server.tables, std::move(own), options, clock.Now()));
    if (log != nullptr) log->SetEngine(*server.engines.back());
    server.engines.back()->RestoreSessions(sessions, clock.Now());
  }
  return absl::OkStatus();
}

absl::Status StartDurability(const Clock& clock, Server& server) {
  if (server.durability == nullptr) return absl::OkStatus();
  return server.durability->Start([&clock] { return clock.Now(); },
                                  [&server] { return server.snapshots->Take(); });
}

absl::Status EndDurability(Server& server) {
  if (server.durability == nullptr) return absl::OkStatus();
  server.engines.clear();
  server.snapshots->Close();
  return server.durability->End();
}

absl::StatusOr<std::vector<std::string>> ListenAll(const Config& config, Server& server) {
  std::vector<std::string> uris;
  for (const rdma::Address& address : config.listen) {
    const auto place = std::find_if(server.places.begin(), server.places.end(),
                                    [&](const Place& p) { return p.scheme == address.scheme; });
    const size_t port = static_cast<size_t>(place - server.places.begin());
    absl::StatusOr<std::string> uri = server.engines.front()->Listen(port, address.ToString());
    if (!uri.ok()) {
      return absl::Status(uri.status().code(), absl::StrCat("cannot listen at ", address.ToString(),
                                                            ": ", uri.status().message()));
    }
    uris.push_back(*std::move(uri));
  }
  return uris;
}

}  // namespace osprey::server
