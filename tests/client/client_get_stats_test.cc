// A client's reports of its GETs to a monitored server: with its requests, rarely without, and at
// disconnect.

#include "client/engine/client_get_stats.h"

#include <cstdint>
#include <string>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "tests/client/client_engine_fixture.h"

namespace osprey::client {
namespace {

absl::Time At(absl::Duration time) { return absl::UnixEpoch() + absl::Hours(1) + time; }

uint64_t TimedIn(const rdma::ReportBody& body) {
  uint64_t timed = 0;
  for (uint32_t count : body.latencies) timed += count;
  return timed;
}

// --- The report ---------------------------------------------------------------------

TEST(ClientGetStatsTest, OneGetInSixtyFourIsTimed) {
  const Counters counters;
  ClientGetStats report(counters, 1);
  report.set_on(true);
  int timed = 0;
  for (int i = 0; i < 640000; ++i) timed += report.TakesTime();
  EXPECT_NEAR(timed, 10000, 300);
}

TEST(ClientGetStatsTest, OffItTimesAndReportsNothing) {
  Counters counters;
  ClientGetStats report(counters, 1);
  counters.gets = counters.hits = 5;
  for (int i = 0; i < 1000; ++i) ASSERT_FALSE(report.TakesTime());
  EXPECT_FALSE(report.IsDue(At(absl::Hours(1))));
  EXPECT_FALSE(report.HasNews());
}

TEST(ClientGetStatsTest, EachReportHasWhatIsNewSinceTheLast) {
  Counters counters;
  ClientGetStats report(counters, 1);
  report.set_on(true);
  EXPECT_FALSE(report.IsDue(At(absl::ZeroDuration())));
  counters.gets = 10, counters.hits = 6, counters.misses = 3;
  counters.reads = 11, counters.read_bytes = 2816, counters.torn = 2, counters.rpc_gets = 1;
  report.Lasted(absl::Nanoseconds(256));
  report.Lasted(absl::Microseconds(1));
  ASSERT_TRUE(report.IsDue(At(absl::ZeroDuration())));
  const rdma::ReportBody first = report.Next();
  EXPECT_EQ(first.hits, 6u);
  EXPECT_EQ(first.misses, 3u);
  EXPECT_EQ(first.failures, 1u);
  EXPECT_EQ(first.reads, 11u);
  EXPECT_EQ(first.read_bytes, 2816u);
  EXPECT_EQ(first.torn, 2u);
  EXPECT_EQ(first.rpc_gets, 1u);
  EXPECT_EQ(first.latency_ns, 1256u);
  EXPECT_EQ(first.latencies[0], 1u);
  EXPECT_EQ(first.latencies[2], 1u);
  report.Told(At(absl::ZeroDuration()));
  ++counters.gets, ++counters.hits;
  EXPECT_FALSE(report.IsDue(At(ClientGetStats::kEvery() - absl::Nanoseconds(1))));
  ASSERT_TRUE(report.IsDue(At(ClientGetStats::kEvery())));
  EXPECT_EQ(report.Next().hits, 1u);
  EXPECT_EQ(report.Next().misses, 0u);
  EXPECT_EQ(report.Next().latency_ns, 0u);
  EXPECT_EQ(TimedIn(report.Next()), 0u);
}

TEST(ClientGetStatsTest, CountsAboveTheFieldMaximumAreSentInTheNextReport) {
  Counters counters;
  ClientGetStats report(counters, 1);
  report.set_on(true);
  counters.gets = counters.hits = uint64_t{UINT32_MAX} + 5;
  EXPECT_EQ(report.Next().hits, UINT32_MAX);
  report.Told(At(absl::ZeroDuration()));
  ASSERT_TRUE(report.HasNews());
  EXPECT_EQ(report.Next().hits, 5u);
  report.Told(At(absl::ZeroDuration()));
  EXPECT_FALSE(report.HasNews());
}

// --- The engine ---------------------------------------------------------------------

class ClientReportTest : public ClientEngineTest {
 protected:
  void Start(bool wants_reports = true) {
    StartWatchedServer(1, wants_reports);
    StartEngine();
    BecomeReady();
  }
  void StartWatchedServer(uint64_t incarnation, bool wants_reports = true) {
    StartServer(incarnation);
    server_->tamper_welcome = [wants_reports](rdma::FrameHeader&, rdma::WelcomeBody& body) {
      body.wants_reports = wants_reports ? 1 : 0;
    };
    for (int i = 0; i < 10; ++i) {
      const std::string key = absl::StrCat("key", i);
      const std::byte value[100] = {};
      ASSERT_TRUE(server_->TableOf(key).Put(key, value, {}, now_).status.ok());
    }
  }
  uint64_t HitsTold() const {
    uint64_t hits = 0;
    for (const rdma::ReportBody& report : server_->reports) hits += report.hits;
    return hits;
  }
};

TEST_F(ClientReportTest, GetsAloneCostAMessageASecond) {
  Start();
  const absl::Time begin = now_;
  uint64_t gets = 0;
  for (; now_ < begin + absl::Seconds(5); ++gets)
    ASSERT_TRUE(Get(absl::StrCat("key", gets % 10)).ok());
  ASSERT_FALSE(Get("absent").ok());
  EXPECT_GE(server_->reports.size(), 5u);
  EXPECT_LE(server_->reports.size(), 6u);
  EXPECT_EQ(server_->frames, static_cast<int>(server_->reports.size()));
  EXPECT_TRUE(server_->requests.empty());
  EXPECT_EQ(engine_->counters().messages, 0u);
  // An idle client sends nothing, once its last GETs are reported.
  RunFor(absl::Seconds(2));
  const size_t reports = server_->reports.size();
  EXPECT_EQ(HitsTold(), gets);
  EXPECT_EQ(server_->reports.back().misses, 1u);
  RunFor(absl::Seconds(5));
  EXPECT_EQ(server_->reports.size(), reports);
}

TEST_F(ClientReportTest, AReportGoesAlongWithARequest) {
  Start();
  ASSERT_TRUE(Get("key1").ok());
  RunFor(absl::Milliseconds(1100));  // reported, and due again
  ASSERT_EQ(server_->reports.size(), 1u);
  osprey::Outcome<Value> got;
  osprey::Outcome<uint64_t> put;
  const int frames = server_->frames;
  ASSERT_TRUE(StartGet("key2", got).ok());
  ASSERT_TRUE(RunUntil([&] { return got.done(); }));
  ASSERT_TRUE(Put("key3", "value").ok());
  EXPECT_EQ(server_->reports.size(), 2u);
  EXPECT_LE(server_->frames, frames + 2);
}

TEST_F(ClientReportTest, ClientSendsNothingUnlessTheServerRequestsIt) {
  Start(/*wants_reports=*/false);
  for (int i = 0; i < 2000; ++i) ASSERT_TRUE(Get(absl::StrCat("key", i % 10)).ok());
  RunFor(absl::Seconds(3));
  EXPECT_EQ(server_->frames, 0);
  CloseEngine();
  EXPECT_TRUE(server_->reports.empty());
}

TEST_F(ClientReportTest, ClosingClientSendsItsRemainingCounts) {
  Start();
  for (int i = 0; i < 7; ++i) ASSERT_TRUE(Get(absl::StrCat("key", i)).ok());
  CloseEngine();
  EXPECT_EQ(HitsTold(), 7u);
}

TEST_F(ClientReportTest, ASampleIsTimed) {
  Start();
  for (int i = 0; i < 6400; ++i) ASSERT_TRUE(Get(absl::StrCat("key", i % 10)).ok());
  CloseEngine();
  uint64_t timed = 0, ns = 0;
  for (const rdma::ReportBody& report : server_->reports) {
    timed += TimedIn(report);
    ns += report.latency_ns;
  }
  EXPECT_NEAR(static_cast<double>(timed), 100, 40);
  // Virtual time: a GET takes a few steps.
  EXPECT_GE(ns, timed * 50'000);
  EXPECT_LE(ns, timed * 5'000'000);
}

TEST_F(ClientReportTest, ReplacementServerReceivesOnlyItsOwnGets) {
  Start();
  for (int i = 0; i < 10; ++i) ASSERT_TRUE(Get("key1").ok());
  KillServer();
  StartWatchedServer(2);
  RunFor(absl::Seconds(5));
  BecomeReady();
  ASSERT_TRUE(Get("key2").ok());
  CloseEngine();
  EXPECT_EQ(HitsTold(), 1u);
}

}  // namespace
}  // namespace osprey::client
