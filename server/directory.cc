#include "server/directory.h"

#include <poll.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "index/writer/table.h"
#include "rdma/background_thread.h"
#include "rdma/open_domain.h"
#include "server/log.h"
#include "server/server_parts.h"

namespace osprey::server {
namespace {

// A sleep without an event. (A timer may be as far as the end of time.)
constexpr absl::Duration kSleepMax() { return absl::Seconds(10); }
// From one source: many clients of one host may begin at once.
constexpr size_t kPerSourceMax = Directory::kConnectionsMax / 2;

AdmissionLimits LimitsOf(const Config& config) {
  return {.connections_max = Directory::kConnectionsMax,
          .per_source_max = kPerSourceMax,
          .requires_authentication = config.auth_key != nullptr};
}

size_t PlaceOf(const Server& server, rdma::Address::Scheme scheme) {
  const auto place = std::find_if(server.places.begin(), server.places.end(),
                                  [&](const Place& one) { return one.scheme == scheme; });
  return static_cast<size_t>(place - server.places.begin());
}

}  // namespace

Directory::Directory(const Config& config, Server& server, rdma::HostMemory memory)
    : config_(config),
      server_(server),
      admission_(LimitsOf(config)),
      incarnation_(Random()),
      memory_(std::move(memory)) {}

absl::StatusOr<std::unique_ptr<Directory>> Directory::Start(const Config& config, Server& server) {
  absl::StatusOr<rdma::HostMemory> memory =
      rdma::HostMemory::Create("osprey-directory", index::Table::RegionBytesMin());
  if (!memory.ok()) return memory.status();
  std::unique_ptr<Directory> directory(new Directory(config, server, *std::move(memory)));
  if (absl::Status status = directory->Open(); !status.ok()) return status;
  return directory;
}

absl::Status Directory::Open() {
  if (!wake_.valid()) {
    return absl::ResourceExhaustedError(
        "no descriptor is left for the directory of servers; allow more open files (ulimit -n)");
  }
  for (const Place& place : server_.places) {
    absl::StatusOr<std::unique_ptr<rdma::Memory>> region =
        place.domain->Register(memory_, rdma::Access::kLocal);
    if (!region.ok()) return region.status();
    regions_.push_back(*std::move(region));
    absl::StatusOr<std::unique_ptr<rdma::Memory>> scratch =
        place.domain->Allocate(kLivenessBytes, rdma::Access::kLocal);
    if (!scratch.ok()) return scratch.status();
    scratch_.push_back(*std::move(scratch));
  }
  index::TableOptions options;
  options.incarnation = incarnation_;
  options.hash_seed = Random();
  options.clock = [this] { return clock_.Now(); };
  absl::StatusOr<std::unique_ptr<Tables>> tables =
      Tables::Create({memory_.data(), memory_.size()}, 1, options);
  if (!tables.ok()) return tables.status();
  tables_ = *std::move(tables);
  void* (*const run)(void*) = [](void* self) -> void* {
    static_cast<Directory*>(self)->Run();
    return nullptr;
  };
  has_thread_ = rdma::StartBackgroundThread("directory", run, this, thread_);
  if (has_thread_) return absl::OkStatus();
  return absl::ResourceExhaustedError(
      "cannot start the thread of the directory of servers; allow more threads (TasksMax=, ulimit "
      "-u)");
}

Directory::~Directory() {
  if (!has_thread_) return;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    ends_ = true;
    has_turn_ = false;
  }
  changed_.notify_all();
  wake_.Ring();
  pthread_join(thread_, nullptr);
}

void Directory::Yield() {
  std::unique_lock<std::mutex> lock(mutex_);
  has_turn_ = false;
  wake_.Ring();
  changed_.notify_all();
  changed_.wait(lock, [this] { return !is_open_; });
}

void Directory::Resume() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    has_turn_ = !ends_;
  }
  changed_.notify_all();
}

void Directory::Run() {
  std::string logged;
  for (std::unique_lock<std::mutex> lock(mutex_);;) {
    changed_.wait(lock, [this] { return ends_ || has_turn_; });
    if (ends_) return;
    is_open_ = true;
    lock.unlock();
    const absl::Status status = Tell();
    lock.lock();
    is_open_ = false;
    changed_.notify_all();
    if (status.ok()) continue;
    if (status.message() != logged) {
      Log(absl::StrCat("cluster: clients cannot begin at this server unless it has shard 0: ",
                       status.message()));
    }
    logged = std::string(status.message());
    changed_.wait_for(lock, absl::ToChronoNanoseconds(kListenEvery()),
                      [this] { return ends_ || !has_turn_; });
  }
}

// Until it has no turn any more.
absl::Status Directory::Tell() {
  wake_.Clear();
  std::vector<EnginePort> ports;
  for (size_t i = 0; i < server_.places.size(); ++i) {
    const Place& place = server_.places[i];
    absl::StatusOr<std::unique_ptr<rdma::Transport>> transport =
        place.domain->NewTransport(rdma::TransportOptionsOf(place.scheme));
    if (!transport.ok()) return transport.status();
    ports.push_back({*std::move(transport), regions_[i].get(), scratch_[i].get(), {}});
  }
  EngineOptions options;
  options.incarnation = incarnation_;
  options.connections_max = kConnectionsMax;
  options.admission = &admission_;
  options.key = config_.auth_key;
  options.random = Random;
  options.log = [&server = server_](absl::string_view line) {
    server.client_log.Write(line,
                            server.slots.front()->clock.Now());  // of all engines, by one clock
  };
  options.data_id = server_.cluster->record.id;
  options.in_cluster = true;
  options.only_tells_servers = true;
  options.cluster_servers = [this] { return server_.node->client_addresses(); };
  Engine engine(*tables_, std::move(ports), options, clock_.Now());
  for (const rdma::Address& address : config_.listen) {
    const std::string uri = address.ToString();
    if (absl::Status status = engine.Listen(PlaceOf(server_, address.scheme), uri).status();
        !status.ok())
      return absl::Status(status.code(),
                          absl::StrCat("cannot listen at ", uri, ": ", status.message()));
  }
  return Drive(engine);
}

absl::Status Directory::Drive(Engine& engine) {
  while (has_turn_) {
    if (!engine.failure().ok()) return engine.failure();
    if (engine.Poll(clock_.Now()) || !engine.Arm()) continue;
    std::vector<pollfd> waits = {{wake_.fd(), POLLIN, 0}};
    for (const int fd : engine.fds()) waits.push_back({fd, POLLIN, 0});
    const absl::Duration left = engine.next_timer() - clock_.Now();
    const timespec timeout = absl::ToTimespec(std::clamp(left, absl::ZeroDuration(), kSleepMax()));
    ppoll(waits.data(), waits.size(), &timeout, nullptr);
  }
  return absl::OkStatus();
}

}  // namespace osprey::server
