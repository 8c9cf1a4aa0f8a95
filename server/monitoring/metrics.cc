#include "server/monitoring/metrics.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
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
                       MetricType type, absl::string_view prefix = kMetricPrefix) {
  const std::string full = absl::StrCat(prefix, name);
  const auto found = std::find_if(families.begin(), families.end(),
                                  [&](const MetricFamily& family) { return family.name == full; });
  if (found != families.end()) return *found;
  families.push_back({full, help, type, {}});
  return families.back();
}

void Add(Families& families, const MetricRow& row, double value,
         absl::string_view prefix = kMetricPrefix) {
  const bool is_counter = row.kind == MetricRow::Kind::kCounter;
  ClientMetric metric;
  if (!row.label.empty()) metric.label = {{row.label, row.label_value}};
  (is_counter ? metric.counter.value : metric.gauge.value) = value;
  FamilyOf(families, row.metric, row.help, is_counter ? MetricType::Counter : MetricType::Gauge,
           prefix)
      .metric.push_back(std::move(metric));
}

MetricRow Named(MetricRow::Kind kind, const char* metric, const char* help) {
  MetricRow row;
  row.kind = kind;
  row.metric = metric;
  row.help = help;
  return row;
}

// Under the names that dashboards of any program use.
void AddProcess(Families& families, const MonitorReading& reading) {
  using Kind = MetricRow::Kind;
  const auto add = [&](Kind kind, const char* name, const char* help, double value) {
    Add(families, Named(kind, name, help), value, "process_");
  };
  add(Kind::kCounter, "cpu_seconds_total", "Processor time of the process in seconds.",
      absl::ToDoubleSeconds(reading.stats.process_cpu));
  add(Kind::kGauge, "start_time_seconds", "Unix time at which the process started.",
      absl::ToDoubleSeconds(reading.at - reading.stats.uptime - absl::UnixEpoch()));
  const ProcessFigures& process = reading.process;
  add(Kind::kGauge, "resident_memory_bytes", "Bytes of memory that the process has in RAM.",
      static_cast<double>(process.resident_bytes));
  add(Kind::kGauge, "virtual_memory_bytes", "Bytes of the process's address space.",
      static_cast<double>(process.virtual_bytes));
  add(Kind::kGauge, "open_fds", "Open file descriptors.", static_cast<double>(process.open_fds));
  add(Kind::kGauge, "max_fds", "Bound of open file descriptors (ulimit -n).",
      static_cast<double>(process.max_fds));
}

void AddServer(Families& families, const StatsInput& stats) {
  using Kind = MetricRow::Kind;
  Add(families, Named(Kind::kGauge, "uptime_seconds", "Seconds since the server started."),
      absl::ToDoubleSeconds(stats.uptime));
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

using Latencies = std::array<uint64_t, rdma::kLatencyBuckets>;

void AddHistogram(Families& families, const char* name, const char* help,
                  const Latencies& latencies, uint64_t sum_ns) {
  constexpr double kNsPerSecond = 1e9;
  ClientMetric metric;
  prometheus::ClientMetric::Histogram& histogram = metric.histogram;
  for (size_t i = 0; i < latencies.size(); ++i) {
    histogram.sample_count += latencies[i];
    const bool is_last = i + 1 == latencies.size();
    histogram.bucket.push_back(
        {histogram.sample_count,
         is_last ? std::numeric_limits<double>::infinity()
                 : static_cast<double>(rdma::LatencyBucketMaxNs(i)) / kNsPerSecond});
  }
  histogram.sample_sum = static_cast<double>(sum_ns) / kNsPerSecond;
  FamilyOf(families, name, help, MetricType::Histogram).metric.push_back(std::move(metric));
}

void AddLatencies(Families& families, const StatsInput& stats) {
  const ClientGetCounts& gets = stats.client_gets;
  AddHistogram(families, "client_get_latency_seconds",
               "How long clients' GETs lasted, as they report it: one in 64, at random.",
               gets.latencies, gets.latency_ns);
  const Counters& counters = stats.counters;
  AddHistogram(families, "put_latency_seconds",
               "How long answered PUTs took at the server: from the turn that received them, with "
               "the disk or the cluster that they waited for.",
               counters.put_latencies, counters.put_latency_ns);
}

// The serializer prints 17 digits of each bound: 8.192e-06 becomes 8.192000000000001e-06.
std::string WithShortBounds(absl::string_view text) {
  constexpr absl::string_view kBound = "{le=\"";
  std::string all;
  size_t copied = 0;
  for (size_t at = text.find(kBound); at != absl::string_view::npos;
       at = text.find(kBound, copied)) {
    const size_t begin = at + kBound.size();
    const size_t end = text.find('"', begin);
    double bound = 0;
    if (!absl::SimpleAtod(text.substr(begin, end - begin), &bound) || std::isinf(bound)) {
      absl::StrAppend(&all, text.substr(copied, end - copied));
    } else {
      absl::StrAppend(&all, text.substr(copied, begin - copied));
      absl::StrAppendFormat(&all, "%.10g", bound);
    }
    copied = end;
  }
  return absl::StrCat(all, text.substr(copied));
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
  AddProcess(families, reading);
  AddServer(families, reading.stats);
  for (const MetricRow& row : MetricTable()) {
    if (row.metric.empty() || !row.IsIn(reading.stats)) continue;
    Add(families, row,
        row.ratio != nullptr ? row.ratio(reading.stats, row.index)
                             : static_cast<double>(row.count(reading.stats, row.index)));
  }
  AddLatencies(families, reading.stats);
  AddPollers(families, reading.pollers);
  return WithShortBounds(prometheus::TextSerializer().Serialize(families));
}

}  // namespace osprey::server
