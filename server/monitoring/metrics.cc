#include "server/monitoring/metrics.h"

#include <algorithm>
#include <limits>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "prometheus/metric_family.h"
#include "prometheus/text_serializer.h"
#include "server/stats/metric_table.h"

namespace osprey::server {
namespace {

using prometheus::ClientMetric;
using prometheus::MetricFamily;
using prometheus::MetricType;
using Families = std::vector<MetricFamily>;

// Made when it is first named.
MetricFamily& FamilyOf(Families& families, const std::string& name, const std::string& help,
                       MetricType type) {
  const std::string full = absl::StrCat(kMetricPrefix, name);
  const auto found = std::find_if(families.begin(), families.end(),
                                  [&](const MetricFamily& family) { return family.name == full; });
  if (found != families.end()) return *found;
  families.push_back({full, help, type, {}});
  return families.back();
}

void Add(Families& families, const MetricRow& row, double value) {
  const bool is_counter = row.kind == MetricRow::Kind::kCounter;
  ClientMetric metric;
  if (!row.label.empty()) metric.label = {{row.label, row.label_value}};
  (is_counter ? metric.counter.value : metric.gauge.value) = value;
  FamilyOf(families, row.metric, row.help, is_counter ? MetricType::Counter : MetricType::Gauge)
      .metric.push_back(std::move(metric));
}

MetricRow Named(MetricRow::Kind kind, const char* metric, const char* help) {
  MetricRow row;
  row.kind = kind;
  row.metric = metric;
  row.help = help;
  return row;
}

void AddProcess(Families& families, const StatsInput& stats) {
  using Kind = MetricRow::Kind;
  Add(families, Named(Kind::kGauge, "uptime_seconds", "Seconds since the server started."),
      absl::ToDoubleSeconds(stats.uptime));
  Add(families,
      Named(Kind::kCounter, "cpu_seconds_total", "Processor time of the process in seconds."),
      absl::ToDoubleSeconds(stats.process_cpu));
  ClientMetric info;
  info.label = {{"version", stats.version},
                {"poll", std::string(stats.poll_mode)},
                {"evict", std::string(stats.evict_mode)}};
  if (stats.durability.has_value())
    info.label.push_back({"durability", std::string(stats.durability->mode)});
  info.gauge.value = 1;
  FamilyOf(families, "info", "Always 1; the labels say what runs, and how.", MetricType::Gauge)
      .metric.push_back(std::move(info));
}

// A sample of the GETs that osprey_client_gets_total counts.
void AddClientLatencies(Families& families, const ClientGetCounts& gets) {
  constexpr double kNsPerSecond = 1e9;
  ClientMetric metric;
  prometheus::ClientMetric::Histogram& histogram = metric.histogram;
  for (size_t i = 0; i < gets.latencies.size(); ++i) {
    histogram.sample_count += gets.latencies[i];
    const bool is_last = i + 1 == gets.latencies.size();
    histogram.bucket.push_back(
        {histogram.sample_count,
         is_last ? std::numeric_limits<double>::infinity()
                 : static_cast<double>(rdma::LatencyBucketMaxNs(i)) / kNsPerSecond});
  }
  histogram.sample_sum = static_cast<double>(gets.latency_ns) / kNsPerSecond;
  FamilyOf(families, "client_get_latency_seconds",
           "How long clients' GETs lasted, as they report it: one in 64, at random.",
           MetricType::Histogram)
      .metric.push_back(std::move(metric));
}

void AddPollers(Families& families, const std::vector<PollerMetricRows>& pollers) {
  using Kind = MetricRow::Kind;
  for (size_t i = 0; i < pollers.size(); ++i) {
    const auto add = [&, number = absl::StrCat(i)](MetricRow row, double value) {
      row.label = "poller";
      row.label_value = number;
      Add(families, row, value);
    };
    add(Named(
            Kind::kCounter, "poller_busy_seconds_total",
            "Seconds of each poller in turns that had work to do: its rate is the busy fraction."),
        absl::ToDoubleSeconds(pollers[i].heartbeat.busy));
    add(Named(Kind::kCounter, "poller_turns_total", "Turns of each poller, with and without work."),
        static_cast<double>(pollers[i].heartbeat.turns));
    add(Named(Kind::kGauge, "poller_late_seconds",
              "Seconds since each poller should have begun a turn: 0 while it sleeps in time."),
        absl::ToDoubleSeconds(pollers[i].heartbeat.late));
    add(Named(Kind::kGauge, "poller_connections", "Connections of each poller."),
        static_cast<double>(pollers[i].connections));
  }
}

}  // namespace

std::string MetricsText(const MonitorReading& reading) {
  Families families;
  AddProcess(families, reading.stats);
  for (const MetricRow& row : MetricTable()) {
    if (row.metric.empty() || !row.IsIn(reading.stats)) continue;
    Add(families, row,
        row.ratio != nullptr ? row.ratio(reading.stats, row.index)
                             : static_cast<double>(row.count(reading.stats, row.index)));
  }
  AddClientLatencies(families, reading.stats.client_gets);
  AddPollers(families, reading.pollers);
  return prometheus::TextSerializer().Serialize(families);
}

}  // namespace osprey::server
