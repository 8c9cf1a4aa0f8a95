// The server's answers, admission, and disconnects. Sessions and broken connections:
// recovery_test.cc.

#include "server/engine/engine.h"

#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "index/layout/layout.h"
#include "rdma/errors.h"
#include "tests/server/server_harness.h"

namespace osprey::server {
namespace {

using absl::StatusCode;
using rdma::Opcode;
using rdma::WireCondition;

TEST(ServerEngineTest, WelcomeHasWhatAClientNeeds) {
  ServerHarness server;
  RawClient client(server);
  client.Establish();
  EXPECT_EQ(client.welcome().incarnation, kIncarnation);
  EXPECT_EQ(client.welcome().resumed, 0);
  EXPECT_EQ(client.welcome().value_bytes_max, 1 << 20);
  EXPECT_NE(client.session(), 0);
  EXPECT_EQ(client.welcome().requests_max, kRequestsMax);
  EXPECT_EQ(client.welcome().eager_bytes_max,
            8192 - sizeof(rdma::FrameHeader) - sizeof(rdma::PutBody));
  // The region is READable, and starts with its header.
  const std::string header = client.Read(0, sizeof(index::RegionHeader));
  ASSERT_EQ(header.size(), sizeof(index::RegionHeader));
  uint64_t incarnation = 0;
  std::memcpy(&incarnation, header.data() + offsetof(index::RegionHeader, incarnation), 8);
  EXPECT_EQ(incarnation, kIncarnation);
}

TEST(ServerEngineTest, NothingIsReadableBeforeTheWelcome) {
  ServerHarness server;
  RawClient first(server);
  first.Establish();
  RawClient client(server);
  client.Connect();
  server.Settle();
  ASSERT_TRUE(client.connected());
  // The rkey is known from the other client; the server has granted this one nothing.
  EXPECT_FALSE(client.transport()
                   .Attach(client.id(), {first.welcome().region.address,
                                         first.welcome().region.length, first.welcome().region.key})
                   .ok());
}

TEST(ServerEngineTest, PutGetAndDeleteDoWhatTheySay) {
  ServerHarness server;
  RawClient client(server);
  client.Establish();
  const RawReply put = client.Ask(client.PutFrame(1, "key", "value"));
  EXPECT_EQ(put.code, StatusCode::kOk);
  EXPECT_EQ(put.sequence, 1);
  EXPECT_GT(put.body.version, 0);
  EXPECT_EQ(server.Stored("key"), "value");

  const RawReply get = client.Ask(client.GetFrame(2, "key"));
  EXPECT_EQ(get.code, StatusCode::kOk);
  EXPECT_EQ(get.data, "value");
  EXPECT_EQ(get.body.value_length, 5);
  EXPECT_EQ(get.body.version, put.body.version);

  const RawReply deleted = client.Ask(client.DeleteFrame(3, "key"));
  EXPECT_EQ(deleted.code, StatusCode::kOk);
  EXPECT_GT(deleted.body.version, put.body.version);
  EXPECT_EQ(server.Stored("key"), std::nullopt);
  EXPECT_EQ(client.Ask(client.GetFrame(4, "key")).code, StatusCode::kNotFound);
  EXPECT_EQ(client.Ask(client.DeleteFrame(5, "key")).code, StatusCode::kNotFound);
}

TEST(ServerEngineTest, TheEmptyValueIsAValue) {
  ServerHarness server;
  RawClient client(server);
  client.Establish();
  EXPECT_EQ(client.Ask(client.PutFrame(1, "key", "")).code, StatusCode::kOk);
  const RawReply get = client.Ask(client.GetFrame(2, "key"));
  EXPECT_EQ(get.code, StatusCode::kOk);
  EXPECT_EQ(get.data, "");
}

TEST(ServerEngineTest, ConditionsAreCheckedAndReturnThePresentVersion) {
  ServerHarness server;
  RawClient client(server);
  client.Establish();
  const uint64_t version = client.Ask(client.PutFrame(1, "key", "one")).body.version;
  const RawReply absent = client.Ask(client.PutIfFrame(2, "key", "two", WireCondition::kAbsent, 0));
  EXPECT_EQ(absent.code, StatusCode::kAlreadyExists);
  EXPECT_EQ(absent.body.version, version);
  const RawReply wrong =
      client.Ask(client.PutIfFrame(3, "key", "two", WireCondition::kVersionIs, version + 1));
  EXPECT_EQ(wrong.code, StatusCode::kFailedPrecondition);
  EXPECT_EQ(wrong.body.version, version);
  EXPECT_EQ(server.Stored("key"), "one");
  EXPECT_EQ(client.Ask(client.PutIfFrame(4, "key", "two", WireCondition::kVersionIs, version)).code,
            StatusCode::kOk);
  EXPECT_EQ(server.Stored("key"), "two");
}

TEST(ServerEngineTest, PingIsAnsweredAndStatsHaveTransportTableAndRequests) {
  ServerHarness server;
  RawClient client(server);
  client.Establish();
  client.Ask(client.PutFrame(1, "key", "value"));
  client.Ask(client.GetFrame(2, "nothing"));
  EXPECT_EQ(client.Ask(client.EmptyFrame(Opcode::kPing, 3)).code, StatusCode::kOk);
  const RawReply stats = client.Ask(client.EmptyFrame(Opcode::kStats, 4));
  EXPECT_EQ(stats.code, StatusCode::kOk);
  const std::string text = "\n" + stats.data;
  for (const char* line :
       {"transport=fake", "device=server", "keys=1", "requests=2", "requests_put=1",
        "requests_get=1", "requests_ping=1", "requests_stats=1", "connections=1", "sessions=1",
        "answers_not_found=1", "batches=0", "splits=0", "compaction_items=0",
        "region_bytes=16777216", "poll=none", "liveness_reads=0"}) {
    EXPECT_NE(text.find(absl::StrCat("\n", line, "\n")), std::string::npos)
        << line << " is not in:" << text;
  }
}

TEST(ServerEngineTest, TheLongestEagerValueComesBackByItsSlotWhenItFitsNoReply) {
  ServerHarness server;
  RawClient client(server);
  client.Establish();
  // A reply has 40 bytes of body, a put 56. So a value that fits an eager put fits a reply.
  const std::string value = Large(client.welcome().eager_bytes_max - 3);
  ASSERT_EQ(client.Ask(client.PutFrame(1, "key", value)).code, StatusCode::kOk);
  EXPECT_EQ(client.Ask(client.GetFrame(2, "key")).data, value);
}

// --- Malformed frames ----------------------------------------------------------------------------

TEST(ServerEngineTest, AMalformedFrameEndsThatConnectionAndNoOther) {
  ServerHarness server;
  RawClient good(server);
  good.Establish();
  int closed = 0;
  const auto expect_closed = [&](auto make_frame, const char* what) {
    RawClient bad(server);
    bad.Establish();
    bad.Send(make_frame(bad));
    server.Settle();
    EXPECT_TRUE(bad.disconnected()) << what;
    EXPECT_EQ(server.closed(CloseReason::kMalformed), ++closed) << what;
    EXPECT_FALSE(good.disconnected()) << what;
  };
  expect_closed([](RawClient&) { return std::string("x"); }, "short");
  expect_closed([](RawClient&) { return std::string(100, 'x'); }, "no magic");
  expect_closed([](RawClient& c) { return c.PutFrame(1, "", "value"); }, "empty key");
  expect_closed(
      [](RawClient& c) { return c.PutFrame(1, std::string(rdma::kKeyBytesMax + 1, 'k'), ""); },
      "long key");
  expect_closed([](RawClient& c) { return c.PutFrame(0, "key", "value"); }, "no sequence");
  expect_closed([](RawClient& c) { return c.PutFrame(1, "key", "value") + "!"; }, "too long");
  expect_closed([](RawClient& c) { return c.GetFrame(1, ""); }, "empty key");
  expect_closed([](RawClient& c) { return c.DeleteFrame(1, ""); }, "empty key");
  expect_closed([](RawClient& c) { return c.EmptyFrame(Opcode::kReply, 1); }, "a reply");
  expect_closed([&](RawClient&) { return good.PutFrame(1, "key", "value"); }, "another's session");
  expect_closed(
      [](RawClient& c) {
        c.Hello();
        return c.EmptyFrame(Opcode::kPing, 1);
      },
      "a second Hello");
  EXPECT_EQ(server.Stored("key"), std::nullopt);
  EXPECT_EQ(good.Ask(good.PutFrame(1, "key", "value")).code, StatusCode::kOk);
  EXPECT_FALSE(server.log().empty());
}

TEST(ServerEngineTest, ARequestBeforeHelloEndsTheConnection) {
  ServerHarness server;
  RawClient client(server);
  client.Connect();
  server.Settle();
  client.Send(std::string(rdma::EmptyMessage(Opcode::kPing, 1, 1).bytes().size(), '\0'));
  server.Settle();
  EXPECT_TRUE(client.disconnected());
  EXPECT_EQ(server.closed(CloseReason::kMalformed), 1);
  EXPECT_EQ(server.engine().sessions(), 0);
}

TEST(ServerEngineTest, ALivenessWordThatWasNotExposedEndsTheConnection) {
  ServerHarness server;
  RawClient client(server);
  client.Connect();
  server.Settle();
  rdma::HelloBody body;
  body.liveness = {0x1000, 8, 99, 0};
  const rdma::Message<rdma::HelloBody> hello(Opcode::kHello, 0, 0, body, 0);
  client.Send({reinterpret_cast<const char*>(hello.bytes().data()), hello.bytes().size()});
  server.Settle();
  EXPECT_TRUE(client.disconnected());
  EXPECT_FALSE(client.welcomed());
}

// --- Limits and time -----------------------------------------------------------------------------

TEST(ServerEngineTest, ConnectionAboveTheLimitIsRefusedUntilOneCloses) {
  HarnessOptions options;
  options.connections_max = 2;
  ServerHarness server(options);
  auto first = std::make_unique<RawClient>(server);
  RawClient second(server), third(server);
  first->Establish();
  second.Connect();  // has sent nothing yet, but counts
  server.Settle();
  third.Connect();
  server.Settle();
  ASSERT_TRUE(third.disconnected());
  EXPECT_EQ(ReasonOf(third.why_disconnected()), Reason::kRefused);
  EXPECT_EQ(server.counters().connections_rejected, 1);
  EXPECT_EQ(server.engine().connections(), 2);
  first.reset();
  server.Settle();
  third.Establish();
}

TEST(ServerEngineTest, SilentConnectionIsClosedAfterTheHelloTimeout) {
  ServerHarness server;
  RawClient client(server);
  client.Connect();
  server.Settle();
  server.Advance(kHelloTimeout() - absl::Milliseconds(100));
  EXPECT_FALSE(client.disconnected());
  server.Advance(absl::Milliseconds(200));
  EXPECT_TRUE(client.disconnected());
  EXPECT_EQ(server.closed(CloseReason::kHelloTimeout), 1);
  EXPECT_EQ(server.engine().connections(), 0);
}

TEST(ServerEngineTest, ASilentClientThatLivesStays) {
  ServerHarness server;
  RawClient client(server);
  client.Establish();
  server.Advance(absl::Seconds(30));
  EXPECT_FALSE(client.disconnected());
  // About one READ a second, and no request.
  EXPECT_GE(server.counters().liveness_reads, 25);
  EXPECT_LE(server.counters().liveness_reads, 31);
  EXPECT_EQ(server.counters().pings + server.counters().gets + server.counters().puts, 0);
}

TEST(ServerEngineTest, AClientThatVanishedIsNoticedWithinFourSeconds) {
  ServerHarness server;
  RawClient client(server);
  client.Establish();
  server.network().Cut(client.id());
  server.Advance(kSilenceMax() + kLivenessTimeout() - absl::Milliseconds(100));
  EXPECT_EQ(server.engine().connections(), 1);
  server.Advance(absl::Milliseconds(200));
  EXPECT_EQ(server.engine().connections(), 0);
  EXPECT_EQ(server.closed(CloseReason::kSilent), 1);
}

TEST(ServerEngineTest, ALivenessReadThatFailsEndsTheConnection) {
  ServerHarness server;
  RawClient client(server);
  client.Establish();
  server.network().FailNextReads(server.network().Peer(client.id()),
                                 absl::UnavailableError("retry exceeded"));
  server.Advance(kSilenceMax() + absl::Milliseconds(100));
  EXPECT_EQ(server.engine().connections(), 0);
}

TEST(ServerEngineTest, ClientThatReadsNoRepliesIsDisconnected) {
  ServerHarness server;
  RawClient greedy(server, {.receive_credits = 4}), other(server);
  greedy.Establish();
  other.Establish();
  greedy.set_asleep(true);
  for (uint64_t i = 1; i <= 6; ++i) greedy.Send(greedy.EmptyFrame(Opcode::kPing, i));
  server.Settle();
  EXPECT_EQ(server.engine().connections(), 2);  // it gets some time
  EXPECT_EQ(other.Ask(other.EmptyFrame(Opcode::kPing, 1)).code, StatusCode::kOk);
  server.Advance(kReplyBlockedMax() + absl::Milliseconds(100));
  EXPECT_EQ(server.engine().connections(), 1);
  EXPECT_EQ(server.closed(CloseReason::kBlocked), 1);
  EXPECT_EQ(other.Ask(other.EmptyFrame(Opcode::kPing, 2)).code, StatusCode::kOk);
}

// Its reply is queued while the table is held, and no earlier one waits.
TEST(ServerEngineTest, ReplyToAPutWaitsForACreditNoLongerThanOthers) {
  ServerHarness server;
  RawClient greedy(server, {.receive_credits = 4});
  greedy.Establish();
  greedy.set_asleep(true);
  uint64_t sequence = 0;
  while (greedy.transport().SendRoom(greedy.id()) > 0 && sequence < 4) {
    greedy.Send(greedy.EmptyFrame(Opcode::kPing, ++sequence));
    server.Settle();
  }
  ASSERT_EQ(sequence, 4u);
  greedy.Send(greedy.PutFrame(++sequence, "key", "value"));
  server.Settle();
  server.Advance(kReplyBlockedMax() - absl::Milliseconds(100));
  EXPECT_EQ(server.closed(CloseReason::kBlocked), 0);
  server.Advance(absl::Milliseconds(200));
  EXPECT_EQ(server.closed(CloseReason::kBlocked), 1);
}

TEST(ServerEngineTest, SlowClientThatTakesSomeRepliesStaysConnected) {
  ServerHarness server;
  RawClient slow(server, {.receive_credits = 2});
  slow.Establish();
  const size_t gets = 20;
  ASSERT_EQ(slow.Ask(slow.PutFrame(1, "key", Large(7000))).code, StatusCode::kOk);
  slow.set_asleep(true);
  std::vector<std::string> frames;
  for (uint64_t i = 2; i < 2 + gets; ++i) frames.push_back(slow.GetFrame(i, "key"));
  slow.Send(slow.BatchFrame(frames));
  server.Settle();
  for (int round = 0; round < 4; ++round) {
    server.Advance(kReplyBlockedMax() - absl::Milliseconds(200));
    const size_t replies = slow.replies();
    slow.set_asleep(false);
    server.Turn();
    server.Turn();
    slow.set_asleep(true);
    EXPECT_GT(slow.replies(), replies);
    ASSERT_LT(slow.replies(), gets);  // some always wait
  }
  EXPECT_EQ(server.closed(CloseReason::kBlocked), 0);
}

TEST(ServerEngineTest, FullWindowOfUnreadRepliesDelaysNoOtherClient) {
  ServerHarness server;
  RawClient greedy(server, {.receive_credits = 2}), other(server);
  greedy.Establish();
  other.Establish();
  const std::string value = Large(7000);
  ASSERT_EQ(other.Ask(other.PutFrame(1, "key", value)).code, StatusCode::kOk);
  greedy.set_asleep(true);
  std::vector<std::string> gets;
  for (uint64_t i = 1; i <= kRequestsMax; ++i) gets.push_back(greedy.GetFrame(i, "key"));
  greedy.Send(greedy.BatchFrame(gets));
  for (uint64_t i = 2; i < 100; ++i) {
    EXPECT_EQ(other.Ask(other.GetFrame(i, "key")).data, value);
    EXPECT_EQ(server.closed(CloseReason::kBlocked), 0);
  }
  server.Advance(kReplyBlockedMax() + absl::Milliseconds(100));
  EXPECT_EQ(server.closed(CloseReason::kBlocked), 1);
  EXPECT_EQ(other.Ask(other.GetFrame(100, "key")).data, value);
}

TEST(ServerEngineTest, RepliesThatWaitedForCreditsArriveInOrder) {
  ServerHarness server;
  RawClient client(server, {.receive_credits = 4});
  client.Establish();
  client.set_asleep(true);
  for (uint64_t i = 1; i <= 6; ++i) client.Send(client.EmptyFrame(Opcode::kPing, i));
  server.Settle();
  server.Advance(kReplyBlockedMax() / 2);
  client.set_asleep(false);
  server.Settle();
  ASSERT_EQ(client.replies(), 6);
  for (uint64_t i = 1; i <= 6; ++i) EXPECT_EQ(client.TakeReply()->sequence, i);
  EXPECT_FALSE(client.disconnected());
}

TEST(ServerEngineTest, MoreUnansweredRequestsThanAllowedEndTheConnection) {
  ServerHarness server;
  RawClient client(server, {.receive_credits = 4});
  client.Establish();
  client.set_asleep(true);
  uint64_t sequence = 0;
  // Four replies are sent, and as many as may be unanswered wait: one more is too many.
  for (uint32_t i = 0; i < 4 + kRequestsMax + 1; ++i) {
    EXPECT_EQ(server.closed(CloseReason::kBlocked), 0) << i;
    client.Send(client.EmptyFrame(Opcode::kPing, ++sequence));
    server.Settle();
  }
  client.Send(client.EmptyFrame(Opcode::kPing, ++sequence));
  server.Settle();
  EXPECT_EQ(server.closed(CloseReason::kBlocked), 1);
}

TEST(ServerEngineTest, OneTurnIsBoundedAndServesEveryConnection) {
  ServerHarness server;
  RawClient busy(server), other(server);
  busy.Establish();
  other.Establish();
  for (uint64_t i = 1; i <= 30; ++i) busy.Send(busy.EmptyFrame(Opcode::kPing, i));
  other.Send(other.EmptyFrame(Opcode::kPing, 1));
  server.engine().Poll(server.now());
  EXPECT_EQ(server.counters().pings, 31);
  server.Settle();
}

TEST(ServerEngineTest, TheTableGrowsBetweenRequestsAndThenTheServerSleeps) {
  ServerHarness server;
  RawClient client(server);
  client.Establish();
  const uint64_t segments = server.table().stats().segments;
  uint64_t sequence = 0;
  for (int round = 0; round < 200; ++round) {
    std::vector<std::string> puts;
    for (int i = 0; i < 80; ++i) {
      ++sequence;
      puts.push_back(client.PutFrame(sequence, absl::StrCat("key", sequence), "value"));
    }
    client.Send(client.BatchFrame(puts));
    server.Settle();  // fails if it does not settle
    ASSERT_EQ(client.replies(), 80);
    while (const std::optional<RawReply> reply = client.TakeReply()) {
      ASSERT_EQ(reply->code, StatusCode::kOk);
    }
  }
  EXPECT_GT(server.table().stats().splits, 3);
  EXPECT_GT(server.table().stats().segments, segments + 3);
  EXPECT_EQ(server.table().stats().keys, sequence);
  EXPECT_FALSE(server.engine().Poll(server.now()));
  EXPECT_TRUE(server.engine().Arm());
}

// Small values fill the region, then every second one is deleted: the holes are too short for large
// ones.
TEST(ServerEngineTest, ARegionFullOfHolesIsTidiedUpAndThenTheServerSleeps) {
  HarnessOptions options;
  options.region_bytes = 4 << 20;
  ServerHarness server(options);
  RawClient client(server);
  client.Establish();
  uint64_t sequence = 0, keys = 0;
  const auto key = [](uint64_t i) { return absl::StrCat("key", i); };
  while (client.Ask(client.PutFrame(++sequence, key(keys), Large(900))).code == StatusCode::kOk)
    ++keys;
  ASSERT_GT(keys, 2000);
  for (uint64_t i = 0; i < keys; i += 2)
    ASSERT_EQ(client.Ask(client.DeleteFrame(++sequence, key(i))).code, StatusCode::kOk);
  server.Advance(absl::Seconds(2));  // dead items' space is in its grace period
  for (int i = 0; i < 10; ++i) {
    const RawReply reply =
        client.Ask(client.RendezvousFrame(++sequence, absl::StrCat("large", i), Large(100000)));
    EXPECT_EQ(reply.code, StatusCode::kOk) << i;
  }
  EXPECT_GT(server.table().stats().compaction_items, 0);
  for (uint64_t i = 1; i < keys; i += 2) ASSERT_EQ(server.Stored(key(i)), Large(900)) << i;
  server.Settle();
  EXPECT_FALSE(server.engine().Poll(server.now()));
}

TEST(ServerEngineTest, AnIdleServerSleepsUntilItsNextTimer) {
  ServerHarness server;
  EXPECT_LE(server.engine().next_timer(), server.now()) << "the tables may have keys from before";
  (void)server.engine().Poll(server.now());
  EXPECT_TRUE(server.engine().Arm());
  EXPECT_EQ(server.engine().next_timer(), absl::InfiniteFuture());
  EXPECT_EQ(server.engine().fds().size(), 1);
  RawClient client(server);
  client.Establish();
  EXPECT_TRUE(server.engine().Arm());
  EXPECT_LE(server.engine().next_timer(), server.now() + kHelloTimeout());
  server.Advance(kHelloTimeout());
  EXPECT_LE(server.engine().next_timer(), server.now() + kSilenceMax());
  EXPECT_GT(server.engine().next_timer(), server.now());
  client.Send(client.EmptyFrame(Opcode::kPing, 1));
  EXPECT_FALSE(server.engine().Arm());
}

}  // namespace
}  // namespace osprey::server
