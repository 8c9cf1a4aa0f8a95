// A server's handling of its clients' GET statistics, valid or not.

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <limits>
#include <string>

#include "gtest/gtest.h"
#include "server/stats/client_gets.h"
#include "tests/server/server_harness.h"

namespace osprey::server {
namespace {

absl::Time At(absl::Duration time) { return absl::UnixEpoch() + absl::Hours(1) + time; }

rdma::ReportBody Everything(uint64_t count) {
  rdma::ReportBody body;
  const auto narrow = static_cast<uint32_t>(std::min<uint64_t>(count, UINT32_MAX));
  body.hits = body.misses = body.failures = body.reads = body.torn = body.rpc_gets = narrow;
  body.read_bytes = body.latency_ns = count;
  for (uint32_t& latency : body.latencies) latency = narrow;
  return body;
}

// --- The limit and the sums -----------------------------------------------------------

TEST(ReportLimitTest, WhatAClientCanHaveDoneIsLeftAsItIs) {
  ReportLimit limit(At(absl::ZeroDuration()));
  const rdma::ReportBody told = Everything(1'000'000'000);
  for (int second = 0; second < 3; ++second) {
    const rdma::ReportBody cut = limit.Cut(told, At(absl::Seconds(second)));
    EXPECT_EQ(std::memcmp(&cut, &told, sizeof(cut)), 0);
  }
}

TEST(ReportLimitTest, WhatItCannotHaveDoneIsCut) {
  ReportLimit limit(At(absl::ZeroDuration()));
  (void)limit.Cut(Everything(1), At(absl::ZeroDuration()));
  const rdma::ReportBody lies = Everything(std::numeric_limits<uint64_t>::max());
  const rdma::ReportBody cut = limit.Cut(lies, At(absl::Microseconds(1)));
  EXPECT_EQ(cut.hits, 1000u);
  EXPECT_EQ(cut.misses, 1000u);
  EXPECT_EQ(cut.failures, 1000u);
  EXPECT_EQ(cut.reads, 1000u);
  EXPECT_EQ(cut.torn, 1000u);
  EXPECT_EQ(cut.rpc_gets, 1000u);
  EXPECT_EQ(cut.read_bytes, 1000u * 1000u);
  EXPECT_EQ(cut.latency_ns, 1000u * 65536u);
  for (uint32_t latency : cut.latencies) EXPECT_EQ(latency, 1000u);
  // Immediately again: no work is left.
  EXPECT_EQ(limit.Cut(lies, At(absl::Microseconds(1))).hits, 0u);
  EXPECT_EQ(limit.Cut(lies, At(absl::ZeroDuration())).latency_ns, 0u);
}

TEST(ClientGetsTest, SumsSaturateInsteadOfWrapping) {
  ClientGets gets;
  rdma::ReportBody body;
  body.read_bytes = body.latency_ns = std::numeric_limits<uint64_t>::max();
  for (int i = 0; i < 5; ++i) gets.Add(body);
  EXPECT_EQ(gets.Counts().read_bytes, uint64_t{1} << 62);
  EXPECT_EQ(gets.Counts().latency_ns, uint64_t{1} << 62);
  EXPECT_EQ(gets.Counts().reports, 5u);
}

// --- The server -----------------------------------------------------------------------

class ServerReportTest : public testing::Test {
 protected:
  static HarnessOptions Watched(ClientGets* gets) {
    HarnessOptions options;
    options.client_gets = gets;
    return options;
  }
  static std::string ReportFrame(const RawClient& client, const rdma::ReportBody& body,
                                 uint64_t sequence = 0) {
    const rdma::Message<rdma::ReportBody> message(rdma::Opcode::kReport, client.session(), sequence,
                                                  body, 0);
    return std::string(reinterpret_cast<const char*>(message.bytes().data()),
                       message.bytes().size());
  }

  ClientGets gets_;
};

TEST_F(ServerReportTest, WelcomeRequestsReportsOnlyFromAWatchedServer) {
  ServerHarness plain, watched(Watched(&gets_));
  RawClient of_plain(plain), of_watched(watched);
  of_plain.Establish();
  of_watched.Establish();
  EXPECT_EQ(of_plain.welcome().wants_reports, 0u);
  EXPECT_EQ(of_watched.welcome().wants_reports, 1u);
}

TEST_F(ServerReportTest, ReportsAreSummedAndAreNoRequests) {
  ServerHarness server(Watched(&gets_));
  RawClient one(server), other(server);
  one.Establish();
  other.Establish();
  for (RawClient* client : {&one, &other, &one}) {
    client->Send(ReportFrame(*client, Everything(3)));
    server.Advance(absl::Seconds(1));
  }
  const ClientGetCounts counts = gets_.Counts();
  EXPECT_EQ(counts.reports, 3u);
  EXPECT_EQ(counts.hits, 9u);
  EXPECT_EQ(counts.misses, 9u);
  EXPECT_EQ(counts.failures, 9u);
  EXPECT_EQ(counts.reads, 9u);
  EXPECT_EQ(counts.read_bytes, 9u);
  EXPECT_EQ(counts.torn, 9u);
  EXPECT_EQ(counts.rpc_gets, 9u);
  EXPECT_EQ(counts.latency_ns, 9u);
  for (uint64_t latency : counts.latencies) EXPECT_EQ(latency, 9u);
  EXPECT_EQ(server.counters().report_frames, 3u);
  EXPECT_EQ(one.replies() + other.replies(), 0u);
  EXPECT_NE(one.Ask(one.EmptyFrame(rdma::Opcode::kStats, 1)).data.find("\nrequests=0\n"),
            std::string::npos);
  EXPECT_NE(one.Ask(one.EmptyFrame(rdma::Opcode::kStats, 2)).data.find("\nclient_get_hits=9\n"),
            std::string::npos);
}

TEST_F(ServerReportTest, OneMayComeAmongRequests) {
  ServerHarness server(Watched(&gets_));
  RawClient client(server);
  client.Establish();
  client.Send(client.BatchFrame({client.PutFrame(1, "key", "value"),
                                 ReportFrame(client, Everything(2)), client.GetFrame(2, "key")}));
  server.Settle();
  EXPECT_EQ(client.replies(), 2u);
  EXPECT_EQ(gets_.Counts().hits, 2u);
}

TEST_F(ServerReportTest, FalseReportsAreBoundedByPossibleWork) {
  ServerHarness server(Watched(&gets_));
  RawClient client(server);
  client.Establish();
  for (int i = 0; i < 1000; ++i) {
    client.Send(ReportFrame(client, Everything(std::numeric_limits<uint64_t>::max())));
    server.Settle();
  }
  EXPECT_FALSE(client.disconnected());
  EXPECT_EQ(gets_.Counts().reports, 1000u);
  EXPECT_LE(gets_.Counts().hits, 1'100'000'000u);
}

TEST_F(ServerReportTest, OneThatWasNotAskedForIsPassedOver) {
  ServerHarness server;
  RawClient client(server);
  client.Establish();
  client.Send(ReportFrame(client, Everything(1)));
  server.Settle();
  EXPECT_FALSE(client.disconnected());
  EXPECT_EQ(server.counters().report_frames, 1u);
}

TEST_F(ServerReportTest, MalformedOnesEndTheirConnection) {
  for (int wrong = 0; wrong < 3; ++wrong) {
    ServerHarness server(Watched(&gets_));
    RawClient client(server);
    client.Establish();
    std::string frame = ReportFrame(client, Everything(1), wrong == 0 ? 7 : 0);
    if (wrong == 1) frame.resize(frame.size() - 4);
    if (wrong == 2) frame.append(4, '\0');
    const auto length = static_cast<uint32_t>(frame.size());
    std::memcpy(frame.data() + offsetof(rdma::FrameHeader, length), &length, sizeof(length));
    client.Send(frame);
    server.Settle();
    EXPECT_TRUE(client.disconnected()) << wrong;
    EXPECT_EQ(server.closed(CloseReason::kMalformed), 1u) << wrong;
  }
  EXPECT_EQ(gets_.Counts().reports, 0u);
}

}  // namespace
}  // namespace osprey::server
