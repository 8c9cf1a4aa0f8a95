// A real Prometheus scrapes a kvserver with the example files. Claims: the alerts are raised by what they
// name and by nothing else, and every query of the dashboard finds what the server tells.

#include <signal.h>
#include <sys/wait.h>

#include <cctype>
#include <cstdint>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/time/clock.h"
#include "client/client.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tests/support/free_ports.h"
#include "tests/support/scraping.h"
#include "tests/support/subprocess.h"

namespace osprey {
namespace {

using testing::HasSubstr;

constexpr absl::Duration kPatience = absl::Seconds(60);

std::string TextOf(const std::string& path) {
  std::ifstream file(path);
  EXPECT_TRUE(file.good()) << path;
  return {std::istreambuf_iterator<char>(file), {}};
}

// All but letters and digits as %XX.
std::string Escaped(const std::string& text) {
  std::string escaped;
  for (const char c : text) {
    if (std::isalnum(static_cast<unsigned char>(c)) != 0) {
      escaped.push_back(c);
    } else {
      absl::StrAppend(&escaped, "%", absl::Hex(static_cast<unsigned char>(c), absl::kZeroPad2));
    }
  }
  return escaped;
}

// A Prometheus that scrapes one server each second.
class PrometheusProcess {
 public:
  explicit PrometheusProcess(uint16_t scraped_port)
      : directory_(NewTemporaryDirectory()), port_(FreePorts(1).front()) {
    const std::string rules = directory_ + "/prometheus-alerts.yml";
    std::ofstream(rules) << TextOf("tools/packaging/prometheus-alerts.yml");
    const std::string config = directory_ + "/prometheus.yml";
    std::ofstream(config) << absl::StrReplaceAll(
        TextOf("tools/packaging/prometheus.yml"),
        {{"scrape_interval: 15s", "scrape_interval: 1s\n  evaluation_interval: 1s"},
         {"127.0.0.1:9100", absl::StrCat("127.0.0.1:", scraped_port)}});
    pid_ = StartProgram(
        {"prometheus", "--config.file=" + config, "--storage.tsdb.path=" + directory_ + "/data",
         absl::StrCat("--web.listen-address=127.0.0.1:", port_)},
        directory_ + "/err");
    EXPECT_GT(pid_, 0) << "tools/install-packages test installs prometheus";
  }
  ~PrometheusProcess() {
    if (pid_ <= 0) return;
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  PrometheusProcess(const PrometheusProcess&) = delete;
  PrometheusProcess& operator=(const PrometheusProcess&) = delete;

  // How many series the query has; none while it does not answer, or with an error. (It counts them,
  // since it would send a long answer in chunks.)
  size_t SeriesOf(const std::string& query) const {
    const absl::StatusOr<HttpAnswer> answer =
        AskHttp(port_, absl::StrCat("GET /api/v1/query?query=", Escaped("count(" + query + ")"),
                                    " HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"));
    if (!answer.ok() || answer->status != 200) return 0;
    const nlohmann::json parsed = nlohmann::json::parse(answer->body, nullptr, false);
    const nlohmann::json::json_pointer value("/data/result/0/value/1");
    size_t count = 0;
    if (parsed.is_object() && parsed.contains(value)) {
      EXPECT_TRUE(absl::SimpleAtoi(parsed[value].get<std::string>(), &count)) << answer->body;
    }
    return count;
  }
  std::string Log() const { return TextOf(directory_ + "/err"); }

 private:
  const std::string directory_;
  const uint16_t port_;
  pid_t pid_ = -1;
};

template <typename Holds>
bool Await(Holds&& holds) {
  for (const absl::Time end = absl::Now() + kPatience; absl::Now() < end;) {
    if (holds()) return true;
    absl::SleepFor(absl::Milliseconds(200));
  }
  return false;
}

TEST(PrometheusTest, TheAlertsAreRaisedByTheirFaultsAlone) {
  const ProgramResult checked =
      RunProgram({"promtool", "test", "rules", "tests/system/prometheus_alerts_test.yml"});
  EXPECT_EQ(checked.exit_status, 0) << checked.out << checked.err;
  EXPECT_THAT(checked.out, HasSubstr("SUCCESS"));
}

TEST(PrometheusTest, DashboardAndAlertsFindTheirMetrics) {
  const absl::StatusOr<std::unique_ptr<ServerProcess>> server = ServerProcess::Start(
      NewListenAddress(), {"--metrics=0", "--data-dir=" + NewTemporaryDirectory() + "/data"});
  ASSERT_TRUE(server.ok()) << server.status();
  ASSERT_NE((*server)->MetricsPort(), 0) << (*server)->Log();
  const PrometheusProcess prometheus((*server)->MetricsPort());

  const absl::StatusOr<std::unique_ptr<Client>> client = Client::Connect((*server)->uri());
  ASSERT_TRUE(client.ok()) << client.status();
  uint64_t round = 0;
  // Clients report one GET in 64, once a second.
  const auto load = [&] {
    ++round;
    EXPECT_TRUE((*client)->Put(absl::StrCat("key", round), "value").ok());
    for (int i = 0; i < 1000; ++i) (void)(*client)->Get(absl::StrCat("key", round % 2));
    (void)(*client)->Delete("absent");
  };

  const nlohmann::json dashboard =
      nlohmann::json::parse(TextOf("tools/packaging/grafana-dashboard.json"), nullptr, false);
  ASSERT_TRUE(dashboard.is_object());
  size_t queries = 0;
  for (const nlohmann::json& panel : dashboard["panels"]) {
    for (const nlohmann::json& target : panel["targets"]) {
      const std::string query = absl::StrReplaceAll(
          target["expr"].get<std::string>(), {{"$__rate_interval", "30s"}, {"$instance", ".*"}});
      // No cluster runs here: metrics_test.cc checks these names.
      if (absl::StrContains(query, "osprey_cluster_")) continue;
      ++queries;
      EXPECT_TRUE(Await([&] {
        load();
        return prometheus.SeriesOf(query) > 0;
      })) << panel["title"]
          << ": " << query << "\n"
          << prometheus.Log();
    }
  }
  EXPECT_GT(queries, 20u);

  // The server has just started.
  EXPECT_TRUE(Await([&] {
    return prometheus.SeriesOf(
               "ALERTS{alertname=\"OspreyRestarted\",severity=\"warning\",alertstate="
               "\"firing\"}") == 1;
  })) << prometheus.Log();
  EXPECT_EQ(prometheus.SeriesOf("ALERTS{alertstate=\"firing\",alertname!=\"OspreyRestarted\"}"),
            0u);
  EXPECT_EQ((*server)->Stop(), 0);
  EXPECT_TRUE(Await([&] {
    return prometheus.SeriesOf("ALERTS{alertname=\"OspreyDown\",alertstate=\"pending\"}") == 1;
  }));
}

}  // namespace
}  // namespace osprey
