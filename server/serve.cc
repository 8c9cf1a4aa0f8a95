#include "server/serve.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cassert>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "index/table.h"
#include "rdma/host_memory.h"
#include "rdma/open_domain.h"
#include "rdma/unique_fd.h"
#include "server/admission.h"
#include "server/engine.h"
#include "server/log.h"
#include "server/machine.h"
#include "server/size_flag.h"
#include "server/tables.h"

namespace osprey::server {
namespace {

// --- What the engine is given from outside ------------------------------------------------------

// Never goes back, as the engine wants it, and is near the wall clock, as logs do.
class Clock {
 public:
  absl::Time Now() const {
    return wall_ + absl::FromChrono(std::chrono::steady_clock::now() - steady_);
  }

 private:
  const absl::Time wall_ = absl::Now();
  const std::chrono::steady_clock::time_point steady_ = std::chrono::steady_clock::now();
};

// Not 0.
uint64_t Random() {
  for (int attempt = 0; attempt < 100; ++attempt) {
    uint64_t value = 0;
    // So few bytes come whole once the kernel's generator has started; before, getrandom waits, or
    // is interrupted.
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

// Set by the handler, read by the loop. Relaxed: it guards no other memory, and the descriptor ends
// the sleep.
std::atomic<bool> stop_asked{false};
static_assert(std::atomic<bool>::is_always_lock_free, "a signal handler may use nothing else");
int stop_fd = -1;

void AskToStop(int) {
  const int saved_errno = errno;
  stop_asked.store(true, std::memory_order_relaxed);
  const uint64_t one = 1;
  // Fails only when it is readable already.
  [[maybe_unused]] const ssize_t written = write(stop_fd, &one, sizeof(one));
  errno = saved_errno;
}

void HandleSignals() {
  stop_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
  assert(stop_fd >= 0);
  struct sigaction action = {};
  action.sa_handler = AskToStop;
  sigaction(SIGTERM, &action, nullptr);
  sigaction(SIGINT, &action, nullptr);
  // A client that goes while something is written to its socket is an error of that write, not the
  // end of the server.
  action.sa_handler = SIG_IGN;
  sigaction(SIGPIPE, &action, nullptr);
}

// --- Start --------------------------------------------------------------------------------------

// Everything of one scheme.
struct Place {
  rdma::Address::Scheme scheme;
  std::unique_ptr<rdma::Domain> domain;
  std::unique_ptr<rdma::Memory> region;
  std::unique_ptr<rdma::Memory> scratch;
};

// In the order of dependency: destroyed from the end.
struct Server {
  std::vector<Place> places;  // the domains …
  std::unique_ptr<rdma::HostMemory> memory;
  std::unique_ptr<Tables> tables;
  std::unique_ptr<Admission> admission;
  ClientLog client_log;
  std::unique_ptr<Engine> engine;

  ~Server() {
    engine.reset();
    tables.reset();
    for (Place& place : places) {
      place.region.reset();  // … outlive what was registered in them, which `memory` outlives
      place.scratch.reset();
    }
  }
};

absl::Status OpenDomains(const Config& config, Server& server) {
  rdma::DomainOptions domain_options;
  domain_options.shm_socket_mode = config.socket_mode;
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
    server.places.push_back({address.scheme, *std::move(domain), nullptr, nullptr});
  }
  return absl::OkStatus();
}

absl::Status MakeMemory(const Config& config, Server& server) {
  rdma::HostMemoryOptions options;
  options.huge_pages = config.huge_pages;
  // RDMA devices pin all of it anyway; without one, memory is committed as it is used.
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
    absl::StatusOr<std::unique_ptr<rdma::Memory>> scratch =
        place.domain->Allocate(kLivenessBytes, rdma::Access::kLocal);
    if (!scratch.ok()) return scratch.status();
    place.region = *std::move(region);
    place.scratch = *std::move(scratch);
  }
  return absl::OkStatus();
}

absl::Status MakeEngine(const Config& config, const Clock& clock, Server& server) {
  const uint64_t incarnation = Random();
  index::TableOptions table_options;
  table_options.incarnation = incarnation;
  table_options.hash_seed = Random();
  table_options.evict = config.evict == EvictMode::kClock;
  absl::StatusOr<std::unique_ptr<Tables>> tables =
      Tables::Create({server.memory->data(), server.memory->size()}, 1, table_options);
  if (!tables.ok()) return tables.status();
  server.tables = *std::move(tables);
  std::vector<EnginePort> ports;
  for (Place& place : server.places) {
    absl::StatusOr<std::unique_ptr<rdma::Transport>> transport = place.domain->NewTransport({});
    if (!transport.ok()) return transport.status();
    ports.push_back({*std::move(transport), place.region.get(), place.scratch.get()});
  }
  EngineOptions options;
  options.incarnation = incarnation;
  AdmissionLimits limits;
  limits.connections_max = config.connections_max;
  limits.per_source_max = config.connections_per_address_max;
  limits.has_strangers = config.auth_key != nullptr;
  server.admission = std::make_unique<Admission>(limits);
  options.connections_max = config.connections_max;
  options.admission = server.admission.get();
  options.key = config.auth_key;
  options.value_bytes_max = config.value_bytes_max;
  options.poll_mode = std::string(NameOf(config.poll));
  options.random = Random;
  options.process_cpu = ProcessCpu;
  options.log = [&](absl::string_view line) { server.client_log.Write(line, clock.Now()); };
  server.engine = std::make_unique<Engine>(*server.tables, std::move(ports), options, clock.Now());
  return absl::OkStatus();
}

absl::StatusOr<std::vector<std::string>> ListenAll(const Config& config, Server& server) {
  std::vector<std::string> uris;
  for (const rdma::Address& address : config.listen) {
    const auto place = std::find_if(server.places.begin(), server.places.end(),
                                    [&](const Place& p) { return p.scheme == address.scheme; });
    const size_t port = static_cast<size_t>(place - server.places.begin());
    absl::StatusOr<std::string> uri = server.engine->Listen(port, address.ToString());
    if (!uri.ok()) {
      return absl::Status(uri.status().code(), absl::StrCat("cannot listen at ", address.ToString(),
                                                            ": ", uri.status().message()));
    }
    uris.push_back(*std::move(uri));
  }
  return uris;
}

void Announce(const Config& config, const Server& server, const std::vector<std::string>& uris) {
  std::vector<std::string> descriptions;
  for (const Place& place : server.places) descriptions.push_back(place.domain->Describe());
  Log(absl::StrCat(
      "version ", kVersion, ", ", absl::StrJoin(descriptions, "; "),
      "; memory=", FormatSize(config.memory_bytes), " page_bytes=", server.memory->page_size(),
      " poll=", NameOf(config.poll), " connections_max=", config.connections_max,
      " value_max=", FormatSize(config.value_bytes_max), " evict=", NameOf(config.evict),
      "; nothing is encrypted; ",
      config.auth_key != nullptr ? "who has the key can read and write all"
                                 : "no --auth-key-file: who can connect can read and write all"));
  for (const std::string& uri : uris) std::printf("ready %s\n", uri.c_str());
  std::fflush(stdout);
}

// --- The loop -----------------------------------------------------------------------------------

// Until a descriptor is readable or the engine's next timer is due.
void Sleep(Engine& engine, const Clock& clock) {
  if (!engine.Arm()) return;
  std::vector<pollfd> waits = {{stop_fd, POLLIN, 0}};
  for (int fd : engine.fds()) waits.push_back({fd, POLLIN, 0});
  if (engine.next_timer() == absl::InfiniteFuture()) {
    poll(waits.data(), waits.size(), -1);
    return;
  }
  const timespec timeout =
      absl::ToTimespec(std::max(engine.next_timer() - clock.Now(), absl::ZeroDuration()));
  ppoll(waits.data(), waits.size(), &timeout, nullptr);
}

void ClearStopFd() {
  uint64_t drained = 0;
  [[maybe_unused]] const ssize_t got = read(stop_fd, &drained, sizeof(drained));
}

// Drives the engine to its end; OK when that was asked for.
absl::Status Run(Engine& engine, PollMode mode, const Clock& clock) {
  absl::Time worked = clock.Now();
  bool stopping = false;
  while (!engine.done()) {
    const absl::Time now = clock.Now();
    if (!stopping && (stop_asked.load(std::memory_order_relaxed) || !engine.failure().ok())) {
      stopping = true;
      ClearStopFd();
      Log(engine.failure().ok() ? "ending" : absl::StrCat("ending: ", engine.failure().message()));
      engine.Stop(now);
      continue;
    }
    if (engine.Poll(now)) {
      worked = now;
      continue;
    }
    switch (mode) {
      case PollMode::kBusy:
        break;
      case PollMode::kAdaptive:
        if (now - worked >= kSpin()) Sleep(engine, clock);
        break;
      case PollMode::kEvent:
        Sleep(engine, clock);
        break;
    }
  }
  return engine.failure();
}

}  // namespace

ServeResult Serve(const Config& config) {
  HandleSignals();
  AllowDescriptors(config);
  const Clock clock;
  Server server;
  if (absl::Status status = OpenDomains(config, server); !status.ok()) {
    return {ServeExit::kCannotListen, std::move(status)};
  }
  if (absl::Status status = MakeMemory(config, server); !status.ok())
    return {ServeExit::kFailed, std::move(status)};
  if (absl::Status status = MakeEngine(config, clock, server); !status.ok()) {
    return {ServeExit::kFailed, std::move(status)};
  }
  const absl::StatusOr<std::vector<std::string>> uris = ListenAll(config, server);
  if (!uris.ok()) return {ServeExit::kCannotListen, uris.status()};
  Announce(config, server, *uris);
  absl::Status status = Run(*server.engine, config.poll, clock);
  if (!status.ok()) return {ServeExit::kFailed, std::move(status)};
  Log("ended");
  return {ServeExit::kClean, absl::OkStatus()};
}

}  // namespace osprey::server
