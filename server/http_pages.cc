#include "server/http_pages.h"

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "server/config/host_limits.h"
#include "server/monitoring/http_server.h"
#include "server/monitoring/metrics.h"
#include "server/monitoring/monitor.h"
#include "server/monitoring/page/status_page.h"
#include "server/program/version.h"
#include "server/stats/stats.h"

namespace osprey::server {
namespace {

static_assert(HttpLimits().connections_max + 8 <= kMetricsDescriptors);

HttpPage HealthPage(const absl::Status& health) {
  HttpPage page;
  page.status = health.ok() ? 200 : 503;
  page.body = health.ok() ? "ok\n" : absl::StrCat(health.message(), "\n");
  return page;
}

MonitorReading ReadServer(Server& server) {
  MonitorReading reading = server.monitor->Read();
  const Clock& clock = server.slots.front()->clock;
  reading.stats.uptime = clock.Now() - clock.Started();
  reading.stats.process_cpu = ProcessCpu();
  reading.process = ReadProcessFigures();
  reading.at = absl::Now();
  return reading;
}

HttpPage MetricsPage(const MonitorReading& reading) {
  HttpPage page;
  page.content_type = kMetricsContentType;
  page.body = MetricsText(reading);
  return page;
}

HttpPage NotFound() {
  HttpPage page;
  page.status = 404;
  page.body = "there are / (status), /metrics and /healthz\n";
  return page;
}

// What never changes.
StatsInput FixedStats(const Config& config) {
  StatsInput fixed;
  fixed.version = std::string(kVersion);
  fixed.poll_mode = NameOf(config.poll);
  fixed.evict_mode = NameOf(config.evict);
  fixed.connections_max = config.connections_max;
  return fixed;
}

StatusInput FixedStatus(const Config& config, const std::vector<std::string>& uris) {
  StatusInput fixed;
  fixed.listen = uris;
  fixed.name = uris.front();
  if (config.cluster.has_value()) {
    fixed.name = config.cluster->server_id;
    fixed.cluster = config.cluster->etcd.uri.ToString();
  }
  return fixed;
}

}  // namespace

absl::Status OpenMetrics(const Config& config, const std::vector<std::string>& uris,
                         std::function<absl::Status()> health, Server& server) {
  if (!config.metrics.has_value()) return absl::OkStatus();
  std::function<DurabilityStats()> durability;
  if (server.durability != nullptr)
    durability = [&durable = *server.durability] { return durable.stats(); };
  std::function<ClusterStats()> cluster;
  if (server.node != nullptr) cluster = [&node = *server.node] { return node.stats(); };
  std::vector<Monitor::Watched> slots;
  for (const auto& slot : server.slots) {
    std::function<bool()> is_used;
    if (server.node != nullptr)
      is_used = [&node = server.node->slot(slot->number)] { return node.holds_shard(); };
    slots.push_back(
        {*slot->tables, *slot->pollers, slot->heartbeats, slot->clock, std::move(is_used)});
  }
  server.monitor =
      std::make_unique<Monitor>(std::move(slots), *server.admission, server.client_gets,
                                FixedStats(config), std::move(durability), std::move(cluster));
  const auto answer = [&server, health = std::move(health),
                       fixed = FixedStatus(config, uris)](absl::string_view path) {
    if (path == "/metrics") return MetricsPage(ReadServer(server));
    if (path == "/healthz") return HealthPage(health());
    if (const std::optional<HttpPage> file = StatusFile(path); file.has_value()) return *file;
    if (path != "/" && path != "/status.json") return NotFound();
    StatusInput input = fixed;
    input.health = health();
    input.reading = ReadServer(server);
    return path == "/" ? StatusPage(input) : StatusJson(input);
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

}  // namespace osprey::server
