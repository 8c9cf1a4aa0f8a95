// Engines of a server that may lose the right to answer: nothing leaves without it.

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "gtest/gtest.h"
#include "rdma/reasons.h"
#include "tests/server/server_harness.h"

namespace osprey::server {
namespace {

using absl::StatusCode;

HarnessOptions Asking(std::function<bool()> may_answer, uint32_t pollers = 1) {
  HarnessOptions options;
  options.may_answer = std::move(may_answer);
  options.pollers = pollers;
  return options;
}

struct RightServer {
  explicit RightServer(uint32_t pollers = 1) : server(Asking([this] { return Ask(); }, pollers)) {}
  bool Ask() {
    ++asked;
    if (on_ask) on_ask();
    return has_right;
  }

  bool has_right = true;
  int asked = 0;
  std::function<void()> on_ask;
  ServerHarness server;
};

TEST(ServingRightTest, NoReplyLeavesWithoutIt) {
  const std::vector<std::function<std::string(RawClient&)>> frames = {
      [](RawClient& c) { return c.PutFrame(11, "key", "2"); },
      [](RawClient& c) { return c.GetFrame(11, "key"); },
      [](RawClient& c) { return c.GetFrame(11, "large"); },
      [](RawClient& c) { return c.GetFrame(11, "absent"); },
      [](RawClient& c) {
        return c.BatchFrame({c.GetFrame(11, "key"), c.GetFrame(12, "key")});
      },
      [](RawClient& c) { return c.RendezvousFrame(11, "new", Large(300000)); },
      [](RawClient& c) { return c.AppendFrame(11, "large", "tail"); },
      [](RawClient& c) { return c.FlushFrame(11, {}); },
      [](RawClient& c) { return c.EmptyFrame(rdma::Opcode::kPing, 11); },
      [](RawClient& c) { return c.EmptyFrame(rdma::Opcode::kStats, 11); },
      [](RawClient& c) { return c.PutFrame(1, "key", "1"); },  // it has the answer already
  };
  for (const auto& frame : frames) {
    RightServer right;
    RawClient client(right.server);
    client.Establish();
    ASSERT_EQ(client.Ask(client.PutFrame(1, "key", "1")).code, StatusCode::kOk);
    ASSERT_EQ(client.Ask(client.RendezvousFrame(2, "large", Large(200000))).code, StatusCode::kOk);
    const uint64_t sent = right.server.counters().sent_bytes;
    right.has_right = false;
    client.Send(frame(client));
    right.server.Settle();
    EXPECT_EQ(right.server.counters().sent_bytes, sent);
    EXPECT_FALSE(client.TakeReply().has_value());
    EXPECT_TRUE(client.disconnected());
    EXPECT_EQ(right.server.closed(CloseReason::kNotServing), 1u);
    EXPECT_EQ(right.server.engine().connections(), 0u);
    EXPECT_TRUE(right.server.log().empty()) << "a line for each client would flood the log";
  }
}

// Else a frozen server would answer with what was true before it froze.
TEST(ServingRightTest, ItIsAskedAfterTheDataWasLookedAt) {
  RightServer right;
  RawClient client(right.server);
  client.Establish();
  std::string stored;
  uint64_t gets = 0;
  right.on_ask = [&] {
    stored = right.server.Stored("key").value_or("-");
    gets = right.server.counters().gets;
  };
  EXPECT_EQ(client.Ask(client.PutFrame(1, "key", "1")).code, StatusCode::kOk);
  EXPECT_EQ(stored, "1");
  EXPECT_EQ(client.Ask(client.GetFrame(2, "key")).data, "1");
  EXPECT_EQ(gets, 1u);
}

// Of a client with 4 credits.
void LeaveRepliesWaiting(RightServer& right, RawClient& client) {
  client.Establish();
  client.set_asleep(true);
  for (uint64_t i = 1; i <= 6; ++i) client.Send(client.EmptyFrame(rdma::Opcode::kPing, i));
  right.server.Settle();
}

// They wait until the client takes frames again.
TEST(ServingRightTest, RepliesThatWaitForCreditsAreDropped) {
  RightServer right;
  RawClient client(right.server, {.receive_credits = 4});
  LeaveRepliesWaiting(right, client);
  const uint64_t sent = right.server.counters().sent_bytes;
  ASSERT_EQ(right.server.closed(CloseReason::kNotServing), 0u);
  right.has_right = false;
  client.set_asleep(false);
  right.server.Settle();
  EXPECT_EQ(right.server.counters().sent_bytes, sent);
  EXPECT_LT(client.replies(), 6u) << "none of them waited";
  EXPECT_EQ(right.server.closed(CloseReason::kNotServing), 1u);
  EXPECT_TRUE(client.disconnected());
}

// They would wait for as long as a client that takes no frames may.
TEST(ServingRightTest, AnEndWithoutItWaitsForNoReplies) {
  for (const bool has_right : {true, false}) {
    RightServer right;
    RawClient client(right.server, {.receive_credits = 4});
    LeaveRepliesWaiting(right, client);
    right.has_right = has_right;
    right.server.engine().Stop(right.server.now());
    right.server.Settle();
    EXPECT_EQ(right.server.engine().done(), !has_right);
  }
}

// The server's other shards would wait, and the next server with this one's data.
TEST(ServingRightTest, AnEndWithoutItWaitsForNoConnection) {
  for (const bool has_right : {true, false}) {
    RightServer right;
    RawClient client(right.server);
    client.Establish();
    right.server.network().HoldEnd(right.server.network().Peer(client.id()));
    right.has_right = has_right;
    right.server.engine().Stop(right.server.now());
    right.server.Advance(kDeposedStopMax() - absl::Milliseconds(50));
    EXPECT_FALSE(right.server.engine().done());
    right.server.Advance(absl::Milliseconds(100));
    EXPECT_EQ(right.server.engine().done(), !has_right);
    right.server.Advance(kStopMax());
    EXPECT_TRUE(right.server.engine().done());
  }
}

TEST(ServingRightTest, RequestsToConnectAreRejectedMeanwhile) {
  for (const uint32_t pollers : {1u, 2u}) {
    RightServer right(pollers);
    right.has_right = false;
    RawClient client(right.server);
    client.Connect();
    right.server.Settle();
    ASSERT_TRUE(client.disconnected());
    EXPECT_EQ(ReasonOf(client.why_disconnected()), Reason::kNotServing);
    EXPECT_TRUE(absl::StrContains(client.why_disconnected().message(), "not its shard's primary"));
    EXPECT_EQ(right.server.counters().connections_rejected, 1u);
    right.has_right = true;
    client.Establish();
    EXPECT_EQ(client.Ask(client.PutFrame(1, "key", "1")).code, StatusCode::kOk);
  }
}

TEST(ServingRightTest, AClientThatConnectedBeforeGetsNoWelcome) {
  RightServer right;
  RawClient client(right.server);
  client.Connect();
  right.server.Settle();
  ASSERT_TRUE(client.connected());
  right.has_right = false;
  client.Hello();
  right.server.Settle();
  EXPECT_FALSE(client.welcomed());
  EXPECT_TRUE(client.disconnected());
  EXPECT_EQ(right.server.closed(CloseReason::kNotServing), 1u);
}

TEST(ServingRightTest, ALapseWithoutRequestsBreaksNoConnection) {
  RightServer right;
  RawClient client(right.server);
  client.Establish();
  right.has_right = false;
  right.server.Advance(absl::Seconds(1));
  right.has_right = true;
  EXPECT_FALSE(client.disconnected());
  EXPECT_EQ(client.Ask(client.PutFrame(1, "key", "1")).code, StatusCode::kOk);
}

}  // namespace
}  // namespace osprey::server
