// kvserver --metrics as monitoring sees it.

#include <signal.h>
#include <sys/ptrace.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "client/client.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/notify_socket.h"
#include "tests/support/running_time.h"
#include "tests/support/scraping.h"
#include "tests/support/subprocess.h"

namespace osprey {
namespace {

using testing::Contains;
using testing::HasSubstr;
using testing::Not;

class MetricsProcessTest : public testing::Test {
 protected:
  void Start(std::vector<std::string> flags = {}) {
    flags.push_back("--metrics=0");
    absl::StatusOr<std::unique_ptr<ServerProcess>> server =
        ServerProcess::Start(NewListenAddress(), flags);
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
    port_ = server_->MetricsPort();
    ASSERT_NE(port_, 0) << server_->Log();
  }
  std::unique_ptr<Client> Connect() {
    absl::StatusOr<std::unique_ptr<Client>> client = Client::Connect(server_->uri());
    EXPECT_TRUE(client.ok()) << client.status();
    return client.ok() ? *std::move(client) : nullptr;
  }
  Scrape Scraped() const {
    const absl::StatusOr<HttpAnswer> answer = GetHttp(port_, "/metrics");
    EXPECT_TRUE(answer.ok()) << answer.status();
    if (!answer.ok()) return {};
    EXPECT_EQ(answer->status, 200);
    EXPECT_THAT(answer->head, HasSubstr("Content-Type: text/plain; version=0.0.4"));
    absl::StatusOr<Scrape> scrape = ParseScrape(answer->body);
    EXPECT_TRUE(scrape.ok()) << scrape.status() << answer->body;
    return scrape.value_or(Scrape());
  }
  // Scrapes until so many requests are reported. A poller reports them at the end of its turn,
  // after the answer. Returns the last scrape, even if they are never reported.
  Scrape AwaitRequests(double requests) const {
    Scrape scrape;
    for (const absl::Time end = absl::Now() + absl::Seconds(30); absl::Now() < end;) {
      scrape = Scraped();
      if (RequestsIn(scrape) >= requests) break;
      absl::SleepFor(absl::Milliseconds(20));
    }
    return scrape;
  }
  // Asks until the server's health has that status. Returns its text, or "" after the timeout.
  std::string AwaitHealth(int status) const {
    for (const absl::Time end = absl::Now() + absl::Seconds(30); absl::Now() < end;) {
      const absl::StatusOr<HttpAnswer> answer = GetHttp(port_, "/healthz");
      if (answer.ok() && answer->status == status) return answer->body;
      absl::SleepFor(absl::Milliseconds(20));
    }
    return "";
  }

  // Requests of all kinds that clients of the library make.
  static double RequestsIn(const Scrape& scrape) {
    double sum = 0;
    for (const auto& [sample, value] : scrape.samples) {
      if (absl::StartsWith(sample, "osprey_requests_total{")) sum += value;
    }
    return sum;
  }

  std::unique_ptr<ServerProcess> server_;
  uint16_t port_ = 0;
};

// Stops one thread of a process, as if it hung in a system call; the others continue.
class StoppedThread {
 public:
  StoppedThread(pid_t pid, const std::string& name) {
    // A thread that has just begun has no name yet.
    for (const absl::Time end = absl::Now() + absl::Seconds(30); absl::Now() < end;) {
      thread_ = ThreadOf(pid, name);
      if (thread_ != 0) break;
      absl::SleepFor(absl::Milliseconds(10));
    }
    EXPECT_NE(thread_, 0) << "no thread " << name;
    if (thread_ == 0) return;
    EXPECT_EQ(ptrace(PTRACE_SEIZE, thread_, nullptr, nullptr), 0) << errno;
    EXPECT_EQ(ptrace(PTRACE_INTERRUPT, thread_, nullptr, nullptr), 0) << errno;
    EXPECT_EQ(waitpid(thread_, nullptr, __WALL), thread_);
  }
  ~StoppedThread() { ptrace(PTRACE_DETACH, thread_, nullptr, nullptr); }
  StoppedThread(const StoppedThread&) = delete;
  StoppedThread& operator=(const StoppedThread&) = delete;

 private:
  static pid_t ThreadOf(pid_t pid, const std::string& name) {
    pid_t thread = 0;
    for (const auto& entry :
         std::filesystem::directory_iterator(absl::StrCat("/proc/", pid, "/task"))) {
      std::ifstream file(entry.path() / "comm");
      std::string comm;
      std::getline(file, comm);
      if (comm == name) (void)absl::SimpleAtoi(entry.path().filename().string(), &thread);
    }
    return thread;
  }

  pid_t thread_ = 0;
};

TEST_F(MetricsProcessTest, CountWhatWasDone) {
  Start();
  const std::unique_ptr<Client> client = Connect();
  ASSERT_NE(client, nullptr);
  for (int i = 0; i < 100; ++i) ASSERT_TRUE(client->Put(absl::StrCat("key", i), "value").ok());
  ASSERT_TRUE(client->Delete("key0").ok());
  ASSERT_FALSE(client->Delete("key0").ok());
  const Scrape scrape = AwaitRequests(102);
  EXPECT_EQ(scrape.Of("osprey_requests_total{kind=\"put\"}"), 100);
  EXPECT_EQ(scrape.Of("osprey_requests_total{kind=\"delete\"}"), 2);
  EXPECT_EQ(scrape.Of("osprey_answers_total{status=\"not_found\"}"), 1);
  EXPECT_EQ(scrape.Of("osprey_keys"), 99);
  EXPECT_EQ(scrape.Of("osprey_connections"), 1);
  EXPECT_GT(scrape.Of("osprey_received_bytes_total"), 100 * 40);
  EXPECT_GT(scrape.Of("osprey_sent_bytes_total"), 100 * 40);
  EXPECT_GT(scrape.Of("osprey_poller_busy_seconds_total{poller=\"0\"}"), 0);
  EXPECT_EQ(scrape.Of("osprey_memory_size_bytes"), 64 << 20);
  EXPECT_EQ(AwaitHealth(200), "ok\n");
}

TEST_F(MetricsProcessTest, TheStatusPageAndItsJsonSayWhatWasDone) {
  Start();
  const std::unique_ptr<Client> client = Connect();
  ASSERT_NE(client, nullptr);
  for (int i = 0; i < 20; ++i) ASSERT_TRUE(client->Put(absl::StrCat("key", i), "value").ok());
  (void)AwaitRequests(20);
  const absl::StatusOr<HttpAnswer> page = GetHttp(server_->MetricsPort(), "/");
  ASSERT_TRUE(page.ok()) << page.status();
  EXPECT_EQ(page->status, 200);
  EXPECT_THAT(page->head, HasSubstr("\r\nContent-Security-Policy: default-src 'none'"));
  EXPECT_THAT(page->body, HasSubstr(absl::StrCat("<h1 id=\"title\">Osprey ", server_->uri())));
  EXPECT_THAT(page->body, HasSubstr("<th scope=\"row\">PUTs</th><td>20</td>"));
  EXPECT_THAT(page->body, HasSubstr("<th scope=\"row\">Keys</th><td>20</td>"));
  const absl::StatusOr<HttpAnswer> state = GetHttp(server_->MetricsPort(), "/status.json");
  ASSERT_TRUE(state.ok()) << state.status();
  EXPECT_THAT(state->head, HasSubstr("Content-Type: application/json"));
  EXPECT_THAT(state->body, HasSubstr("\"puts\":20,"));
  // Each PUT has its time.
  EXPECT_EQ(AwaitRequests(20).Of("osprey_put_latency_seconds_count"), 20);
  for (const char* path : {"/status.js", "/status.css"})
    EXPECT_EQ(GetHttp(server_->MetricsPort(), path)->status, 200) << path;
  EXPECT_EQ(GetHttp(server_->MetricsPort(), "/status.html")->status, 404);
}

// Cases that need a full table, time, another key, or one connection too many.
TEST_F(MetricsProcessTest, MetricsCountEvictionsAndRefusedConnections) {
  if (InLab()) GTEST_SKIP() << "it is the same over every transport, and takes long there";
  const std::string directory = NewTemporaryDirectory();
  const auto key_file = [&](const std::string& name, char fill) {
    const std::string path = absl::StrCat(directory, "/", name);
    std::ofstream(path) << std::string(32, fill);
    EXPECT_EQ(chmod(path.c_str(), 0600), 0);
    return path;
  };
  Options options;
  options.auth_key_file = key_file("key", 'k');
  options.deadline = absl::Seconds(30);
  Start({"--memory=4MiB", "--evict=clock", "--connections-max=3",
         "--auth-key-file=" + options.auth_key_file});
  const absl::StatusOr<std::unique_ptr<Client>> client = Client::Connect(server_->uri(), options);
  ASSERT_TRUE(client.ok()) << client.status();
  const Scrape before = Scraped();
  const std::vector<std::string> samples = {
      "osprey_index_splits_total",
      "osprey_evictions_total",
      "osprey_evicted_bytes_total",
      "osprey_expiries_total",
      "osprey_authentication_failures_total",
      "osprey_connections_closed_total{reason=\"unauthenticated\"}",
      "osprey_connections_rejected_total",
      "osprey_connections_rejected_at_bound_total{bound=\"all\"}"};
  for (const std::string& sample : samples) EXPECT_EQ(before.Of(sample), 0) << sample;

  WriteOptions soon;
  soon.ttl = absl::Milliseconds(1);
  ASSERT_TRUE((*client)->Put("soon gone", "value", soon).ok());
  const std::string value(1000, 'v');
  int stored = 0;
  for (int i = 0; i < 8000; ++i) {
    while ((*client)->in_flight() >= 64) (*client)->Wait(absl::Seconds(1));
    ASSERT_TRUE((*client)
                    ->StartPut(absl::StrCat("key", i), i < 2000 ? "" : value, {},
                               [&](absl::StatusOr<uint64_t> put) { stored += put.ok() ? 1 : 0; })
                    .ok());
  }
  while ((*client)->in_flight() > 0) (*client)->Wait(absl::Seconds(1));
  ASSERT_EQ(stored, 8000);
  Options other = options;
  other.auth_key_file = key_file("other", 'o');
  EXPECT_FALSE(Client::Connect(server_->uri(), other).ok());
  std::vector<absl::StatusOr<std::unique_ptr<Client>>> many;
  for (int i = 0; i < 3; ++i) many.push_back(Client::Connect(server_->uri(), options));
  EXPECT_FALSE(many.back().ok());

  // Expired keys are swept away in a while.
  Scrape after;
  for (const absl::Time end = absl::Now() + absl::Seconds(30); absl::Now() < end;) {
    after = Scraped();
    if (after.Of("osprey_expiries_total") > 0) break;
    absl::SleepFor(absl::Milliseconds(20));
  }
  for (const std::string& sample : samples) EXPECT_GT(after.Of(sample), 0) << sample;
}

// The ports at which the process listens for TCP.
std::vector<int> PortsOf(pid_t pid) {
  std::set<std::string> sockets;
  for (const auto& entry :
       std::filesystem::directory_iterator(absl::StrCat("/proc/", pid, "/fd"))) {
    std::error_code gone;
    sockets.insert(std::filesystem::read_symlink(entry.path(), gone).string());
  }
  std::vector<int> ports;
  for (const char* name : {"tcp", "tcp6"}) {
    std::ifstream file(absl::StrCat("/proc/", pid, "/net/", name));
    for (std::string line; std::getline(file, line);) {
      // sl local_address rem_address st … : the address and port in hexadecimal, 0A: listens.
      const std::vector<std::string> words = absl::StrSplit(line, ' ', absl::SkipEmpty());
      if (words.size() < 10 || words[3] != "0A") continue;
      if (sockets.count(absl::StrCat("socket:[", words[9], "]")) == 0) continue;
      ports.push_back(std::stoi(words[1].substr(words[1].rfind(':') + 1), nullptr, 16));
    }
  }
  return ports;
}

TEST_F(MetricsProcessTest, WithoutTheFlagNothingListensForThem) {
  Start();
  EXPECT_THAT(PortsOf(server_->pid()), testing::ElementsAre(port_));
  const absl::StatusOr<std::unique_ptr<ServerProcess>> without =
      ServerProcess::Start(NewListenAddress());
  ASSERT_TRUE(without.ok()) << without.status();
  EXPECT_THAT(PortsOf((*without)->pid()), testing::IsEmpty());
  EXPECT_THAT((*without)->Log(), Not(HasSubstr("metrics at")));
}

// Beside the data, of which there is next to none: server/OPERATING.md has these numbers.
void ExpectNeeded(const Scrape& scrape, double mib) {
  EXPECT_GE(scrape.Of("osprey_disk_needed_bytes"), mib * (1 << 20));
  EXPECT_LT(scrape.Of("osprey_disk_needed_bytes"), (mib + 1) * (1 << 20));
}

TEST_F(MetricsProcessTest, ADurableServerHasMetricsOfItsLogAndItsStart) {
  const std::string directory = NewTemporaryDirectory() + "/data";
  const std::vector<std::string> flags = {"--data-dir=" + directory, "--durability-lag=50ms"};
  Start(flags);
  EXPECT_THAT(server_->Log(), HasSubstr(absl::StrCat(" data_dir=", directory,
                                                     " durability=async durability_lag=50ms;")));
  EXPECT_EQ(Scraped().Of("osprey_log_entries_total"), 0);
  constexpr int kPuts = 100;
  {
    const std::unique_ptr<Client> client = Connect();
    ASSERT_NE(client, nullptr);
    for (int i = 0; i < kPuts; ++i) ASSERT_TRUE(client->Put(absl::StrCat("key", i), "value").ok());
    EXPECT_EQ(Scraped().Of("osprey_log_entries_total"), kPuts);
    const absl::StatusOr<std::string> stats = client->ServerStats();
    ASSERT_TRUE(stats.ok()) << stats.status();
    EXPECT_EQ(StatIn(*stats, "durability"), "async");
    EXPECT_EQ(StatIn(*stats, "log_entries"), absl::StrCat(kPuts));
    EXPECT_EQ(StatIn(*stats, "keys_loaded"), "0");
    EXPECT_EQ(StatIn(*stats, "disk_full"), "0");
  }
  Scrape scrape;
  for (const absl::Time end = absl::Now() + absl::Seconds(30); absl::Now() < end;) {
    scrape = Scraped();
    if (scrape.Of("osprey_log_unsynced_bytes") == 0) break;
    absl::SleepFor(absl::Milliseconds(20));
  }
  EXPECT_EQ(scrape.Of("osprey_log_unsynced_bytes"), 0);
  EXPECT_EQ(scrape.Of("osprey_log_lag_seconds"), 0);
  EXPECT_GT(scrape.Of("osprey_log_syncs_total"), 0);
  EXPECT_GT(scrape.Of("osprey_log_written_bytes_total"), kPuts * 64);
  EXPECT_GT(scrape.Of("osprey_disk_free_bytes"), scrape.Of("osprey_disk_needed_bytes"));
  ExpectNeeded(scrape, 592);
  EXPECT_GT(scrape.Of("osprey_versions_left"), 0);

  EXPECT_THAT(server_->Log(), Not(HasSubstr("loading")));
  server_.reset();  // by SIGKILL
  Start(flags);
  EXPECT_THAT(server_->Log(), HasSubstr("loading the log from record 1, "));
  const Scrape next = Scraped();
  EXPECT_EQ(next.Of("osprey_keys_loaded"), kPuts);
  EXPECT_EQ(next.Of("osprey_keys"), kPuts);
  EXPECT_GT(next.Of("osprey_loaded_bytes"), kPuts * 4);
  EXPECT_GT(next.Of("osprey_load_duration_seconds"), 0);
  EXPECT_EQ(next.Of("osprey_log_entries_total"), 0);
}

TEST_F(MetricsProcessTest, ShorterLogsNeedLessDisk) {
  Start({"--data-dir=" + NewTemporaryDirectory() + "/data", "--checkpoint-log-bytes=8MiB"});
  ExpectNeeded(Scraped(), 82);
}

TEST_F(MetricsProcessTest, WithSyncNothingAnsweredIsUnsynced) {
  const std::string directory = NewTemporaryDirectory() + "/data";
  Start({"--data-dir=" + directory, "--durability=sync"});
  EXPECT_THAT(server_->Log(),
              HasSubstr(absl::StrCat(" data_dir=", directory, " durability=sync;")));
  const std::unique_ptr<Client> client = Connect();
  ASSERT_NE(client, nullptr);
  constexpr int kPuts = 10;
  for (int i = 0; i < kPuts; ++i) {
    ASSERT_TRUE(client->Put("key", "value").ok());
    const Scrape scrape = Scraped();
    EXPECT_EQ(scrape.Of("osprey_log_unsynced_bytes"), 0);
    EXPECT_EQ(scrape.Of("osprey_log_lag_seconds"), 0);
    EXPECT_GE(scrape.Of("osprey_log_syncs_total"), i + 1);
  }
  EXPECT_EQ(Scraped().Of("osprey_log_entries_total"), kPuts);
}

// More than the server takes of a session at once: some wait there for a later turn.
TEST_F(MetricsProcessTest, WithSyncManyWritesInFlightShareSyncs) {
  const std::string directory = NewTemporaryDirectory() + "/data";
  Start({"--data-dir=" + directory, "--durability=sync"});
  const std::unique_ptr<Client> client = Connect();
  ASSERT_NE(client, nullptr);
  constexpr int kPuts = 2560, kInFlight = 256;
  int started = 0, ended = 0;
  const std::function<void()> start = [&] {
    if (started == kPuts) return;
    const absl::Status status = client->StartPut(absl::StrCat("key", started++), "value", {},
                                                 [&](const absl::StatusOr<uint64_t>& version) {
                                                   EXPECT_TRUE(version.ok()) << version.status();
                                                   ++ended;
                                                   start();
                                                 });
    ASSERT_TRUE(status.ok()) << status;
  };
  for (int i = 0; i < kInFlight; ++i) start();
  while (client->in_flight() > 0) client->Wait(absl::Seconds(1));
  ASSERT_EQ(ended, kPuts);
  const Scrape scrape = Scraped();
  EXPECT_EQ(scrape.Of("osprey_log_entries_total"), kPuts);
  EXPECT_LT(scrape.Of("osprey_log_syncs_total"), kPuts / 8);
}

TEST_F(MetricsProcessTest, AServerInMemoryHasNoMetricsOfALog) {
  Start();
  EXPECT_THAT(server_->Log(), Not(HasSubstr("data_dir=")));
  EXPECT_EQ(Scraped().families.count("osprey_log_lag_seconds"), 0u);
  const std::unique_ptr<Client> client = Connect();
  ASSERT_NE(client, nullptr);
  const absl::StatusOr<std::string> stats = client->ServerStats();
  ASSERT_TRUE(stats.ok()) << stats.status();
  EXPECT_EQ(StatIn(*stats, "durability"), "");
  EXPECT_EQ(StatIn(*stats, "log_entries"), "");
}

// GETs are READs, which the server does not see: clients report them.
TEST_F(MetricsProcessTest, HaveWhatClientsReportOfTheirGets) {
  Start();
  const std::unique_ptr<Client> client = Connect();
  ASSERT_NE(client, nullptr);
  ASSERT_TRUE(client->Put("here", "value").ok());
  const double requests = RequestsIn(AwaitRequests(1));
  constexpr int kGets = 20000;
  for (int i = 0; i < kGets; ++i) {
    ASSERT_TRUE(client->Get("here").ok());
    ASSERT_FALSE(client->Get("not here").ok());
  }
  // A later Poll reports the rest.
  Scrape scrape;
  for (const absl::Time end = absl::Now() + absl::Seconds(30); absl::Now() < end;) {
    client->Poll();
    scrape = Scraped();
    if (scrape.Of("osprey_client_gets_total{result=\"miss\"}") == kGets) break;
    absl::SleepFor(absl::Milliseconds(50));
  }
  EXPECT_EQ(scrape.Of("osprey_client_gets_total{result=\"hit\"}"), kGets);
  EXPECT_EQ(scrape.Of("osprey_client_gets_total{result=\"miss\"}"), kGets);
  EXPECT_EQ(scrape.Of("osprey_client_gets_total{result=\"failure\"}"), 0);
  EXPECT_EQ(scrape.Of("osprey_client_reads_total"), static_cast<double>(client->counters().reads));
  EXPECT_NEAR(scrape.Of("osprey_client_get_latency_seconds_count"), 2 * kGets / 64.0, 200);
  EXPECT_GT(scrape.Of("osprey_client_get_latency_seconds_sum"), 0);
  // A report is no request.
  EXPECT_EQ(RequestsIn(scrape), requests);
}

TEST_F(MetricsProcessTest, CountClientsThatConnectedForAMoment) {
  Start();
  for (int i = 0; i < 3; ++i) {
    const std::unique_ptr<Client> client = Connect();
    ASSERT_NE(client, nullptr);
    ASSERT_FALSE(client->Get("nothing").ok());
  }
  // Their reports were under way when they left.
  for (const absl::Time end = absl::Now() + absl::Seconds(30); absl::Now() < end;) {
    if (Scraped().Of("osprey_client_gets_total{result=\"miss\"}") == 3) return;
    absl::SleepFor(absl::Milliseconds(20));
  }
  ADD_FAILURE() << "the GETs of clients that left are missing";
}

TEST_F(MetricsProcessTest, AStuckPollerIsUnhealthyAndHindersNoScrape) {
  const std::string directory = NewTemporaryDirectory();
  const NotifySocket manager(directory + "/notify");
  setenv("NOTIFY_SOCKET", (directory + "/notify").c_str(), 1);
  setenv("WATCHDOG_USEC", "100000", 1);
  Start({"--pollers=2"});
  unsetenv("NOTIFY_SOCKET");
  unsetenv("WATCHDOG_USEC");
  // An idle client is served once a second, so each poller has work that can be late.
  const std::unique_ptr<Client> one = Connect(), other = Connect();
  EXPECT_EQ(Scraped().Of("osprey_poller_connections{poller=\"1\"}"), 1);
  {
    const StoppedThread stopped(server_->pid(), "poller-1");
    EXPECT_THAT(AwaitHealth(503), HasSubstr("poller 1 has not turned for "));
    EXPECT_GE(Scraped().Of("osprey_poller_late_seconds{poller=\"1\"}"), 5);
    // It does not delay the other one either.
    EXPECT_TRUE(one->Ping().ok() || other->Ping().ok());
    // And systemd gets no more watchdog notifications.
    absl::SleepFor(absl::Milliseconds(200));
    EXPECT_THAT(manager.Received(), Contains("WATCHDOG=1"));  // before it hung
    absl::SleepFor(absl::Milliseconds(500));
    EXPECT_THAT(manager.Received(), Not(Contains("WATCHDOG=1")));
    EXPECT_THAT(server_->Log(), HasSubstr("the service manager is not notified"));
  }
  EXPECT_EQ(AwaitHealth(200), "ok\n");
  absl::SleepFor(absl::Milliseconds(500));
  EXPECT_THAT(manager.Received(), Contains("WATCHDOG=1"));
}

TEST_F(MetricsProcessTest, AServerThatEndsSaysSo) {
  Start({"--pollers=2"});
  {
    const StoppedThread stopped(server_->pid(), "poller-1");
    kill(server_->pid(), SIGTERM);
    EXPECT_EQ(AwaitHealth(503), "the server is ending\n");
  }
  EXPECT_EQ(server_->Stop(), 0);
}

TEST_F(MetricsProcessTest, WhatIsNoRequestIsAnsweredOrHungUpOn) {
  Start();
  const std::string long_header(100000, 'x');
  for (const std::string& request :
       {std::string("\r\n\r\n"), std::string("nonsense\r\n\r\n"), std::string("GET\r\n\r\n"),
        std::string(10, '\0') + "\r\n\r\n", "GET /" + long_header + " HTTP/1.1\r\n\r\n",
        "GET / HTTP/1.1\r\nX: " + long_header + "\r\n\r\n",
        std::string("GET /metrics HTTP/9.9\r\n\r\n"),
        std::string("PUT /metrics HTTP/1.1\r\nContent-Length: 5\r\n\r\nhello"),
        std::string("DELETE /metrics HTTP/1.1\r\n\r\n"),
        std::string("GET /../../../../etc/passwd HTTP/1.1\r\n\r\n"),
        std::string("GET /nothing HTTP/1.1\r\n\r\n")}) {
    const absl::StatusOr<HttpAnswer> answer = AskHttp(port_, request);
    ASSERT_TRUE(answer.ok()) << answer.status() << request.substr(0, 40);
    EXPECT_NE(answer->status, 200) << request.substr(0, 40);
    EXPECT_THAT(answer->body, Not(HasSubstr("root:")));
  }
  EXPECT_EQ(AwaitHealth(200), "ok\n");
}

// The default timeout of Prometheus.
TEST_F(MetricsProcessTest, ManyPeersThatSayNothingHinderNoScrape) {
  Start();
  std::vector<SilentPeer> peers;
  for (int i = 0; i < 40; ++i) peers.emplace_back(port_, i % 2 == 0 ? "" : "GET /metrics HT");
  const absl::StatusOr<HttpAnswer> answer =
      AskHttp(port_, "GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n", absl::Seconds(10));
  ASSERT_TRUE(answer.ok()) << answer.status();
  EXPECT_EQ(answer->status, 200);
}

// As a liveness probe of an orchestrator asks, which would restart a healthy server.
TEST_F(MetricsProcessTest, HealthAnswersPromptlyBesideIdleAndSlowPeers) {
  Start();
  std::vector<SilentPeer> idle, slow;
  for (int i = 0; i < 400; ++i) idle.emplace_back(port_, "");
  for (int i = 0; i < 200; ++i) slow.emplace_back(port_, "GET /metrics HTTP/1.1\r\n");
  std::atomic<bool> ends{false};
  // Those that are closed come again.
  const auto keep = [&](std::vector<SilentPeer>& peers, const char* begin, const char* more) {
    for (SilentPeer& peer : peers) {
      if (ends || peer.Say(more)) continue;
      peer = SilentPeer(port_, begin);
      absl::SleepFor(absl::Milliseconds(1));
    }
  };
  std::thread drips([&] {
    while (!ends) {
      keep(slow, "GET /metrics HTTP/1.1\r\n", "X: y\r\n");
      keep(idle, "", "");
      absl::SleepFor(absl::Milliseconds(20));
    }
  });
  absl::Duration best = absl::InfiniteDuration();
  for (int i = 0; i < 10; ++i) {
    const RunningTime time;
    const absl::StatusOr<HttpAnswer> answer = GetHttp(port_, "/healthz");
    const absl::Duration took = time.Passed();
    EXPECT_EQ(answer.ok() ? answer->body : "", "ok\n") << answer.status();
    EXPECT_LT(took, absl::Seconds(5)) << "on a machine that is busy with other things";
    best = std::min(best, took);
  }
  ends = true;
  drips.join();
  EXPECT_LT(best, absl::Seconds(1));
  EXPECT_EQ(server_->Stop(), 0);
}

TEST_F(MetricsProcessTest, AnAddressInUseEndsItWithStatusThreeAndOneLine) {
  Start();
  const ProgramResult result =
      RunProgram({"server/kvserver", "--listen=shm://" + NewTemporaryDirectory() + "/s",
                  "--memory=64MiB", absl::StrCat("--metrics=", port_)});
  EXPECT_EQ(result.exit_status, 3);
  EXPECT_THAT(result.err, HasSubstr(absl::StrCat("cannot serve metrics at 127.0.0.1:", port_)));
  EXPECT_THAT(result.err, HasSubstr("Address already in use"));
  EXPECT_EQ(result.out, "");
}

}  // namespace
}  // namespace osprey
