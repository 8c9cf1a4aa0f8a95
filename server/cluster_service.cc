#include "server/cluster_service.h"

#include <pthread.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "index/layout/partitions.h"
#include "rdma/background_thread.h"
#include "server/cluster/etcd/etcd_client.h"
#include "server/cluster/links/peer_links.h"
#include "server/config/host_limits.h"
#include "server/directory.h"
#include "server/log.h"
#include "server/program/size_flag.h"
#include "server/run.h"
#include "server/server_parts.h"

namespace osprey::server {
namespace {

static_assert(kIncomingLinkDescriptors == kIncomingLinksMax);

constexpr absl::Duration kReadTimeout() { return absl::Seconds(2); }
constexpr absl::Duration kReadPause() { return absl::Milliseconds(500); }

void LogOfCluster(absl::string_view line) { Log(absl::StrCat("cluster: ", line)); }

absl::StatusOr<ClusterRecord> DecodeCluster(const EtcdUri& uri, const RangeAnswer& answer) {
  if (answer.keys.empty()) {
    return absl::NotFoundError(absl::StrCat("--cluster: there is no cluster ", uri.name,
                                            "; create it first: kvcli cluster create ",
                                            uri.ToString(), " --memory=SIZE"));
  }
  absl::StatusOr<ClusterRecord> record = DecodeClusterRecord(answer.keys[0].value);
  if (!record.ok()) {
    return absl::Status(record.status().code(),
                        absl::StrCat("--cluster: ", answer.keys[0].key,
                                     " in the store: ", record.status().message()));
  }
  return record;
}

// What the flags do not fit. Adapts `config`.
absl::Status Fit(const ClusterRecord& record, Config& config) {
  config.shards = record.shards;
  config.slots = static_cast<uint32_t>(
      std::min<uint64_t>(config.memory_bytes / record.shard_bytes, record.shards));
  if (config.slots == 0) {
    return absl::FailedPreconditionError(
        absl::StrCat("--memory: ", FormatSize(config.memory_bytes), " is less than the ",
                     FormatSize(record.shard_bytes), " that the cluster was created with",
                     record.shards == 1 ? "" : " for each shard",
                     ", so a copy of the data might not fit; write at least that"));
  }
  if (config.slots < record.shards) {
    LogOfCluster(absl::StrCat("this server has memory for ", config.slots, " of the ",
                              record.shards, " shards; for all, --memory would be ",
                              FormatSize(record.shard_bytes * record.shards)));
  }
  if (absl::Status status =
          CheckShardAddresses(record.shards, config.listen, config.cluster->listen);
      !status.ok())
    return status;
  const uint64_t partition_bytes =
      index::SpanOfPartition(config.shard_bytes(), config.partitions, 0).bytes;
  config.value_bytes_max = std::min(config.value_bytes_max, partition_bytes);
  return absl::OkStatus();
}

absl::StatusOr<ClusterRecord> ReadCluster(const EtcdUri& uri, const ClusterKeys& keys,
                                          ConfigurationStore& store,
                                          const std::atomic<bool>& stop) {
  std::string logged;
  for (;;) {
    const absl::StatusOr<RangeAnswer> answer = store.Range({keys.Cluster()}, kReadTimeout());
    if (answer.ok()) return DecodeCluster(uri, *answer);
    if (stop) return absl::CancelledError("ended before the cluster's store answered");
    if (answer.status().message() != logged) LogOfCluster(answer.status().message());
    logged = std::string(answer.status().message());
    absl::SleepFor(kReadPause());
  }
}

std::function<absl::StatusOr<std::vector<LinkPort>>()> NewLinkPorts(const ClusterConfig& config,
                                                                    Server& server) {
  return [&config, &server]() -> absl::StatusOr<std::vector<LinkPort>> {
    std::vector<LinkPort> ports;
    for (const Place& place : server.places) {
      const bool is_used =
          std::any_of(config.listen.begin(), config.listen.end(),
                      [&](const rdma::Address& one) { return one.scheme == place.scheme; });
      if (!is_used) continue;
      absl::StatusOr<std::unique_ptr<rdma::Transport>> transport =
          place.domain->NewTransport(kLinkTransportOptions);
      if (!transport.ok()) return transport.status();
      ports.push_back({place.scheme, *std::move(transport)});
    }
    return ports;
  };
}

std::vector<SessionImage> SessionsOf(const Slot& slot) {
  std::vector<SessionImage> sessions;
  for (const std::unique_ptr<Engine>& engine : slot.engines) {
    std::vector<SessionImage> own = engine->SessionImages();
    std::move(own.begin(), own.end(), std::back_inserter(sessions));
  }
  return sessions;
}

// Of a log line.
std::string NameOf(const Slot& slot, const Server& server) {
  return server.cluster->record.shards == 1 ? "" : absl::StrCat("shard ", slot.shard, ": ");
}

absl::Status NoDescriptorForPollers() {
  return absl::ResourceExhaustedError(
      "no descriptor is left for the pollers; allow more open files (ulimit -n)");
}

// No engine uses the slot's tables from now on. The cluster's thread may wait for that.
void EndEngines(std::vector<SessionImage> sessions, Server& server, Slot& slot) {
  slot.engines.clear();
  slot.snapshots->Close();
  for (SlotPlace& place : slot.places) place.scratch.clear();
  server.node->slot(slot.number).EndService(std::move(sessions));
}

absl::Status BeginEngines(const Config& config, absl::Span<const SessionImage> sessions,
                          Server& server, Slot& slot) {
  slot.snapshots = std::make_unique<SessionSnapshots>(config.pollers);
  if (!slot.snapshots->valid()) return NoDescriptorForPollers();
  if (absl::Status status = MakeEngines(config, sessions, server, slot); !status.ok())
    return status;
  return ListenAll(config, server, slot).status();
}

// The engines of one time as the primary.
absl::Status Serve(const Config& config, const std::vector<SessionImage>& sessions, Server& server,
                   Slot& slot) {
  StopBell bell;
  absl::Status status =
      bell.valid() ? BeginEngines(config, sessions, server, slot) : NoDescriptorForPollers();
  if (!status.ok()) {
    if (slot.snapshots == nullptr)
      slot.snapshots = std::make_unique<SessionSnapshots>(config.pollers);
    EndEngines(sessions, server, slot);
    return status;
  }

  ShardNode& node = server.node->slot(slot.number);
  std::atomic<bool> is_to_end{false};
  node.BeginService(
      [&] {
        is_to_end = true;
        slot.snapshots->Close();
        bell.Ring();
      },
      [&]() -> std::optional<std::vector<SessionImage>> {
        absl::optional<std::vector<SessionImage>> taken = slot.snapshots->Take();
        if (!taken.has_value()) return std::nullopt;
        return *std::move(taken);
      });
  const auto ending = [&](const absl::Status& why) {
    LogOfCluster(absl::StrCat(NameOf(slot, server), "clients are no longer served",
                              why.ok() ? "" : absl::StrCat(": ", why.message())));
  };
  status = RunSlot(
      config, [] {}, ending, bell, slot);
  if (is_to_end) status = absl::OkStatus();
  EndEngines(SessionsOf(slot), server, slot);
  return status;
}

// A thread for each slot.
struct SlotRunner {
  const Config& config;
  StopBell& bell;
  Server& server;
  Slot& slot;
  pthread_t thread = {};
  absl::Status status = absl::OkStatus();

  void Run() {
    for (;;) {
      const absl::StatusOr<std::optional<OfferedService>> offered =
          server.node->slot(slot.number).AwaitService();
      status = offered.status();
      if (!status.ok() || !offered->has_value()) break;
      slot.shard = (*offered)->shard;
      // The addresses of shard 0 are the engines' meanwhile.
      const bool is_first = slot.shard == 0;
      if (is_first) server.directory->Yield();
      status = Serve(config, (*offered)->sessions, server, slot);
      if (is_first) server.directory->Resume();
      if (!status.ok()) break;
    }
    // Then the other shards are handed over.
    if (!status.ok()) bell.Ring();
  }
};

}  // namespace

absl::StatusOr<std::unique_ptr<ClusterParts>> OpenCluster(Config& config,
                                                          const std::atomic<bool>& stop) {
  const ClusterConfig& own = *config.cluster;
  auto parts = std::make_unique<ClusterParts>(own.etcd.uri.KeyPrefix());
  if (!parts->wake.valid()) {
    return absl::ResourceExhaustedError(
        "no descriptor is left for the cluster's thread; allow more open files (ulimit -n)");
  }
  for (std::unique_ptr<ConfigurationStore>* const client : {&parts->renewals, &parts->calls}) {
    absl::StatusOr<std::unique_ptr<EtcdClient>> created = EtcdClient::Create(own.etcd);
    if (!created.ok()) return created.status();
    *client = *std::move(created);
  }
  absl::StatusOr<ClusterRecord> record =
      ReadCluster(own.etcd.uri, parts->keys, *parts->calls, stop);
  if (!record.ok()) return record.status();
  if (absl::Status status = Fit(*record, config); !status.ok()) return status;
  parts->record = *std::move(record);
  return parts;
}

absl::Status StartNode(const Config& config, const std::atomic<bool>& stop, Server& server) {
  ClusterParts& cluster = *server.cluster;
  NodeOptions options{.keys = cluster.keys,
                      .cluster = cluster.record,
                      .server = config.cluster->server_id,
                      .zone = config.cluster->zone,
                      .listen = {},
                      .clients = ClientAddresses(config.listen, config.cluster->listen),
                      .key = config.cluster->key,
                      .backup_timeout = config.cluster->backup_timeout,
                      .rejoin_after = config.cluster->rejoin_after,
                      .copy_rate = config.cluster->copy_rate,
                      .spin = config.poll == PollMode::kEvent ? absl::ZeroDuration() : kSpin(),
                      .new_ports = NewLinkPorts(*config.cluster, server),
                      .clock_sources = cluster.clock_sources,
                      .random = Random,
                      .log = LogOfCluster,
                      .stop = stop};
  for (const rdma::Address& address : config.cluster->listen)
    options.listen.push_back(address.ToString());
  NodeParts parts{
      .slots = {}, .wake = cluster.wake, .renewals = *cluster.renewals, .calls = *cluster.calls};
  for (const auto& slot : server.slots) {
    ShardParts of_slot{.tables = *slot->tables,
                       .clock = slot->clock,
                       .changes = {},
                       .writes = slot->writes->writes,
                       .region = {slot->memory->data(), slot->memory->size()},
                       .region_incarnation = slot->incarnation};
    for (const auto& changes : slot->writes->changes) of_slot.changes.push_back(changes.get());
    parts.slots.push_back(std::move(of_slot));
  }
  absl::StatusOr<std::unique_ptr<ClusterNode>> node =
      ClusterNode::Start(std::move(options), std::move(parts));
  if (!node.ok()) return node.status();
  server.node = *std::move(node);
  absl::StatusOr<std::unique_ptr<Directory>> directory = Directory::Start(config, server);
  if (!directory.ok()) return directory.status();
  server.directory = *std::move(directory);
  return absl::OkStatus();
}

absl::Status RunAsMember(const Config& config, StopBell& bell, Server& server) {
  std::vector<SlotRunner> runners;
  for (const auto& slot : server.slots) runners.push_back({config, bell, server, *slot});
  void* (*const run)(void*) = [](void* self) -> void* {
    static_cast<SlotRunner*>(self)->Run();
    return nullptr;
  };
  size_t begun = 1;
  absl::Status status;
  for (; begun < runners.size(); ++begun) {
    const std::string name = absl::StrCat("slot-", begun);
    if (rdma::StartBackgroundThread(name.c_str(), run, &runners[begun], runners[begun].thread))
      continue;
    status = absl::ResourceExhaustedError(
        "cannot start a thread for each slot of a shard; allow more threads (TasksMax=, ulimit "
        "-u)");
    bell.Ring();
    break;
  }
  if (status.ok()) runners[0].Run();
  for (size_t i = 1; i < begun; ++i) pthread_join(runners[i].thread, nullptr);
  for (const SlotRunner& runner : runners) {
    if (status.ok()) status = runner.status;
  }
  return status;
}

}  // namespace osprey::server
