#include "server/serve.h"

#include <malloc.h>

#include <algorithm>
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
#include "server/clock.h"
#include "server/config/host_limits.h"
#include "server/data.h"
#include "server/durability/durability.h"
#include "server/engine/engine.h"
#include "server/http_pages.h"
#include "server/log.h"
#include "server/monitoring/http_server.h"
#include "server/monitoring/poller_heartbeat.h"
#include "server/program/size_flag.h"
#include "server/program/version.h"
#include "server/run.h"
#include "server/server_parts.h"
#include "server/service_manager.h"
#include "server/stats/admission.h"
#include "server/watchdog.h"

namespace osprey::server {
namespace {

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

// --- Health -------------------------------------------------------------------------------------

// A poller whose write waits for other servers does not turn.
absl::Status CheckPollers(const Server& server) {
  for (const auto& slot : server.slots) {
    if (slot->writes != nullptr && slot->writes->writes.awaiting() > 0) continue;
    if (absl::Status status = CheckTurning(slot->heartbeats, slot->clock.Now()); !status.ok())
      return status;
  }
  return absl::OkStatus();
}

absl::Status CheckHealth(const Server& server) {
  if (stop_bell->rung()) return absl::UnavailableError("the server is ending");
  return CheckPollers(server);
}

// Of the first log line.
std::string DescribeData(const Config& config) {
  if (config.cluster.has_value())
    return absl::StrCat(" cluster=", config.cluster->etcd.uri.ToString(),
                        " server_id=", config.cluster->server_id, " shards=", config.shards,
                        " slots=", config.slots);
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
      "; memory=", FormatSize(config.memory_bytes),
      " page_bytes=", server.slots.front()->memory->page_size(), " poll=", NameOf(config.poll),
      " pollers=", config.pollers, " connections_max=", config.connections_max,
      " value_max=", FormatSize(config.value_bytes_max), " evict=", NameOf(config.evict),
      DescribeData(config), "; nothing is encrypted; ",
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

// --- Service ------------------------------------------------------------------------------------

ServeResult Failed(const absl::Status& status) {
  if (!absl::IsCancelled(status) || !stop_bell->rung()) return {ServeExit::kFailed, status};
  Log("ended while starting");
  return {ServeExit::kClean, absl::OkStatus()};
}

void LogEnding(const absl::Status& why) {
  const std::string text = why.ok() ? "ending" : absl::StrCat("ending: ", why.message());
  Log(text);
  TellServiceManager(absl::StrCat("STOPPING=1\nSTATUS=", text));
}

// What outlives the process: a data directory, or a cluster's store.
absl::Status OpenStores(Config& config, Server& server) {
  if (!config.data_dir.empty()) {
    absl::StatusOr<std::unique_ptr<Durability>> durability =
        OpenData(config, Random, [](absl::string_view line) { Log(line); });
    if (!durability.ok()) return durability.status();
    server.durability = *std::move(durability);
  }
  if (!config.cluster.has_value()) return absl::OkStatus();
  absl::StatusOr<std::unique_ptr<ClusterParts>> cluster = OpenCluster(config, stop_bell->flag());
  if (!cluster.ok()) return cluster.status();
  server.cluster = *std::move(cluster);
  return absl::OkStatus();
}

ServeResult ServeAlone(const Config& config, absl::Span<const SessionImage> sessions,
                       Server& server) {
  Slot& slot = *server.slots.front();
  if (absl::Status status = MakeEngines(config, sessions, server, slot); !status.ok())
    return Failed(status);
  const absl::StatusOr<std::vector<std::string>> uris = ListenAll(config, server, slot);
  if (!uris.ok()) return {ServeExit::kCannotListen, uris.status()};
  if (absl::Status status = OpenMetrics(
          config, *uris, [&] { return CheckHealth(server); }, server);
      !status.ok())
    return {ServeExit::kCannotListen, std::move(status)};
  absl::Status status = StartDurability(server);
  if (!status.ok()) return Failed(status);
  status = RunSlot(
      config, [&] { Announce(config, server, *uris); }, LogEnding, *stop_bell, slot);
  server.metrics.reset();
  if (absl::Status end = EndDurability(server); status.ok()) status = std::move(end);
  if (!status.ok()) return Failed(status);
  Log("ended");
  return {ServeExit::kClean, absl::OkStatus()};
}

ServeResult ServeInCluster(const Config& config, Server& server) {
  if (absl::Status status = StartNode(config, stop_bell->flag(), server); !status.ok())
    return {ServeExit::kCannotListen, std::move(status)};
  std::vector<std::string> uris;
  for (const rdma::Address& address : config.listen) uris.push_back(address.ToString());
  if (absl::Status status = OpenMetrics(
          config, uris, [&] { return CheckHealth(server); }, server);
      !status.ok())
    return {ServeExit::kCannotListen, std::move(status)};
  Announce(config, server, uris);
  absl::Status status = RunAsMember(config, *stop_bell, server);
  LogEnding(status);
  server.metrics.reset();
  server.directory.reset();
  server.node.reset();
  if (!status.ok()) return Failed(status);
  Log("ended");
  return {ServeExit::kClean, absl::OkStatus()};
}

}  // namespace

ServeResult Serve(Config config) {
  if (absl::Status status = HandleSignals(); !status.ok())
    return {ServeExit::kFailed, std::move(status)};
  AllowDescriptors();
  Server server;
  if (absl::Status status = OpenStores(config, server); !status.ok()) return Failed(status);
  // One heap for each poller, and one for all other threads. By default glibc reserves 64 MiB of
  // addresses for each new thread, those that exist because of clients among them.
  (void)mallopt(M_ARENA_MAX, static_cast<int>(config.slots * config.pollers) + 1);
  if (absl::Status status = OpenDomains(config, server); !status.ok()) {
    return {ServeExit::kCannotListen, std::move(status)};
  }
  if (absl::Status status = MakeSlots(config, server); !status.ok()) return Failed(status);
  const absl::StatusOr<std::vector<SessionImage>> sessions =
      Load(config, stop_bell->flag(), server);
  if (!sessions.ok()) return Failed(sessions.status());
  const absl::StatusOr<std::unique_ptr<Watchdog>> watchdog =
      Watchdog::Start(Watchdog::Patience(), [&] { return CheckPollers(server); });
  if (!watchdog.ok()) return Failed(watchdog.status());
  return config.cluster.has_value() ? ServeInCluster(config, server)
                                    : ServeAlone(config, *sessions, server);
}

}  // namespace osprey::server
