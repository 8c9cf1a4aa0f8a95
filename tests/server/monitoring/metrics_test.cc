// The server's metrics: the text, the table that it comes from, and the pollers' heartbeat.

#include "server/monitoring/metrics.h"

#include <unistd.h>

#include <fstream>
#include <iterator>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "absl/time/clock.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/monitoring/http_address.h"
#include "server/monitoring/poller_heartbeat.h"
#include "server/monitoring/process_figures.h"
#include "server/stats/metric_table.h"
#include "tests/support/scraping.h"

namespace osprey::server {
namespace {

using testing::HasSubstr;

absl::Time At(absl::Duration time) { return absl::UnixEpoch() + absl::Hours(1) + time; }

MonitorReading ReadingOfTwoPollers() {
  MonitorReading reading;
  reading.stats.version = "1.2.3";
  reading.stats.poll_mode = "adaptive";
  reading.stats.evict_mode = "none";
  reading.pollers.resize(2);
  return reading;
}

MonitorReading ReadingOfADurableServer() {
  MonitorReading reading = ReadingOfTwoPollers();
  reading.stats.durability.emplace().mode = "async";
  return reading;
}

MonitorReading ReadingInACluster() {
  MonitorReading reading = ReadingOfTwoPollers();
  ClusterStats& stats = reading.stats.cluster.emplace();
  stats.primaries = 1;
  stats.term = 7;
  stats.slots = 8;
  stats.slots_used = 5;
  stats.moves = {{3, "a", "d"}, {4, "b", "a"}};
  stats.in_sync = 2;
  stats.replicas = 3;
  stats.right_left = absl::Milliseconds(2500);
  stats.groups = 10;
  stats.groups_waiting = 4;
  return reading;
}

Scrape ScrapeOf(const MonitorReading& reading) {
  absl::StatusOr<Scrape> scrape = ParseScrape(MetricsText(reading));
  EXPECT_TRUE(scrape.ok()) << scrape.status();
  return scrape.value_or(Scrape());
}

void ExpectFigures(const MonitorReading& reading,
                   const std::vector<std::pair<std::string, double>>& figures) {
  const Scrape scrape = ScrapeOf(reading);
  for (const auto& [name, figure] : figures) EXPECT_EQ(scrape.Of(name), figure) << name;
}

// --- The checker ------------------------------------------------------------------------------

class WrongScrapeTest : public testing::TestWithParam<const char*> {};

TEST_P(WrongScrapeTest, IsNoticed) { EXPECT_FALSE(ParseScrape(GetParam()).ok()); }

INSTANTIATE_TEST_SUITE_P(
    Texts, WrongScrapeTest,
    testing::Values(
        "", "a 1\n", "# TYPE a gauge\na 1\n", "# HELP a x\na 1\n", "# HELP a x\n# TYPE a gauge\n",
        "# HELP a x\n# TYPE a gauge\na\n", "# HELP a x\n# TYPE a gauge\na one\n",
        "# HELP a x\n# TYPE a gauge\nb 1\n", "# HELP a x\n# TYPE a gauge\na 1\na 2\n",
        "# HELP a x\n# TYPE a gauge\na{b=c} 1\n", "# HELP a x\n# TYPE a gauge\na{b=\"c\" 1\n",
        "# HELP a x\n# TYPE a counter\na 1\n",
        "# HELP a_total x\n# TYPE a_total gauge\na_total 1\n",
        "# HELP a_total x\n# TYPE a_total counter\na_total -1\n", "# HELP a x\n# TYPE a gauge\na 1",
        "# HELP a x\n# TYPE a histogram\na_count 1\na_sum 1\na_bucket{le=\"1\"} 1\n",
        "# HELP a x\n# TYPE a histogram\na_count 2\na_sum 1\na_bucket{le=\"+Inf\"} 1\n",
        "# HELP a x\n# TYPE a histogram\na_count 1\na_sum 1\na_bucket{le=\"1\"} 2\n"
        "a_bucket{le=\"+Inf\"} 1\n"));

TEST(ScrapeTest, RightTextIsRead) {
  const absl::StatusOr<Scrape> scrape = ParseScrape(
      "# HELP a_total x y\n# TYPE a_total counter\na_total{b=\"c\"} 1\na_total{b=\"d\"} 2.5\n"
      "# HELP h x\n# TYPE h histogram\nh_count 3\nh_sum 1.5\nh_bucket{le=\"1\"} 2\n"
      "h_bucket{le=\"+Inf\"} 3\n");
  ASSERT_TRUE(scrape.ok()) << scrape.status();
  EXPECT_EQ(scrape->families.at("a_total").help, "x y");
  EXPECT_EQ(scrape->Of("a_total{b=\"d\"}"), 2.5);
  EXPECT_EQ(scrape->Of("h_bucket{le=\"1\"}"), 2);
}

// --- The text ---------------------------------------------------------------------------------

TEST(MetricsTest, AnIdleServersTextIsRight) {
  const Scrape scrape = ScrapeOf(ReadingOfTwoPollers());
  EXPECT_EQ(scrape.Of("osprey_keys"), 0);
  EXPECT_EQ(scrape.Of("osprey_info{version=\"1.2.3\",poll=\"adaptive\",evict=\"none\"}"), 1);
  EXPECT_EQ(scrape.Of("osprey_poller_busy_seconds_total{poller=\"1\"}"), 0);
}

TEST(MetricsTest, FiguresStandUnderTheirNames) {
  MonitorReading reading = ReadingOfTwoPollers();
  StatsInput& stats = reading.stats;
  stats.counters.puts = 7;
  stats.counters.received_bytes = uint64_t{1} << 40;
  stats.counters.connections_closed[static_cast<size_t>(CloseReason::kMalformed)] = 3;
  stats.counters.answers[static_cast<size_t>(absl::StatusCode::kNotFound)] = 5;
  stats.connections = 2;
  stats.refusals.per_source = 4;
  stats.refusals.descriptors = 6;
  stats.table.load_factor = 0.625;
  stats.process_cpu = absl::Milliseconds(1500);
  reading.pollers[1].heartbeat = {10, absl::Milliseconds(250), absl::Seconds(6)};
  reading.pollers[1].connections = 9;
  ExpectFigures(reading,
                {
                    {"osprey_requests_total{kind=\"put\"}", 7},
                    {"osprey_received_bytes_total", static_cast<double>(uint64_t{1} << 40)},
                    {"osprey_connections_closed_total{reason=\"malformed\"}", 3},
                    {"osprey_answers_total{status=\"not_found\"}", 5},
                    {"osprey_connections", 2},
                    {"osprey_connections_rejected_at_bound_total{bound=\"per_address\"}", 4},
                    {"osprey_connections_rejected_at_bound_total{bound=\"descriptors\"}", 6},
                    {"osprey_load_factor", 0.625},
                    {"process_cpu_seconds_total", 1.5},
                    {"osprey_poller_turns_total{poller=\"1\"}", 10},
                    {"osprey_poller_busy_seconds_total{poller=\"1\"}", 0.25},
                    {"osprey_poller_late_seconds{poller=\"1\"}", 6},
                    {"osprey_poller_connections{poller=\"1\"}", 9},
                });
}

TEST(MetricsTest, FiguresOfADataDirectoryAreInBaseUnits) {
  MonitorReading reading = ReadingOfADurableServer();
  DurabilityStats& stats = *reading.stats.durability;
  stats.log_lag = absl::Milliseconds(250);
  stats.log_unsynced_bytes = 4096;
  stats.log_syncs = 3;
  stats.disk_full = true;
  stats.checkpoint_failures = 2;
  stats.checkpoint_took = absl::Milliseconds(1500);
  stats.checkpoint_at = absl::FromUnixSeconds(1'700'000'000);
  stats.loaded_keys = 7;
  stats.versions_left = (uint64_t{1} << 48) - 1;
  ExpectFigures(
      reading,
      {
          {"osprey_log_lag_seconds", 0.25},
          {"osprey_log_unsynced_bytes", 4096},
          {"osprey_log_syncs_total", 3},
          {"osprey_disk_full", 1},
          {"osprey_checkpoint_failures_total", 2},
          {"osprey_checkpoint_duration_seconds", 1.5},
          {"osprey_checkpoint_timestamp_seconds", 1'700'000'000},
          {"osprey_keys_loaded", 7},
          {"osprey_versions_left", static_cast<double>((uint64_t{1} << 48) - 1)},
          {"osprey_info{version=\"1.2.3\",poll=\"adaptive\",evict=\"none\",durability=\"async\"}",
           1},
      });
}

TEST(MetricsTest, OnlyAServerOfAClusterHasItsFigures) {
  ExpectFigures(ReadingInACluster(), {{"osprey_cluster_primary", 1},
                                      {"osprey_cluster_shards", 1},
                                      {"osprey_cluster_slots", 8},
                                      {"osprey_cluster_slots_used", 5},
                                      {"osprey_cluster_moves", 2},
                                      {"osprey_cluster_term", 7},
                                      {"osprey_cluster_in_sync", 2},
                                      {"osprey_cluster_replicas", 3},
                                      {"osprey_cluster_right_seconds", 2.5},
                                      {"osprey_cluster_groups_total", 10},
                                      {"osprey_cluster_groups_waiting", 4}});
  const Scrape without = ScrapeOf(ReadingOfADurableServer());
  const std::string stats = StatsText(ReadingOfADurableServer().stats);
  int rows = 0;
  for (const MetricRow& row : MetricTable()) {
    if (!row.clustered) continue;
    ++rows;
    EXPECT_EQ(without.families.count("osprey_" + row.metric), 0u) << row.metric;
    EXPECT_THAT(stats, testing::Not(HasSubstr("\n" + row.stat + "=")));
  }
  EXPECT_EQ(rows, 13);
}

TEST(MetricsTest, WithoutADataDirectoryItsFiguresAreMissing) {
  const Scrape with = ScrapeOf(ReadingOfADurableServer());
  const Scrape without = ScrapeOf(ReadingOfTwoPollers());
  const std::string stats_with = StatsText(ReadingOfADurableServer().stats);
  const std::string stats_without = StatsText(ReadingOfTwoPollers().stats);
  int rows = 0;
  for (const MetricRow& row : MetricTable()) {
    if (!row.durable) continue;
    ++rows;
    EXPECT_EQ(with.families.count("osprey_" + row.metric), 1u) << row.metric;
    EXPECT_EQ(without.families.count("osprey_" + row.metric), 0u) << row.metric;
    EXPECT_THAT(stats_with, HasSubstr("\n" + row.stat + "="));
    EXPECT_THAT(stats_without, testing::Not(HasSubstr("\n" + row.stat + "=")));
  }
  EXPECT_GE(rows, 19);
  EXPECT_THAT(stats_with, HasSubstr("\ndurability=async\n"));
  EXPECT_THAT(stats_without, testing::Not(HasSubstr("\ndurability=")));
}

TEST(MetricsTest, ClientsLatenciesAreAHistogram) {
  MonitorReading reading = ReadingOfTwoPollers();
  ClientGetCounts& gets = reading.stats.client_gets;
  gets.hits = 64;
  gets.latencies[0] = 2;
  gets.latencies[2] = 3;
  gets.latencies.back() = 1;
  gets.latency_ns = 2'500'000'000;
  const Scrape scrape = ScrapeOf(reading);
  EXPECT_EQ(scrape.Of("osprey_client_gets_total{result=\"hit\"}"), 64);
  const std::string name = "osprey_client_get_latency_seconds";
  EXPECT_EQ(scrape.families.at(name).type, "histogram");
  EXPECT_EQ(scrape.Of(name + "_count"), 6);
  EXPECT_EQ(scrape.Of(name + "_sum"), 2.5);
  EXPECT_EQ(scrape.Of(name + "_bucket{le=\"2.56e-07\"}"), 2);
  EXPECT_EQ(scrape.Of(name + "_bucket{le=\"1.024e-06\"}"), 5);
  EXPECT_EQ(scrape.Of(name + "_bucket{le=\"+Inf\"}"), 6);
}

TEST(MetricsTest, TimesOfPutsAreAHistogram) {
  MonitorReading reading = ReadingOfTwoPollers();
  reading.stats.counters.AddPuts(3, absl::Microseconds(2));
  reading.stats.counters.AddPuts(1, absl::Milliseconds(500));
  reading.stats.counters.AddPuts(1, absl::Milliseconds(-1));
  const Scrape scrape = ScrapeOf(reading);
  const std::string name = "osprey_put_latency_seconds";
  EXPECT_EQ(scrape.families.at(name).type, "histogram");
  EXPECT_EQ(scrape.Of(name + "_count"), 5);
  EXPECT_EQ(scrape.Of(name + "_sum"), 0.500006);
  EXPECT_EQ(scrape.Of(name + "_bucket{le=\"2.56e-07\"}"), 1);
  EXPECT_EQ(scrape.Of(name + "_bucket{le=\"2.048e-06\"}"), 4);
  EXPECT_EQ(scrape.Of(name + "_bucket{le=\"0.268435456\"}"), 4);
  EXPECT_EQ(scrape.Of(name + "_bucket{le=\"+Inf\"}"), 5);
}

// As a reader writes them: neither 8.192000000000001e-06 nor 16 digits.
TEST(MetricsTest, BoundsAreShort) {
  const Scrape scrape = ScrapeOf(ReadingOfTwoPollers());
  int bounds = 0;
  for (const auto& [sample, value] : scrape.samples) {
    const size_t at = sample.find("le=\"");
    if (at == sample.npos) continue;
    ++bounds;
    EXPECT_LE(sample.size() - at, std::string("le=\"0.000262144\"}").size()) << sample;
  }
  EXPECT_EQ(bounds, 2 * 24);
}

TEST(MetricsTest, FiguresOfTheProcessAreRight) {
  MonitorReading reading = ReadingOfTwoPollers();
  reading.process = ReadProcessFigures();
  reading.at = absl::FromUnixSeconds(1'700'000'000);
  reading.stats.uptime = absl::Seconds(10);
  EXPECT_GT(reading.process.resident_bytes, 1u << 20);
  EXPECT_GT(reading.process.virtual_bytes, reading.process.resident_bytes);
  const uint64_t before = reading.process.open_fds;
  const std::ifstream one_more("/proc/self/stat");
  EXPECT_EQ(ReadProcessFigures().open_fds, before + 1);
  EXPECT_EQ(reading.process.max_fds, static_cast<uint64_t>(sysconf(_SC_OPEN_MAX)));
  ExpectFigures(
      reading,
      {{"process_resident_memory_bytes", static_cast<double>(reading.process.resident_bytes)},
       {"process_virtual_memory_bytes", static_cast<double>(reading.process.virtual_bytes)},
       {"process_open_fds", static_cast<double>(before)},
       {"process_start_time_seconds", 1'699'999'990}});
}

TEST(MetricsTest, TheUsesOfMemoryAreAllOfIt) {
  MonitorReading reading = ReadingOfTwoPollers();
  index::Table::Stats& table = reading.stats.table;
  table.region_bytes = 1000;
  table.index_bytes = 100;
  table.item_space_bytes = 600;
  table.item_bytes = 350;
  table.quarantine_bytes = 50;
  const Scrape scrape = ScrapeOf(reading);
  const auto used = [&](const char* use) {
    return scrape.Of(absl::StrCat("osprey_memory_bytes{use=\"", use, "\"}"));
  };
  EXPECT_EQ(used("items_free"), 200);
  EXPECT_EQ(used("free"), 300);
  EXPECT_EQ(
      used("index") + used("items_live") + used("items_dead") + used("items_free") + used("free"),
      scrape.Of("osprey_memory_size_bytes"));
}

// --- The table --------------------------------------------------------------------------------

TEST(MetricTableTest, NamesAreTheirOwn) {
  std::set<std::string> stats, metrics;
  for (const MetricRow& figure : MetricTable()) {
    EXPECT_FALSE(figure.stat.empty() && figure.metric.empty());
    EXPECT_NE(figure.count == nullptr, figure.ratio == nullptr) << figure.stat;
    if (!figure.stat.empty()) {
      EXPECT_TRUE(stats.insert(figure.stat).second) << figure.stat;
    }
    if (!figure.metric.empty()) {
      EXPECT_TRUE(metrics.insert(figure.metric + "/" + figure.label_value).second) << figure.metric;
    }
  }
}

TEST(MetricTableTest, FiguresOfOneMetricAgreeOnWhatItIs) {
  std::map<std::string, const MetricRow*> first;
  for (const MetricRow& figure : MetricTable()) {
    const auto [entry, is_new] = first.emplace(figure.metric, &figure);
    if (figure.metric.empty() || is_new) continue;
    EXPECT_EQ(figure.help, entry->second->help) << figure.metric;
    EXPECT_EQ(figure.label, entry->second->label) << figure.metric;
    EXPECT_EQ(figure.kind, entry->second->kind) << figure.metric;
  }
}

TEST(MetricTableTest, StatsHaveTheNumbersOfTheMetrics) {
  StatsInput input;
  input.counters.puts = 11;
  input.counters.answers[static_cast<size_t>(absl::StatusCode::kOk)] = 12;
  input.table.load_factor = 0.5;
  const std::string text = StatsText(input);
  EXPECT_THAT(text, HasSubstr("\nrequests_put=11\n"));
  EXPECT_THAT(text, HasSubstr("\nrequests=11\n"));
  EXPECT_THAT(text, HasSubstr("\nanswers_ok=12\n"));
  EXPECT_THAT(text, HasSubstr("\nload_factor=0.5000\n"));
  EXPECT_THAT(text, testing::Not(HasSubstr("answers_not_found")));
}

TEST(MetricTableTest, StatsThatDoNotFitAreCutAtALineAndSaySo) {
  const std::string text = "a=1\nbcd=22\nefg=333\nhij=4444\n";
  EXPECT_EQ(WholeLines(text, text.size()), text);
  EXPECT_EQ(WholeLines(text, text.size() - 1), "a=1\nbcd=22\ntruncated=yes\n");
  EXPECT_EQ(WholeLines(text, 14 + 11), "a=1\nbcd=22\ntruncated=yes\n");
  EXPECT_EQ(WholeLines(text, 14 + 10), "a=1\ntruncated=yes\n");
  EXPECT_EQ(WholeLines(text, 14), "truncated=yes\n");
}

// Dashboards and alerts depend on them: one may be added, none may change.
TEST(MetricTableTest, MetricsKeepTheirNamesAndTypes) {
  const Scrape scrape = ScrapeOf(ReadingOfADurableServer());
  std::string present;
  for (const auto& [name, family] : scrape.families) {
    absl::StrAppend(&present, name, " ", family.type, "\n");
    EXPECT_NE(family.help, "") << name;
  }
  std::ifstream file("tests/server/monitoring/metrics.golden");
  ASSERT_TRUE(file.good());
  const std::string listed(std::istreambuf_iterator<char>(file), {});
  EXPECT_EQ(listed, present) << "write this into tests/server/monitoring/metrics.golden:\n"
                             << present;
}

class ExampleFileTest : public testing::TestWithParam<const char*> {};

// `osprey_name` or `osprey_name{label="value"}`, anywhere in the text. (Labels of the dashboard, which
// begin with the job, are not in the metrics.)
TEST_P(ExampleFileTest, IsOfMetricsThatThereAre) {
  std::map<std::string, double> samples = ScrapeOf(ReadingOfADurableServer()).samples;
  samples.merge(ScrapeOf(ReadingInACluster()).samples);
  std::ifstream file(std::string("tools/packaging/") + GetParam());
  ASSERT_TRUE(file.good());
  const std::string text(std::istreambuf_iterator<char>(file), {});
  int found = 0;
  for (size_t at = text.find("osprey_"); at != text.npos; at = text.find("osprey_", at)) {
    const size_t end = text.find_first_not_of("abcdefghijklmnopqrstuvwxyz_", at);
    const std::string name = text.substr(at, end - at);
    const bool has_labels = text[end] == '{' && !absl::StartsWith(text.substr(end), "{job=");
    const std::string labels = has_labels ? text.substr(end, text.find('}', end) - end) : "";
    bool is_there = false;
    for (const auto& [sample, value] : samples) {
      const std::pair<std::string, std::string> parts =
          absl::StrSplit(sample, absl::MaxSplits('{', 1));
      is_there |= parts.first == name &&
                  (labels.empty() || absl::StrContains(parts.second, labels.substr(1)));
    }
    EXPECT_TRUE(is_there) << name << labels;
    ++found;
    at = end;
  }
  EXPECT_GE(found, 14);
}

INSTANTIATE_TEST_SUITE_P(All, ExampleFileTest,
                         testing::Values("prometheus-alerts.yml", "grafana-dashboard.json"));

// --- The heartbeat
// --------------------------------------------------------------------------------

TEST(PollerHeartbeatTest, APollerThatTurnsIsNotLate) {
  std::vector<PollerHeartbeat> heartbeats(2);
  for (int i = 0; i < 100; ++i) {
    for (PollerHeartbeat& heartbeat : heartbeats) heartbeat.Turns(At(absl::Seconds(i)), false);
    EXPECT_TRUE(CheckTurning(heartbeats, At(absl::Seconds(i + 1))).ok());
  }
  EXPECT_EQ(heartbeats[0].Read(At(absl::Seconds(99))).turns, 100u);
}

TEST(PollerHeartbeatTest, APollerThatStaysInATurnIsStuckAfterAWhile) {
  std::vector<PollerHeartbeat> heartbeats(2);
  for (PollerHeartbeat& heartbeat : heartbeats) heartbeat.Turns(At(absl::ZeroDuration()), false);
  heartbeats[0].Turns(At(absl::Seconds(4)), false);
  EXPECT_TRUE(CheckTurning(heartbeats, At(kStuckAfter() - absl::Milliseconds(1))).ok());
  const absl::Status status = CheckTurning(heartbeats, At(kStuckAfter()));
  EXPECT_THAT(std::string(status.message()), HasSubstr("poller 1 has not turned for 5 s"));
}

TEST(PollerHeartbeatTest, SleepIsNoLatenessUntilItShouldHaveEnded) {
  std::vector<PollerHeartbeat> heartbeats(1);
  heartbeats[0].Turns(At(absl::ZeroDuration()), false);
  heartbeats[0].Sleeps(absl::InfiniteFuture());
  EXPECT_TRUE(CheckTurning(heartbeats, At(absl::Hours(1000))).ok());
  heartbeats[0].Sleeps(At(absl::Hours(1)));
  EXPECT_TRUE(CheckTurning(heartbeats, At(absl::Hours(1) + absl::Seconds(4))).ok());
  EXPECT_FALSE(CheckTurning(heartbeats, At(absl::Hours(1) + absl::Seconds(5))).ok());
  heartbeats[0].Turns(At(absl::Hours(2)), false);
  EXPECT_TRUE(CheckTurning(heartbeats, At(absl::Hours(2) + absl::Seconds(4))).ok());
}

TEST(PollerHeartbeatTest, ASleepThatASlewedClockProlongsByATenthIsNotStuck) {
  for (const absl::Duration timer : {absl::Milliseconds(1), absl::Seconds(60), absl::Hours(1)}) {
    std::vector<PollerHeartbeat> heartbeats(1);
    heartbeats[0].Turns(At(absl::ZeroDuration()), false);
    const absl::Time end = SleepEnd(At(timer), At(absl::ZeroDuration()));
    EXPECT_LE(end, At(timer));
    heartbeats[0].Sleeps(end);
    EXPECT_TRUE(CheckTurning(heartbeats, end + (end - At(absl::ZeroDuration())) / 10).ok())
        << timer;
  }
  EXPECT_EQ(SleepEnd(At(absl::Seconds(1)), At(absl::Seconds(2))), At(absl::Seconds(2)));
}

TEST(PollerHeartbeatTest, OneThatHasNotBegunIsNotLate) {
  const std::vector<PollerHeartbeat> heartbeats(1);
  EXPECT_TRUE(CheckTurning(heartbeats, At(absl::Hours(1))).ok());
}

TEST(PollerHeartbeatTest, TurnsWithWorkAreBusyTime) {
  PollerHeartbeat heartbeat;
  heartbeat.Turns(At(absl::Seconds(0)), false);
  heartbeat.Turns(At(absl::Seconds(1)), true);   // the first had work: one second of it
  heartbeat.Turns(At(absl::Seconds(3)), false);  // the second had none
  heartbeat.Turns(At(absl::Seconds(7)), true);
  EXPECT_EQ(heartbeat.Read(At(absl::Seconds(7))).busy, absl::Seconds(5));
}

TEST(PollerHeartbeatTest, APollerIsIdleSinceTheEndOfATurnWithWorkAndNotItsBeginning) {
  PollerHeartbeat heartbeat;
  heartbeat.Turns(At(absl::Seconds(1)), false);
  heartbeat.Turns(At(absl::Seconds(3)), false);
  EXPECT_EQ(heartbeat.Idle(At(absl::Seconds(3))), absl::Seconds(2));
  heartbeat.Turns(At(absl::Seconds(9)), true);  // the turn begun at 3 had work until now
  EXPECT_EQ(heartbeat.Idle(At(absl::Seconds(9))), absl::ZeroDuration());
  heartbeat.Turns(At(absl::Seconds(10)), false);
  EXPECT_EQ(heartbeat.Idle(At(absl::Seconds(11))), absl::Seconds(2));
}

// --- The address ------------------------------------------------------------------------------

TEST(HttpAddressTest, WithoutAHostItIsThisMachineAlone) {
  for (const char* text : {"9100", ":9100", "localhost:9100", "127.0.0.1:9100"}) {
    const absl::StatusOr<HttpAddress> address = ParseHttpAddress(text);
    ASSERT_TRUE(address.ok()) << text << address.status();
    EXPECT_EQ(address->ToString(), "127.0.0.1:9100") << text;
  }
  EXPECT_EQ(ParseHttpAddress("0.0.0.0:80")->ToString(), "0.0.0.0:80");
  EXPECT_EQ(ParseHttpAddress("0.0.0.0:0")->host, "0.0.0.0");
}

TEST(HttpAddressTest, InvalidAddressIsRefusedWithAFix) {
  for (const char* text : {"", ":", "x", "1.2.3.4", "1.2.3.4:", "1.2.3.4:65536", "1.2.3.4:-1",
                           "1.2.3.4:1x", "::1:80", "[::1]", "[1.2.3.4]:80", "name:80", "1.2.3:80",
                           "1.2.3.4:+80", " 80", "1.2.3.4:99999999999999999999"}) {
    const absl::StatusOr<HttpAddress> address = ParseHttpAddress(text);
    ASSERT_FALSE(address.ok()) << text;
    EXPECT_THAT(std::string(address.status().message()), HasSubstr("write 9100 for")) << text;
  }
}

TEST(HttpAddressTest, Ipv6IsRefusedAndNotOffered) {
  for (const char* text : {"[::1]:9100", "[::]:0", "[fd00::7]:80", ":::80"}) {
    const absl::StatusOr<HttpAddress> address = ParseHttpAddress(text);
    ASSERT_FALSE(address.ok()) << text;
    const std::string message(address.status().message());
    EXPECT_THAT(message, HasSubstr("' does not begin with an IPv4 address in digits; ")) << text;
    EXPECT_THAT(message.substr(message.rfind(';')), Not(HasSubstr("::"))) << text;
  }
}

}  // namespace
}  // namespace osprey::server
