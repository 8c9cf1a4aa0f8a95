// Broken connections: a write is applied exactly once, or not at all. Also the server's end.

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "rdma/errors.h"
#include "tests/server/server_harness.h"

namespace osprey::server {
namespace {

using absl::StatusCode;
using rdma::Opcode;

// --- Sessions ------------------------------------------------------------------------------------

TEST(ServerRecoveryTest, AWriteRepeatedOnTheSameConnectionIsAnsweredFromMemory) {
  ServerHarness server;
  RawClient client(server);
  client.Establish();
  const std::string put = client.PutFrame(1, "key", Large(100));
  const RawReply first = client.Ask(put);
  EXPECT_NE(first.body.slot, 0u);
  ASSERT_EQ(client.Ask(client.PutFrame(2, "key", "two")).code, StatusCode::kOk);
  const RawReply again = client.Ask(put);
  EXPECT_EQ(again.code, StatusCode::kOk);
  EXPECT_EQ(again.body.version, first.body.version);
  EXPECT_EQ(again.body.slot, first.body.slot);
  EXPECT_EQ(server.Stored("key"), "two");  // not applied twice
  EXPECT_EQ(server.counters().writes_repeated, 1);
}

TEST(ServerRecoveryTest, WriteWithALostReplyIsAppliedOnce) {
  ServerHarness server;
  RawClient client(server), other(server);
  client.Establish();
  other.Establish();
  client.Send(client.PutFrame(1, "key", "one"));
  client.Send(client.DeleteFrame(2, "gone"));
  server.engine().Poll(server.now());  // done, and the replies are on their way
  ASSERT_EQ(server.Stored("key"), "one");
  server.network().Break(client.id());
  server.Settle();
  ASSERT_TRUE(client.disconnected());
  ASSERT_EQ(client.replies(), 0);
  ASSERT_EQ(other.Ask(other.PutFrame(1, "key", "other's")).code, StatusCode::kOk);
  ASSERT_EQ(other.Ask(other.PutFrame(2, "gone", "other's")).code, StatusCode::kOk);

  const uint64_t session = client.session();
  client.Establish(session);
  EXPECT_EQ(client.welcome().resumed, 1);
  EXPECT_EQ(client.session(), session);
  EXPECT_EQ(client.Ask(client.PutFrame(1, "key", "one")).code, StatusCode::kOk);
  EXPECT_EQ(server.Stored("key"), "other's");
  // Failures are remembered as well: the delete found no key then, and must not delete one now.
  EXPECT_EQ(client.Ask(client.DeleteFrame(2, "gone")).code, StatusCode::kNotFound);
  EXPECT_EQ(server.Stored("gone"), "other's");
  EXPECT_EQ(server.counters().sessions_resumed, 1);
}

TEST(ServerRecoveryTest, AWriteThatCameWithTheEndIsApplied) {
  ServerHarness server;
  RawClient client(server);
  client.Establish();
  client.Send(client.IncrementFrame(1, "key", 1));
  client.transport().Disconnect(client.id());
  server.engine().Poll(server.now());
  EXPECT_EQ(server.engine().connections(), 0);
  EXPECT_EQ(server.Stored("key"), "1");
  server.Settle();
  client.Establish(client.session());
  EXPECT_EQ(client.Ask(client.IncrementFrame(1, "key", 1)).data, "1");
  EXPECT_EQ(server.Stored("key"), "1");
}

TEST(ServerRecoveryTest, WriteWithALostRequestIsApplied) {
  ServerHarness server;
  RawClient client(server);
  client.Establish();
  client.Send(client.PutFrame(1, "key", "one"));
  server.network().Break(client.id());
  server.Settle();
  ASSERT_EQ(server.Stored("key"), std::nullopt);
  client.Establish(client.session());
  ASSERT_EQ(client.welcome().resumed, 1);
  EXPECT_EQ(client.Ask(client.PutFrame(1, "key", "one")).code, StatusCode::kOk);
  EXPECT_EQ(server.Stored("key"), "one");
}

TEST(ServerRecoveryTest, AWriteBelowTheWindowIsRefusedAsUnknown) {
  ServerHarness server;
  RawClient client(server);
  client.Establish();
  ASSERT_EQ(client.Ask(client.PutFrame(1, "key", "one")).code, StatusCode::kOk);
  ASSERT_EQ(client.Ask(client.PutFrame(1 + kResultsKept, "key", "two")).code, StatusCode::kOk);
  EXPECT_EQ(client.Ask(client.PutFrame(1, "key", "one")).code, StatusCode::kUnknown);
  EXPECT_EQ(server.Stored("key"), "two");
  // Repeating a READ is harmless.
  EXPECT_EQ(client.Ask(client.GetFrame(1, "key")).data, "two");
}

TEST(ServerRecoveryTest, UnknownSessionsAndOtherIncarnationsGetANewSession) {
  ServerHarness server;
  RawClient client(server);
  client.Establish();
  const uint64_t session = client.session();
  server.network().Break(client.id());
  server.Settle();

  client.Establish(session, kIncarnation + 1);
  EXPECT_EQ(client.welcome().resumed, 0);
  EXPECT_NE(client.session(), session);
  server.network().Break(client.id());
  server.Settle();

  client.Establish(12345);
  EXPECT_EQ(client.welcome().resumed, 0);
  EXPECT_NE(client.session(), 12345);
  EXPECT_EQ(server.counters().sessions_refused, 2);
}

TEST(ServerRecoveryTest, ASessionIsKeptForAMinute) {
  ServerHarness server;
  RawClient client(server);
  client.Establish();
  const uint64_t session = client.session();
  server.network().Break(client.id());
  server.Settle();
  server.Advance(kSessionKept() - absl::Seconds(1), absl::Seconds(1));
  client.Establish(session);
  EXPECT_EQ(client.welcome().resumed, 1);
  server.network().Break(client.id());
  server.Settle();
  server.Advance(kSessionKept() + absl::Seconds(1), absl::Seconds(1));
  EXPECT_EQ(server.engine().sessions(), 0);
  client.Establish(session);
  EXPECT_EQ(client.welcome().resumed, 0);
}

TEST(ServerRecoveryTest, ADisconnectNoticeOfTheClientEndsItsSession) {
  ServerHarness server;
  RawClient client(server);
  client.Establish();
  const uint64_t session = client.session();
  client.Send(client.EmptyFrame(Opcode::kDisconnectNotice, 0));
  server.Settle();
  EXPECT_TRUE(client.disconnected());
  EXPECT_EQ(server.engine().sessions(), 0);
  client.Establish(session);
  EXPECT_EQ(client.welcome().resumed, 0);
}

TEST(ServerRecoveryTest, SessionsAreBoundedWhateverComesAndGoes) {
  HarnessOptions options;
  options.connections_max = 4;
  ServerHarness server(options);
  for (int i = 0; i < 50; ++i) {
    RawClient client(server);
    client.Establish();
    server.network().Break(client.id());
    server.Settle();
  }
  EXPECT_EQ(server.engine().sessions(), 8);
  EXPECT_EQ(server.engine().connections(), 0);
}

// --- W9: the old connection ends before its session goes on -------------------------------------

TEST(ServerRecoveryTest, ASessionGoesOnOnlyAfterItsOldConnectionHasEnded) {
  ServerHarness server;
  RawClient old_one(server), new_one(server);
  old_one.Establish();
  const rdma::ConnectionId old_end = server.network().Peer(old_one.id());
  // The old connection is half dead: nothing arrives, and neither end has noticed. A write is under
  // way in it.
  server.network().HoldReads(old_end, true);
  old_one.Send(old_one.RendezvousFrame(1, "key", Large(50000)));
  server.Settle();
  server.network().Cut(old_one.id());

  new_one.Connect();
  server.Settle();
  new_one.Hello(old_one.session(), kIncarnation);
  // The turn that takes the Hello disconnects the old one; its last event comes in a later turn.
  server.engine().Poll(server.now());
  EXPECT_EQ(server.closed(CloseReason::kSuperseded), 1);
  EXPECT_EQ(server.engine().connections(), 2);
  EXPECT_EQ(server.counters().sessions_resumed, 0);

  server.Settle();
  EXPECT_EQ(server.engine().connections(), 1);
  ASSERT_TRUE(new_one.welcomed());
  EXPECT_EQ(new_one.welcome().resumed, 1);
  EXPECT_EQ(new_one.session(), old_one.session());
  // Operations under way in the old connection have not taken effect, and may be executed now.
  EXPECT_EQ(server.Stored("key"), std::nullopt);
  EXPECT_EQ(new_one.Ask(new_one.RendezvousFrame(1, "key", Large(50000))).code, StatusCode::kOk);
  EXPECT_EQ(server.Stored("key"), Large(50000));
}

TEST(ServerRecoveryTest, FramesOfASupersededConnectionAreNotExecuted) {
  ServerHarness server;
  RawClient old_one(server), new_one(server);
  // Connections are polled in the order in which they were made: the Hello comes first, and the
  // frame of the old connection after it, in the same turn.
  new_one.Connect();
  server.Settle();
  old_one.Establish();
  new_one.Hello(old_one.session(), kIncarnation);
  old_one.Send(old_one.PutFrame(1, "key", "too late"));
  server.Settle();
  EXPECT_EQ(server.Stored("key"), std::nullopt);
  EXPECT_TRUE(old_one.disconnected());
  EXPECT_TRUE(new_one.welcomed());
}

TEST(ServerRecoveryTest, FramesThatCameBeforeTheirConnectionWasSupersededAreExecuted) {
  ServerHarness server;
  RawClient old_one(server), new_one(server);
  old_one.Establish();
  new_one.Connect();
  server.Settle();
  old_one.Send(old_one.PutFrame(1, "key", "in time"));
  new_one.Hello(old_one.session(), kIncarnation);
  server.Settle();
  EXPECT_EQ(server.Stored("key"), "in time");
  EXPECT_TRUE(old_one.disconnected());
  ASSERT_TRUE(new_one.welcomed());
  EXPECT_EQ(new_one.Ask(new_one.PutFrame(1, "key", "in time")).code, StatusCode::kOk);
  EXPECT_EQ(server.counters().writes_repeated, 1);
}

TEST(ServerRecoveryTest, AValueThatLandsAfterASupersessionIsNotWritten) {
  ServerHarness server;
  RawClient old_one(server), new_one(server);
  new_one.Connect();
  server.Settle();
  old_one.Establish();
  const rdma::ConnectionId old_end = server.network().Peer(old_one.id());
  server.network().HoldReads(old_end, true);
  old_one.Send(old_one.RendezvousFrame(1, "key", Large(50000)));
  server.Settle();
  // In one turn, in this order: the Hello, and the end of the old connection's READs.
  server.network().HoldReads(old_end, false);
  new_one.Hello(old_one.session(), kIncarnation);
  server.Settle();
  ASSERT_TRUE(new_one.welcomed());
  EXPECT_EQ(server.network().reads_executed(), 1);
  EXPECT_EQ(server.Stored("key"), std::nullopt);
  EXPECT_EQ(server.table().stats().item_bytes, 0);
  EXPECT_EQ(new_one.Ask(new_one.RendezvousFrame(1, "key", Large(50000))).code, StatusCode::kOk);
  EXPECT_EQ(server.Stored("key"), Large(50000));
}

TEST(ServerRecoveryTest, TheLatestOfTwoClaimantsGetsTheSession) {
  ServerHarness server;
  RawClient old_one(server), second(server), third(server);
  old_one.Establish();
  second.Connect();
  third.Connect();
  server.Settle();
  second.Hello(old_one.session(), kIncarnation);
  third.Hello(old_one.session(), kIncarnation);
  server.Settle();
  EXPECT_TRUE(second.disconnected());
  EXPECT_FALSE(second.welcomed());
  ASSERT_TRUE(third.welcomed());
  EXPECT_EQ(third.welcome().resumed, 1);
  EXPECT_EQ(server.engine().connections(), 1);
}

TEST(ServerRecoveryTest, AClaimantThatDiesLeavesTheSessionToTheNext) {
  ServerHarness server;
  RawClient old_one(server), second(server), third(server);
  old_one.Establish();
  second.Connect();
  server.Settle();
  second.Hello(old_one.session(), kIncarnation);
  server.engine().Poll(server.now());
  server.network().Break(second.id());
  server.Settle();
  EXPECT_EQ(server.engine().connections(), 0);
  third.Establish(old_one.session());
  EXPECT_EQ(third.welcome().resumed, 1);
}

// The request arrives, and its connection has ended before the value could be READ.
TEST(ServerRecoveryTest, AWriteThatItsConnectionDidNotOutliveIsNotAnswered) {
  ServerHarness server;
  RawClient client(server);
  client.Establish();
  const uint64_t session = client.session();
  ASSERT_EQ(client.Ask(client.PutFrame(1, "key", "before")).code, StatusCode::kOk);
  client.Send(client.RendezvousFrame(2, "key", Large(50000)));
  server.network().Break(client.id(), /*lose_frames=*/false);
  server.Settle();
  EXPECT_EQ(server.counters().puts, 2u) << "void unless the request arrived";
  EXPECT_EQ(server.counters().rendezvous, 0u) << "void unless Attach failed";
  EXPECT_EQ(server.Stored("key"), "before");

  client.Establish(session);
  ASSERT_EQ(client.welcome().resumed, 1);
  const RawReply reply = client.Ask(client.RendezvousFrame(2, "key", Large(50000)));
  EXPECT_EQ(reply.code, StatusCode::kOk) << reply.data;
  EXPECT_EQ(server.Stored("key"), Large(50000));
  EXPECT_EQ(server.counters().writes_repeated, 0u);
  // Once more, and it is answered from memory.
  const RawReply again = client.Ask(client.RendezvousFrame(2, "key", Large(50000)));
  EXPECT_EQ(again.code, StatusCode::kOk);
  EXPECT_EQ(again.body.version, reply.body.version);
  EXPECT_EQ(server.counters().writes_repeated, 1u);
}

// --- Clients that die in the middle of a large value ---------------------------------------------

// Breaks the connection at one point of a rendezvous. At every point, the table has the old value
// whole or the new one whole. The space of the other is free again.
class DyingClientTest : public testing::TestWithParam<int> {};

TEST_P(DyingClientTest, LeavesTheTableConsistentAndTheSpaceFree) {
  HarnessOptions options;
  options.network.read_bytes_max = 4096;
  options.region_bytes = 4 << 20;
  ServerHarness server(options);
  const std::string old_value = Large(200000), new_value = Large(200000, 'A');
  uint64_t session = 0;
  uint64_t item_bytes = 0;
  // Many times more than fit: a leak would exhaust the space.
  for (int round = 0; round < 60; ++round) {
    RawClient client(server);
    client.Establish(session);
    session = client.session();
    const uint64_t sequence = 2 * round + 1;
    ASSERT_EQ(client.Ask(client.RendezvousFrame(sequence, "key", old_value)).code, StatusCode::kOk)
        << round;
    if (round == 0) item_bytes = server.table().stats().item_bytes;
    client.Send(client.RendezvousFrame(sequence + 1, "key", new_value));
    for (int turn = 0; turn < GetParam(); ++turn) server.engine().Poll(server.now());
    server.network().Break(client.id());
    server.Settle();
    const std::optional<std::string> stored = server.Stored("key");
    ASSERT_TRUE(stored == old_value || stored == new_value) << round;
    ASSERT_EQ(server.table().stats().item_bytes, item_bytes) << round;
    ASSERT_EQ(server.engine().connections(), 0);

    // The client comes back and repeats it: now it is executed, once.
    RawClient again(server);
    again.Establish(session);
    ASSERT_EQ(again.welcome().resumed, 1);
    ASSERT_EQ(again.Ask(again.RendezvousFrame(sequence + 1, "key", new_value)).code,
              StatusCode::kOk);
    ASSERT_EQ(server.Stored("key"), new_value);
    server.network().Break(again.id());
    server.Settle();
    server.Advance(absl::Milliseconds(1100));  // dead items' space is in its grace period
  }
}
INSTANTIATE_TEST_SUITE_P(AfterTurns, DyingClientTest, testing::Range(0, 12));

TEST(ServerRecoveryTest, AReadThatFailsEndsTheRendezvousAndTheConnection) {
  ServerHarness server;
  RawClient client(server);
  client.Establish();
  server.network().FailNextReads(server.network().Peer(client.id()),
                                 absl::UnavailableError("retry exceeded"));
  client.Send(client.RendezvousFrame(1, "key", Large(50000)));
  server.Settle();
  EXPECT_TRUE(client.disconnected());
  EXPECT_EQ(server.Stored("key"), std::nullopt);
  EXPECT_EQ(server.table().stats().item_bytes, 0);
  EXPECT_EQ(server.counters().rendezvous_aborted, 1);
}

TEST(ServerRecoveryTest, ASourceThatWasNotExposedIsRefusedOrEndsThatConnectionAlone) {
  ServerHarness server;
  RawClient liar(server), other(server);
  liar.Establish();
  other.Establish();
  std::string frame = liar.RendezvousFrame(1, "key", Large(50000));
  // The rkey of PutBody::source.
  frame[sizeof(rdma::FrameHeader) + offsetof(rdma::PutBody, source) +
        offsetof(rdma::WireMemory, key)] ^= 0x40;
  liar.Send(frame);
  server.Settle();
  EXPECT_EQ(server.Stored("key"), std::nullopt);
  EXPECT_EQ(server.table().stats().item_bytes, 0);
  EXPECT_EQ(other.Ask(other.PutFrame(1, "key", "value")).code, StatusCode::kOk);
}

// --- The server's end ----------------------------------------------------------------------------

TEST(ServerStopTest, WithoutClientsItIsDoneAtOnce) {
  ServerHarness server;
  server.engine().Stop(server.now());
  EXPECT_TRUE(server.engine().done());
}

TEST(ServerStopTest, WhatIsUnderWayIsAnsweredThenDisconnectNoticeThenTheEnd) {
  ServerHarness server;
  RawClient client(server);
  client.Establish();
  const rdma::ConnectionId server_end = server.network().Peer(client.id());
  server.network().HoldReads(server_end, true);
  client.Send(client.RendezvousFrame(1, "key", Large(50000)));
  server.Settle();
  server.engine().Stop(server.now());
  server.Advance(absl::Milliseconds(300));
  EXPECT_FALSE(client.got_disconnect_notice());
  EXPECT_FALSE(client.disconnected());
  server.network().HoldReads(server_end, false);
  server.Settle();
  EXPECT_EQ(client.TakeReply()->code, StatusCode::kOk);
  EXPECT_EQ(server.Stored("key"), Large(50000));
  EXPECT_TRUE(client.got_disconnect_notice());
  EXPECT_FALSE(client.disconnected());
  EXPECT_FALSE(server.engine().done());
  server.Advance(kDisconnectNoticeGrace() + absl::Milliseconds(50));
  EXPECT_TRUE(client.disconnected());
  EXPECT_TRUE(server.engine().done());
}

TEST(ServerStopTest, NewRequestsAreRefusedOldOnesAnsweredFromMemory) {
  ServerHarness server;
  RawClient client(server);
  client.Establish();
  const RawReply first = client.Ask(client.PutFrame(1, "key", "one"));
  server.engine().Stop(server.now());
  server.Settle();
  ASSERT_TRUE(client.got_disconnect_notice());
  const RawReply refused = client.Ask(client.PutFrame(2, "key", "two"));
  EXPECT_EQ(refused.code, StatusCode::kUnavailable);
  EXPECT_NE(refused.data.find("not applied"), std::string::npos);
  EXPECT_EQ(server.Stored("key"), "one");
  // It would be wrong to report this one as not applied.
  const RawReply again = client.Ask(client.PutFrame(1, "key", "one"));
  EXPECT_EQ(again.code, StatusCode::kOk);
  EXPECT_EQ(again.body.version, first.body.version);
}

TEST(ServerStopTest, NewConnectionsAreRefused) {
  ServerHarness server;
  RawClient client(server), late(server), silent(server);
  client.Establish();
  silent.Connect();
  server.Settle();
  server.engine().Stop(server.now());
  late.Connect();
  server.Settle();
  ASSERT_TRUE(late.disconnected());
  EXPECT_EQ(ReasonOf(late.why_disconnected()), Reason::kShuttingDown);
  EXPECT_TRUE(silent.disconnected());
}

TEST(ServerStopTest, AStuckClientDelaysTheEndByABoundedTime) {
  ServerHarness server;
  RawClient client(server);
  client.Establish();
  server.network().HoldReads(server.network().Peer(client.id()), true);
  client.Send(client.RendezvousFrame(1, "key", Large(50000)));
  server.Settle();
  server.engine().Stop(server.now());
  server.Advance(kDrainMax() + absl::Milliseconds(100));
  EXPECT_TRUE(server.engine().done());
  EXPECT_EQ(server.Stored("key"), std::nullopt);
  EXPECT_EQ(server.table().stats().item_bytes, 0);
}

TEST(ServerStopTest, AnEngineThatIsDestroyedInTheMiddleGivesEverythingBack) {
  ServerHarness server;
  RawClient client(server);
  client.Establish();
  server.network().HoldReads(server.network().Peer(client.id()), true);
  client.Send(client.RendezvousFrame(1, "key", Large(50000)));
  server.Settle();
  // ~ServerHarness, with the READ under way; asan and assertions check it.
}

TEST(ServerStopTest, ALostDeviceIsAFailure) {
  ServerHarness server;
  EXPECT_TRUE(server.engine().failure().ok());
  server.network().LoseDevice("server");
  server.Settle();
  EXPECT_EQ(server.engine().failure().code(), StatusCode::kUnavailable);
  EXPECT_THAT(server.engine().failure().message(),
              testing::HasSubstr("(it begins empty, as there is no"));
}

TEST(ServerStopTest, ALostDeviceLosesNothingOfADataDirectory) {
  struct NoLog final : WriteLog {
    bool AwaitsSync() const override { return false; }
    absl::StatusOr<std::unique_ptr<ValueUpload>> BeginUpload(uint32_t, absl::string_view,
                                                             uint64_t) override {
      return std::unique_ptr<ValueUpload>();
    }
    absl::Status Commit() override { return absl::OkStatus(); }
    absl::Status Refusal() const override { return absl::OkStatus(); }
  };
  NoLog log;
  HarnessOptions options;
  options.write_log = &log;
  ServerHarness server(options);
  server.network().LoseDevice("server");
  server.Settle();
  EXPECT_THAT(server.engine().failure().message(),
              testing::HasSubstr("(it begins with the keys of its"));
}

// --- Another incarnation -------------------------------------------------------------------------

TEST(ServerIncarnationTest, AConditionLearnedInAnotherIncarnationIsNotMet) {
  std::vector<uint64_t> learned;
  // Neighbours, and some that differ in one bit.
  for (uint64_t incarnation : {uint64_t{1}, uint64_t{2}, uint64_t{3}, uint64_t{1} << 17 | 1,
                               uint64_t{1} << 63 | 1, UINT64_MAX}) {
    SCOPED_TRACE(absl::StrCat("incarnation ", incarnation));
    HarnessOptions options;
    options.incarnation = incarnation;
    ServerHarness server(options);
    RawClient client(server);
    client.Establish();
    uint64_t sequence = 0;
    // The first write of each.
    const RawReply lock = client.Ask(client.PutFrame(++sequence, "lock", "owner"));
    ASSERT_EQ(lock.code, StatusCode::kOk);
    for (uint64_t version : learned) {
      EXPECT_EQ(client.Ask(client.DeleteFrame(++sequence, "lock", version)).reason,
                Reason::kWrongVersion);
      const std::string put = client.PutIfFrame(++sequence, "lock", "another",
                                                rdma::WireCondition::kVersionIs, version);
      EXPECT_EQ(client.Ask(put).reason, Reason::kWrongVersion);
    }
    EXPECT_EQ(server.Stored("lock"), "owner");
    learned.push_back(lock.body.version);
  }
}

}  // namespace
}  // namespace osprey::server
