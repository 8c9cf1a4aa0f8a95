#include "server/serve.h"

#include <malloc.h>
#include <sys/random.h>
#include <sys/resource.h>

#include <algorithm>
#include <cassert>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/time.h"
#include "index/writer/table.h"
#include "rdma/host_memory.h"
#include "rdma/open_domain.h"
#include "rdma/unique_fd.h"
#include "server/clock.h"
#include "server/data.h"
#include "server/durability/durability.h"
#include "server/engine/engine.h"
#include "server/engine/pollers.h"
#include "server/engine/session_snapshots.h"
#include "server/host_limits.h"
#include "server/log.h"
#include "server/monitoring/http_server.h"
#include "server/monitoring/metrics.h"
#include "server/monitoring/monitor.h"
#include "server/monitoring/poller_heartbeat.h"
#include "server/requests/tables.h"
#include "server/run.h"
#include "server/service_manager.h"
#include "server/stats/admission.h"
#include "server/stats/client_gets.h"
#include "server/watchdog.h"
#include "tools/common/size_flag.h"
#include "tools/common/version.h"

namespace osprey::server {
namespace {

constexpr char kNoCluster[] = "--cluster: this kvserver cannot be in a cluster yet; leave it out";

// --- The engine's inputs -------------------------------------------------------------------------

// Returns a random number other than 0.
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

// --- Signals ------------------------------------------------------------------------------------

// For the signal handler; lives as long as the process.
StopBell* stop_bell = nullptr;

void AskToStop(int) { stop_bell->Ring(); }

absl::Status HandleSignals() {
  if (stop_bell == nullptr) stop_bell = new StopBell;
  if (!stop_bell->valid()) {
    return absl::ResourceExhaustedError(
        absl::StrCat("cannot receive a request to end: eventfd: ", std::strerror(errno),
                     "; allow more open files (ulimit -n)"));
  }
  struct sigaction action = {};
  action.sa_handler = AskToStop;
  sigaction(SIGTERM, &action, nullptr);
  sigaction(SIGINT, &action, nullptr);
  // If a client closes its socket, a write to it returns an error instead of ending the server.
  action.sa_handler = SIG_IGN;
  sigaction(SIGPIPE, &action, nullptr);
  return absl::OkStatus();
}

// --- Start --------------------------------------------------------------------------------------

// The domains and memory of one scheme.
struct Place {
  rdma::Address::Scheme scheme;
  std::unique_ptr<rdma::Domain> domain;
  std::unique_ptr<rdma::Memory> region;
  std::vector<std::unique_ptr<rdma::Memory>> scratch;  // by poller: the target of their READs
};

// In the order of dependency: destroyed from the end.
struct Server {
  std::vector<Place> places;  // the domains must outlive …
  std::unique_ptr<rdma::HostMemory> memory;
  std::unique_ptr<Tables> tables;
  std::unique_ptr<Durability> durability;       // only with --data-dir
  std::unique_ptr<SessionSnapshots> snapshots;  // likewise
  std::unique_ptr<Admission> admission;
  ClientLog client_log;
  std::unique_ptr<Pollers> pollers;
  ClientGets client_gets;
  std::vector<PollerHeartbeat> heartbeats;       // by poller
  std::vector<std::unique_ptr<Engine>> engines;  // by poller
  std::unique_ptr<Monitor> monitor;              // only with …
  std::unique_ptr<HttpServer> metrics;           // … this, which uses all above
  bool runs = false;                             // the tables' clock

  ~Server() {
    metrics.reset();
    engines.clear();
    if (snapshots != nullptr) snapshots->Close();
    durability.reset();
    tables.reset();
    for (Place& place : places) {
      place.region.reset();  // … their registrations, which must end before `memory`
      place.scratch.clear();
    }
  }
};

absl::Status OpenDomains(const Config& config, Server& server) {
  rdma::DomainOptions domain_options;
  domain_options.shm_socket_mode = config.socket_mode;
  domain_options.shm_peer_memories_max = MemoriesPerClient(config, ThisMachine());
  for (const rdma::Address& address : config.listen) {
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
  absl::StatusOr<std::unique_ptr<Tables>> tables =
      Tables::Create({server.memory->data(), server.memory->size()}, config.partitions, options,
                     std::move(changes));
  if (!tables.ok()) return tables.status();
  server.tables = *std::move(tables);
  return absl::OkStatus();
}

// Fills the tables, where there is a data directory, and lets the clock run. Returns the sessions of
// the last life.
absl::StatusOr<std::vector<SessionImage>> Load(const Config& config, Clock& clock, Server& server) {
  absl::StatusOr<std::vector<SessionImage>> sessions = std::vector<SessionImage>();
  if (server.durability != nullptr) {
    sessions = LoadData(config, *server.durability, *server.tables, stop_bell->flag());
    if (!sessions.ok()) return sessions;
    clock.StartAt(server.durability->clock_start());
    server.snapshots = std::make_unique<SessionSnapshots>(config.pollers);
    if (!server.snapshots->valid()) {
      return absl::ResourceExhaustedError(
          "no descriptor is left for the pollers; allow more open files (ulimit -n)");
    }
  }
  server.runs = true;
  return sessions;
}

absl::Status StartDurability(const Clock& clock, Server& server) {
  if (server.durability == nullptr) return absl::OkStatus();
  return server.durability->Start([&clock] { return clock.Now(); },
                                  [&server] { return server.snapshots->Take(); });
}

// REQUIRES: the engines have ended.
absl::Status EndDurability(Server& server) {
  if (server.durability == nullptr) return absl::OkStatus();
  server.engines.clear();
  server.snapshots->Close();
  return server.durability->End();
}

// For each poller, a transport of each place.
absl::StatusOr<std::vector<std::vector<EnginePort>>> MakePorts(const Config& config,
                                                               Server& server) {
  std::vector<std::vector<EnginePort>> ports(config.pollers);
  for (Place& place : server.places) {
    std::vector<rdma::Transport*> by_poller;
    for (std::vector<EnginePort>& own : ports) {
      absl::StatusOr<std::unique_ptr<rdma::Transport>> transport = place.domain->NewTransport({});
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

absl::Status MakeEngines(const Config& config, uint64_t incarnation,
                         absl::Span<const SessionImage> sessions, const Clock& clock,
                         Server& server) {
  absl::StatusOr<std::vector<std::vector<EnginePort>>> ports = MakePorts(config, server);
  if (!ports.ok()) return ports.status();
  EngineOptions options;
  options.incarnation = incarnation;
  AdmissionLimits limits;
  limits.connections_max = config.connections_max;
  limits.per_source_max = config.connections_per_address_max;
  limits.requires_authentication = config.auth_key != nullptr;
  server.admission = std::make_unique<Admission>(limits);
  options.connections_max = config.connections_max;
  options.admission = server.admission.get();
  options.key = config.auth_key;
  options.value_bytes_max = config.value_bytes_max;
  options.poll_mode = std::string(NameOf(config.poll));
  options.random = Random;
  options.process_cpu = ProcessCpu;
  options.log = [&](absl::string_view line) { server.client_log.Write(line, clock.Now()); };
  // Metrics use the pollers' reports.
  if (config.pollers > 1 || config.metrics.has_value()) {
    server.pollers = std::make_unique<Pollers>(config.pollers);
    options.pollers = server.pollers.get();
  }
  if (config.metrics.has_value()) options.client_gets = &server.client_gets;
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
  for (std::vector<EnginePort>& own : *ports) {
    options.poller = static_cast<uint32_t>(server.engines.size());
    server.engines.push_back(
        std::make_unique<Engine>(*server.tables, std::move(own), options, clock.Now()));
    server.engines.back()->RestoreSessions(sessions, clock.Now());
  }
  return absl::OkStatus();
}

// Tables with the data of the last life, and the engines that serve them.
absl::Status MakeAndLoad(const Config& config, Clock& clock, Server& server) {
  const uint64_t incarnation = Random();
  if (absl::Status status = MakeTables(config, incarnation, clock, server); !status.ok())
    return status;
  const absl::StatusOr<std::vector<SessionImage>> sessions = Load(config, clock, server);
  if (!sessions.ok()) return sessions.status();
  return MakeEngines(config, incarnation, *sessions, clock, server);
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

// --- Metrics ------------------------------------------------------------------------------------

HttpPage Healthz(const Server& server, absl::Time now) {
  HttpPage page;
  page.body = "ok\n";
  const absl::Status status = stop_bell->rung() ? absl::UnavailableError("the server is ending")
                                                : CheckTurning(server.heartbeats, now);
  if (status.ok()) return page;
  page.status = 503;
  page.body = absl::StrCat(status.message(), "\n");
  return page;
}

HttpPage MetricsPage(Server& server, const Clock& clock) {
  const absl::Time now = clock.Now();
  MonitorReading reading = server.monitor->Read(now);
  reading.stats.uptime = now - clock.Started();
  reading.stats.process_cpu = ProcessCpu();
  HttpPage page;
  page.content_type = kMetricsContentType;
  page.body = MetricsText(reading);
  return page;
}

static_assert(HttpLimits().connections_max + 8 <= kMetricsDescriptors);

absl::Status OpenMetrics(const Config& config, const Clock& clock, Server& server) {
  if (!config.metrics.has_value()) return absl::OkStatus();
  StatsInput fixed;
  fixed.version = std::string(kVersion);
  fixed.poll_mode = NameOf(config.poll);
  fixed.evict_mode = NameOf(config.evict);
  fixed.connections_max = config.connections_max;
  std::function<DurabilityStats()> durability;
  if (server.durability != nullptr)
    durability = [&durable = *server.durability] { return durable.stats(); };
  server.monitor = std::make_unique<Monitor>(*server.tables, *server.admission, *server.pollers,
                                             server.client_gets, server.heartbeats,
                                             std::move(fixed), std::move(durability));
  const auto answer = [&server, &clock](absl::string_view path) {
    if (path == "/metrics") return MetricsPage(server, clock);
    if (path == "/healthz") return Healthz(server, clock.Now());
    HttpPage page;
    page.status = 404;
    page.body = "there are /metrics and /healthz\n";
    return page;
  };
  absl::StatusOr<std::unique_ptr<HttpServer>> door = HttpServer::Open(*config.metrics, answer);
  if (!door.ok()) {
    const bool elsewhere = absl::IsUnavailable(door.status());
    return absl::Status(door.status().code(),
                        absl::StrCat("cannot serve metrics at ", config.metrics->ToString(), ": ",
                                     door.status().message(),
                                     elsewhere ? "; write another address in --metrics" : ""));
  }
  server.metrics = *std::move(door);
  return absl::OkStatus();
}

// Of the first log line.
std::string DescribeData(const Config& config) {
  if (config.data_dir.empty()) return "";
  std::string text =
      absl::StrCat(" data_dir=", config.data_dir, " durability=", NameOf(config.durability));
  if (config.durability == DurabilityMode::kAsync)
    absl::StrAppend(&text, " durability_lag=", absl::FormatDuration(config.durability_lag));
  return text;
}

void Announce(const Config& config, const Server& server, const std::vector<std::string>& uris) {
  std::vector<std::string> descriptions;
  for (const Place& place : server.places) descriptions.push_back(place.domain->Describe());
  Log(absl::StrCat(
      "version ", kVersion, ", ", absl::StrJoin(descriptions, "; "),
      "; memory=", FormatSize(config.memory_bytes), " page_bytes=", server.memory->page_size(),
      " poll=", NameOf(config.poll), " pollers=", config.pollers, " connections_max=",
      config.connections_max, " value_max=", FormatSize(config.value_bytes_max),
      " evict=", NameOf(config.evict), DescribeData(config), "; nothing is encrypted; ",
      config.auth_key != nullptr
          ? "clients with the key can read and write all keys"
          : "no --auth-key-file: any client that can connect can read and write all keys"));
  if (const std::string warning = WarningAbout(config, ThisMachine()); !warning.empty())
    Log(warning);
  if (server.metrics != nullptr)
    Log(absl::StrCat("metrics at http://", server.metrics->address().ToString(), "/metrics"));
  for (const std::string& uri : uris) std::printf("ready %s\n", uri.c_str());
  std::fflush(stdout);
  TellServiceManager(absl::StrCat("READY=1\nSTATUS=ready at ", absl::StrJoin(uris, ", "),
                                  ", memory ", FormatSize(config.memory_bytes)));
}

}  // namespace

ServeResult Serve(Config config) {
  if (config.cluster.has_value()) return {ServeExit::kFailed, absl::UnimplementedError(kNoCluster)};
  // One heap for each poller, and one for all other threads. By default glibc reserves 64 MiB of
  // addresses for each new thread, those that exist because of clients among them.
  (void)mallopt(M_ARENA_MAX, static_cast<int>(config.pollers) + 1);
  if (absl::Status status = HandleSignals(); !status.ok())
    return {ServeExit::kFailed, std::move(status)};
  AllowDescriptors();
  Clock clock;
  Server server;
  if (!config.data_dir.empty()) {
    absl::StatusOr<std::unique_ptr<Durability>> durability =
        OpenData(config, Random, [](absl::string_view line) { Log(line); });
    if (!durability.ok()) return {ServeExit::kFailed, durability.status()};
    server.durability = *std::move(durability);
  }
  if (absl::Status status = OpenDomains(config, server); !status.ok()) {
    return {ServeExit::kCannotListen, std::move(status)};
  }
  if (absl::Status status = MakeMemory(config, server); !status.ok())
    return {ServeExit::kFailed, std::move(status)};
  if (absl::Status status = MakeAndLoad(config, clock, server); !status.ok()) {
    if (!absl::IsCancelled(status) || !stop_bell->rung())
      return {ServeExit::kFailed, std::move(status)};
    Log("ended while loading");
    return {ServeExit::kClean, absl::OkStatus()};
  }
  const absl::StatusOr<std::vector<std::string>> uris = ListenAll(config, server);
  if (!uris.ok()) return {ServeExit::kCannotListen, uris.status()};
  server.heartbeats = std::vector<PollerHeartbeat>(server.engines.size());
  if (absl::Status status = OpenMetrics(config, clock, server); !status.ok())
    return {ServeExit::kCannotListen, std::move(status)};
  std::vector<Engine*> engines;
  for (const std::unique_ptr<Engine>& engine : server.engines) engines.push_back(engine.get());
  const absl::StatusOr<std::unique_ptr<Watchdog>> watchdog = Watchdog::Start(
      Watchdog::Patience(), [&] { return CheckTurning(server.heartbeats, clock.Now()); });
  if (!watchdog.ok()) return {ServeExit::kFailed, watchdog.status()};
  absl::Status status = StartDurability(clock, server);
  if (!status.ok()) return {ServeExit::kFailed, std::move(status)};
  status = RunEngines(
      engines, absl::MakeSpan(server.heartbeats), config.poll, [&clock] { return clock.Now(); },
      [&] { Announce(config, server, *uris); }, *stop_bell);
  server.metrics.reset();
  if (absl::Status end = EndDurability(server); status.ok()) status = std::move(end);
  if (!status.ok()) return {ServeExit::kFailed, std::move(status)};
  Log("ended");
  return {ServeExit::kClean, absl::OkStatus()};
}

}  // namespace osprey::server
