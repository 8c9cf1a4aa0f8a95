#include "server/cluster_service.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "server/cluster/links/peer_links.h"
#include "server/config/host_limits.h"
#include "server/log.h"
#include "server/run.h"
#include "server/server_parts.h"
#include "tools/common/size_flag.h"

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

// What this program cannot do, and what the flags do not fit.
absl::Status CheckFits(const ClusterRecord& record, uint64_t memory_bytes) {
  if (record.shards != 1) {
    return absl::FailedPreconditionError(
        absl::StrCat("--cluster: the cluster has ", record.shards,
                     " shards; this kvserver can only be in one with a single shard"));
  }
  if (memory_bytes < record.shard_bytes) {
    return absl::FailedPreconditionError(absl::StrCat(
        "--memory: ", FormatSize(memory_bytes), " is less than the ",
        FormatSize(record.shard_bytes),
        " that the cluster was created with, so a copy of the data might not fit; write at least "
        "that"));
  }
  return absl::OkStatus();
}

absl::StatusOr<ClusterRecord> ReadCluster(const EtcdUri& uri, const ClusterKeys& keys,
                                          EtcdClient& store, const std::atomic<bool>& stop) {
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

std::vector<SessionImage> SessionsOf(const Server& server) {
  std::vector<SessionImage> sessions;
  for (const std::unique_ptr<Engine>& engine : server.engines) {
    std::vector<SessionImage> own = engine->SessionImages();
    std::move(own.begin(), own.end(), std::back_inserter(sessions));
  }
  return sessions;
}

// The engines of one time as the primary.
absl::Status Serve(const Config& config, uint64_t incarnation, const Clock& clock,
                   absl::Span<const SessionImage> sessions, Server& server) {
  server.snapshots = std::make_unique<SessionSnapshots>(config.pollers);
  if (!server.snapshots->valid()) {
    return absl::ResourceExhaustedError(
        "no descriptor is left for the pollers; allow more open files (ulimit -n)");
  }
  StopBell bell;
  if (!bell.valid()) {
    return absl::ResourceExhaustedError(
        "no descriptor is left for the pollers; allow more open files (ulimit -n)");
  }
  if (absl::Status status = MakeEngines(config, incarnation, sessions, clock, server); !status.ok())
    return status;
  const absl::StatusOr<std::vector<std::string>> uris = ListenAll(config, server);
  if (!uris.ok()) return uris.status();
  std::vector<Engine*> engines;
  for (const std::unique_ptr<Engine>& engine : server.engines) engines.push_back(engine.get());

  std::atomic<bool> is_to_end{false};
  server.node->BeginService(
      [&] {
        is_to_end = true;
        server.snapshots->Close();
        bell.Ring();
      },
      [&]() -> std::optional<std::vector<SessionImage>> {
        absl::optional<std::vector<SessionImage>> taken = server.snapshots->Take();
        if (!taken.has_value()) return std::nullopt;
        return *std::move(taken);
      });
  const auto ending = [](const absl::Status& why) {
    LogOfCluster(absl::StrCat("clients are no longer served",
                              why.ok() ? "" : absl::StrCat(": ", why.message())));
  };
  absl::Status status = RunEngines(
      engines, absl::MakeSpan(server.heartbeats), config.poll, [&clock] { return clock.Now(); },
      [] {}, ending, bell);
  if (is_to_end) status = absl::OkStatus();
  std::vector<SessionImage> left = SessionsOf(server);
  server.engines.clear();
  server.snapshots->Close();
  for (Place& place : server.places) place.scratch.clear();
  server.node->EndService(std::move(left));
  return status;
}

}  // namespace

absl::StatusOr<std::unique_ptr<ClusterParts>> OpenCluster(const ClusterConfig& config,
                                                          uint64_t memory_bytes,
                                                          const std::atomic<bool>& stop) {
  auto parts = std::make_unique<ClusterParts>(config.etcd.uri.KeyPrefix());
  if (!parts->wake.valid()) {
    return absl::ResourceExhaustedError(
        "no descriptor is left for the cluster's thread; allow more open files (ulimit -n)");
  }
  for (std::unique_ptr<EtcdClient>* const client : {&parts->renewals, &parts->calls}) {
    absl::StatusOr<std::unique_ptr<EtcdClient>> created = EtcdClient::Create(config.etcd);
    if (!created.ok()) return created.status();
    *client = *std::move(created);
  }
  absl::StatusOr<ClusterRecord> record =
      ReadCluster(config.etcd.uri, parts->keys, *parts->calls, stop);
  if (!record.ok()) return record.status();
  if (absl::Status status = CheckFits(*record, memory_bytes); !status.ok()) return status;
  parts->record = *std::move(record);
  return parts;
}

absl::Status StartNode(const Config& config, uint64_t incarnation, Clock& clock,
                       const std::atomic<bool>& stop, Server& server) {
  ClusterParts& cluster = *server.cluster;
  NodeOptions options{.keys = cluster.keys,
                      .cluster = cluster.record,
                      .server = config.cluster->server_id,
                      .listen = {},
                      .key = config.cluster->key,
                      .backup_timeout = config.cluster->backup_timeout,
                      .spin = config.poll == PollMode::kEvent ? absl::ZeroDuration() : kSpin(),
                      .new_ports = NewLinkPorts(*config.cluster, server),
                      .random = Random,
                      .log = LogOfCluster,
                      .stop = stop};
  for (const rdma::Address& address : config.cluster->listen)
    options.listen.push_back(address.ToString());
  NodeParts parts{.tables = *server.tables,
                  .clock = clock,
                  .changes = {},
                  .writes = cluster.writes,
                  .wake = cluster.wake,
                  .region = {server.memory->data(), server.memory->size()},
                  .region_incarnation = incarnation,
                  .renewals = *cluster.renewals,
                  .calls = *cluster.calls};
  for (const auto& changes : cluster.changes) parts.changes.push_back(changes.get());
  absl::StatusOr<std::unique_ptr<ClusterNode>> node =
      ClusterNode::Start(std::move(options), std::move(parts));
  if (!node.ok()) return node.status();
  server.node = *std::move(node);
  return absl::OkStatus();
}

absl::Status RunAsMember(const Config& config, uint64_t incarnation, const Clock& clock,
                         const std::atomic<bool>& stop, Server& server) {
  for (;;) {
    absl::StatusOr<std::optional<std::vector<SessionImage>>> sessions =
        server.node->AwaitService(stop);
    if (!sessions.ok()) return sessions.status();
    if (!sessions->has_value()) return absl::OkStatus();
    if (absl::Status status = Serve(config, incarnation, clock, **sessions, server); !status.ok())
      return status;
  }
}

}  // namespace osprey::server
