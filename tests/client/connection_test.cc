// The engine's connection: opened, refused, lost, monitored and reopened, in virtual time.

#include <algorithm>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "rdma/errors.h"
#include "tests/client/client_engine_fixture.h"

namespace osprey {
namespace {

using client::ServerConnection;
using ::testing::HasSubstr;

TEST_F(ClientEngineTest, ConnectsAndReadsTheMap) {
  StartServer();
  StartEngine();
  EXPECT_EQ(state(), ServerConnection::State::kIdle);
  BecomeReady();
  EXPECT_EQ(engine_->counters().connects, 1u);
  EXPECT_EQ(server_->last_hello.resume_session, 0u);
  EXPECT_THAT(engine_->Describe(), HasSubstr("transport=fake"));
  EXPECT_THAT(engine_->Describe(), HasSubstr(kUri));
}

TEST_F(ClientEngineTest, BackoffGrowsWithoutAListenerAndKeepsTheReason) {
  StartEngine();
  int attempts = 0;
  ServerConnection::State last = ServerConnection::State::kIdle;
  for (int i = 0; i < 10000; ++i) {
    Step(absl::Milliseconds(1));
    if (state() == ServerConnection::State::kConnecting && last != state()) ++attempts;
    last = state();
  }
  // 10 ms doubled seven times reaches 1 s, each between a half and all of it: 10 s see about 7
  // short pauses and 8 to 18 long ones.
  EXPECT_GE(attempts, 12);
  EXPECT_LE(attempts, 30);
  EXPECT_EQ(ReasonOf(engine_->connection().last_error()), Reason::kNoListener);
  StartServer();
  ASSERT_TRUE(RunUntil([&] { return engine_->connection().ready(); }, absl::Seconds(2)));
}

TEST_F(ClientEngineTest, UnansweredConnectTimesOutAndIsRetried) {
  StartServer();
  server_->accepts = false;
  StartEngine();
  RunFor(ServerConnection::kAttemptMax() + absl::Milliseconds(5));
  EXPECT_EQ(ReasonOf(engine_->connection().last_error()), Reason::kConnectTimeout);
  server_->accepts = true;
  BecomeReady();
}

// When the network is back, an attempt is under way or begins soon.
TEST_F(ClientEngineTest, BackoffStaysShortAfterUnansweredConnects) {
  StartServer();
  server_->accepts = false;
  StartEngine();
  RunFor(absl::Seconds(60));  // pauses would have reached their longest
  absl::Duration longest, pause;
  for (int i = 0; i < 20000; ++i) {
    pause = state() == ServerConnection::State::kBackoff ? pause + absl::Milliseconds(1)
                                                         : absl::ZeroDuration();
    longest = std::max(longest, pause);
    RunFor(absl::Milliseconds(1));
  }
  EXPECT_LE(longest, absl::Milliseconds(20));
  server_->accepts = true;
  const absl::Time back = now_;
  ASSERT_TRUE(RunUntil([&] { return engine_->connection().ready(); }, absl::Seconds(10)));
  EXPECT_LE(now_ - back, ServerConnection::kAttemptMax() + absl::Milliseconds(100));
}

TEST_F(ClientEngineTest, AnAttemptWithoutAWelcomeEndsAndIsMadeAgain) {
  StartServer();
  server_->welcomes = false;
  StartEngine();
  ASSERT_TRUE(RunUntil([&] { return state() == ServerConnection::State::kGreeting; }));
  RunFor(ServerConnection::kAttemptMax() + absl::Milliseconds(5));
  EXPECT_EQ(ReasonOf(engine_->connection().last_error()), Reason::kConnectTimeout);
  server_->welcomes = true;
  BecomeReady();
  EXPECT_GE(server_->hellos, 2);
}

TEST_F(ClientEngineTest, AMapThatCannotBeReadEndsTheAttempt) {
  StartServer();
  StartEngine();
  network_.before_reads = [&](rdma::ConnectionId reader) { network_.HoldReads(reader, true); };
  ASSERT_TRUE(RunUntil([&] { return state() == ServerConnection::State::kMapping; }));
  RunFor(ServerConnection::kAttemptMax() + absl::Milliseconds(5));
  EXPECT_NE(state(), ServerConnection::State::kMapping);
  network_.before_reads = nullptr;
  BecomeReady();
}

TEST_F(ClientEngineTest, ARestartedServerIsFollowedIntoItsNextLife) {
  StartServer(1);
  StartEngine();
  BecomeReady();
  ASSERT_TRUE(Put("planet", "saturn").ok());
  KillServer();
  StartServer(2);
  ASSERT_TRUE(Put("moon", "titan").ok());
  EXPECT_EQ(Get("moon")->bytes, "titan");
  EXPECT_TRUE(absl::IsNotFound(Get("planet").status()));
  EXPECT_EQ(server_->last_hello.resume_incarnation,
            1u);  // it asked to resume; the new server has no such session
  EXPECT_EQ(engine_->counters().connects, 2u);
}

TEST_F(ClientEngineTest, DisconnectNoticeIsAnsweredByLeavingAndComingBack) {
  StartServer();
  StartEngine();
  BecomeReady();
  server_->SendDisconnectNotice();
  ASSERT_TRUE(RunUntil([&] { return !engine_->connection().ready(); }));
  EXPECT_EQ(ReasonOf(engine_->connection().last_error()), Reason::kShuttingDown);
  BecomeReady();
  EXPECT_EQ(engine_->counters().connects, 2u);
}

TEST_F(ClientEngineTest, AnswersUnderWayAreAwaitedAfterDisconnectNotice) {
  StartServer();
  StartEngine();
  BecomeReady();
  server_->answers = false;
  Outcome<uint64_t> put;
  ASSERT_TRUE(StartPut("planet", "saturn", put).ok());
  ASSERT_TRUE(RunUntil([&] { return server_->waiting() == 1; }));
  server_->SendDisconnectNotice();
  ASSERT_TRUE(RunUntil([&] { return state() == ServerConnection::State::kLeaving; }));
  RunFor(absl::Milliseconds(5));
  EXPECT_EQ(state(), ServerConnection::State::kLeaving);
  server_->answers = true;
  ASSERT_TRUE(RunUntil([&] { return put.done(); }));
  EXPECT_TRUE(put.status().ok()) << put.status();
  EXPECT_EQ(server_->requests.size(), 1u);  // it was not sent twice
}

TEST_F(ClientEngineTest, AnIdleConnectionIsWatchedWithoutWakingTheServer) {
  StartServer();
  StartEngine();
  BecomeReady();
  const uint64_t before = network_.reads_executed();
  RunFor(absl::Seconds(20), absl::Milliseconds(10));
  EXPECT_TRUE(engine_->connection().ready());
  EXPECT_GE(network_.reads_executed() - before, 15u);
  EXPECT_LE(network_.reads_executed() - before, 25u);
  EXPECT_TRUE(server_->requests.empty());
}

TEST_F(ClientEngineTest, AServerThatFallsSilentIsNoticedWithinABound) {
  StartServer();
  StartEngine();
  BecomeReady();
  network_.Cut(id());
  const absl::Time cut = now_;
  ASSERT_TRUE(RunUntil([&] { return !engine_->connection().ready(); }, absl::Seconds(10)));
  EXPECT_LE(now_ - cut, ServerConnection::kQuietMax() + ServerConnection::kSilenceMax() +
                            absl::Milliseconds(10));
  EXPECT_EQ(ReasonOf(engine_->connection().last_error()), Reason::kPeerGone);
  BecomeReady();
}

TEST_F(ClientEngineTest, ALongPauseOfTheApplicationDoesNotBreakAHealthyConnection) {
  StartServer();
  StartEngine();
  BecomeReady();
  Outcome<Value> get;
  ASSERT_TRUE(StartGet("absent", get, absl::Seconds(60)).ok());
  engine_->Poll(now_);  // posts its READ
  now_ += absl::Seconds(30);
  ASSERT_TRUE(RunUntil([&] { return get.done(); }));
  EXPECT_TRUE(absl::IsNotFound(get.status()));
  now_ += absl::Hours(1);
  EXPECT_TRUE(absl::IsNotFound(Get("absent").status()));
  EXPECT_EQ(engine_->counters().connects, 1u);
}

// The process is stopped within Poll, after Poll got the time. Answers that arrive meanwhile are
// found when it continues, and are too late.
TEST_F(ClientEngineTest, ReplyPolledAfterAStopPastTheDeadlineIsRejected) {
  const absl::Duration stop = absl::Seconds(5);
  // Shared with the engine, which reads its clocks even when it is closed.
  const auto stopped = std::make_shared<absl::Duration>();
  clock_ = coarse_clock_ = [this, stopped] { return now_ + *stopped; };
  StartServer();
  StartEngine();
  BecomeReady();
  ASSERT_TRUE(Put("planet", "saturn").ok());

  network_.before_reads = [&](rdma::ConnectionId) {
    *stopped = stop;
    network_.before_reads = nullptr;
  };
  Outcome<Value> get;
  ASSERT_TRUE(StartGet("planet", get).ok());
  ASSERT_TRUE(RunUntil([&] { return get.done(); }, absl::Milliseconds(10)));
  EXPECT_TRUE(absl::IsDeadlineExceeded(get.status())) << get.status();
  now_ += std::exchange(*stopped, absl::ZeroDuration());
  EXPECT_EQ(Get("planet")->bytes, "saturn");

  Outcome<uint64_t> put;
  const size_t requests = server_->requests.size();
  ASSERT_TRUE(StartPut("planet", "jupiter", put).ok());
  ASSERT_TRUE(RunUntil([&] { return server_->requests.size() > requests; }));
  *stopped = stop;
  Step();
  EXPECT_TRUE(absl::IsDeadlineExceeded(put.status())) << put.status();
  EXPECT_TRUE(MayBeApplied(put.status()));
  now_ += std::exchange(*stopped, absl::ZeroDuration());
  EXPECT_EQ(Get("planet")->bytes, "jupiter");
  EXPECT_TRUE(engine_->connection().ready());
}

// The process is stopped while it delivers answers that had arrived in time.
TEST_F(ClientEngineTest, ResultDeliveredAfterAStopPastTheDeadlineIsRejected) {
  const auto stopped = std::make_shared<absl::Duration>();
  clock_ = coarse_clock_ = [this, stopped] { return now_ + *stopped; };
  StartServer();
  StartEngine();
  BecomeReady();
  ASSERT_TRUE(Put("planet", "saturn").ok());

  constexpr int kGets = 40;
  constexpr int kToldByOneLook = 8;
  int told = 0, late = 0;
  const auto count = [&](const absl::Status& status) {
    late += absl::IsDeadlineExceeded(status);
    if (++told == 1) *stopped = absl::Seconds(5);
  };
  for (int i = 0; i < kGets; ++i) {
    const auto done = [&](absl::StatusOr<Value> value) { count(value.status()); };
    ASSERT_TRUE(engine_->start()
                    .Get(i % 2 == 0 ? "planet" : "none", true, now_ + absl::Seconds(1), done)
                    .ok());
  }
  ASSERT_TRUE(RunUntil([&] { return told > 0; }, absl::Milliseconds(10)));
  EXPECT_EQ(told, kGets);
  EXPECT_GE(late, kGets - kToldByOneLook);
  EXPECT_EQ(engine_->counters().hits + engine_->counters().misses,
            static_cast<uint64_t>(kGets - late));
  now_ += std::exchange(*stopped, absl::ZeroDuration());

  // Writes: their results are reported as unknown, though the server sent them.
  constexpr int kPuts = 16;  // as many as the server takes at once
  told = late = 0;
  int may_be_applied = 0;
  const auto done = [&](absl::StatusOr<uint64_t> version) {
    count(version.status());
    may_be_applied += MayBeApplied(version.status());
  };
  for (int i = 0; i < kPuts; ++i)
    ASSERT_TRUE(engine_->start().Put("planet", "mars", {}, now_ + absl::Seconds(1), done).ok());
  ASSERT_TRUE(RunUntil([&] { return told > 0; }));
  EXPECT_EQ(told, kPuts);
  EXPECT_GE(late, kPuts - kToldByOneLook);
  EXPECT_EQ(may_be_applied, late);
  now_ += std::exchange(*stopped, absl::ZeroDuration());
  EXPECT_EQ(Get("planet")->bytes, "mars");
}

TEST_F(ClientEngineTest, DeviceLossFailsPendingOperations) {
  StartServer();
  StartEngine();
  BecomeReady();
  server_->accepts = false;
  network_.LoseDevice("client");
  const absl::StatusOr<Value> get = Get("planet", absl::Milliseconds(100));
  EXPECT_TRUE(absl::IsUnavailable(get.status())) << get.status();
  EXPECT_THAT(std::string(get.status().message()), HasSubstr("device"));
}

// --- Hostile servers

struct BadWelcome {
  const char* name;
  std::function<void(rdma::FrameHeader&, rdma::WelcomeBody&)> tamper;
};

TEST_F(ClientEngineTest, AWelcomeThatCannotBeIsRefused) {
  const std::vector<BadWelcome> cases = {
      {"tiny region", [](auto&, auto& body) { body.region.length = 4096; }},
      {"endless region", [](auto&, auto& body) { body.region.length = uint64_t{1} << 62; }},
      {"region at the end of the world",
       [](auto&, auto& body) { body.region.address = ~uint64_t{0} - 5; }},
      {"region not exposed", [](auto&, auto& body) { body.region.key ^= 0x40; }},
      {"no incarnation", [](auto&, auto& body) { body.incarnation = 0; }},
      {"no session", [](auto& header, auto&) { header.session = 0; }},
      {"no requests", [](auto&, auto& body) { body.requests_max = 0; }},
      {"no values", [](auto&, auto& body) { body.value_bytes_max = 0; }},
      {"values beyond the layout",
       [](auto&, auto& body) { body.value_bytes_max = uint64_t{1} << 40; }},
      {"resumes what was not", [](auto&, auto& body) { body.resumed = 1; }},
      {"neither watched nor not", [](auto&, auto& body) { body.wants_reports = 2; }},
      {"magic", [](auto& header, auto&) { header.magic = 1; }},
      {"length", [](auto& header, auto&) { header.length += 1; }},
      {"opcode", [](auto& header, auto&) { header.opcode = 64; }},
      {"another incarnation than the region's", [](auto&, auto& body) { body.incarnation ^= 4; }},
  };
  for (const BadWelcome& bad : cases) {
    SCOPED_TRACE(bad.name);
    StartServer();
    server_->tamper_welcome = bad.tamper;
    StartEngine();
    RunFor(absl::Milliseconds(200), absl::Microseconds(100));
    EXPECT_FALSE(engine_->connection().ready());
    EXPECT_FALSE(engine_->connection().last_error().ok());
    EXPECT_GE(server_->hellos, 2);  // it was dropped, and tried again
    CloseEngine();
    KillServer();
  }
}

TEST_F(ClientEngineTest, HugeAllowancesAreCutToWhatWeKeepAccountOf) {
  StartServer();
  server_->tamper_welcome = [](auto&, auto& body) {
    body.requests_max = UINT32_MAX;
    body.eager_bytes_max = UINT32_MAX;
  };
  StartEngine();
  BecomeReady();
  EXPECT_LE(engine_->connection().terms().requests_max, client::Greeting::kRequestsMax);
  // A value longer than any frame still goes by rendezvous.
  const std::string value(100000, 'v');
  ASSERT_TRUE(Put("large", value).ok());
  EXPECT_EQ(Get("large")->bytes, value);
}

TEST_F(ClientEngineTest, RandomFramesCloseTheConnectionAndHarmNothing) {
  const uint64_t seed = std::random_device()();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937_64 random(seed);
  StartServer();
  StartEngine();
  BecomeReady();
  ASSERT_TRUE(Put("planet", "saturn").ok());
  for (int round = 0; round < 200; ++round) {
    // Mostly a valid header, so that the code behind its checks is reached.
    rdma::FrameHeader header;
    const uint8_t opcodes[] = {1, 2, 5, 16, 18, 64, 64, 64, 64, 200};
    header.opcode = opcodes[random() % 10];
    header.session = random() % 3 == 0 ? random() : server_->session();
    header.sequence = random() % 4;
    std::string frame(sizeof(header) + random() % 200, '\0');
    for (char& c : frame) c = static_cast<char>(random());
    header.length = static_cast<uint32_t>(frame.size() + (random() % 10 == 0 ? 1 : 0));
    std::memcpy(frame.data(), &header, sizeof(header));
    server_->Send(frame);
    RunFor(absl::Milliseconds(2), absl::Microseconds(100));
    const absl::StatusOr<Value> value = Get("planet", absl::Seconds(5));
    ASSERT_TRUE(value.ok()) << value.status();
    ASSERT_EQ(value->bytes, "saturn");
  }
  EXPECT_GT(engine_->counters().connects, 100u);
}

TEST_F(ClientEngineTest, AReplyThatWasNotAskedForClosesTheConnection) {
  StartServer();
  StartEngine();
  BecomeReady();
  for (const uint64_t sequence : {1, 99}) {  // answered before; never sent
    SCOPED_TRACE(sequence);
    ASSERT_TRUE(Put("planet", "saturn").ok());
    const uint64_t connects = engine_->counters().connects;
    server_->SendReply(server_->session(), sequence, {});
    ASSERT_TRUE(RunUntil([&] { return !engine_->connection().ready(); }));
    EXPECT_THAT(std::string(engine_->connection().last_error().message()), HasSubstr("protocol"));
    BecomeReady();
    EXPECT_EQ(engine_->counters().connects, connects + 1);
  }
}

TEST_F(ClientEngineTest, AReplyInTheNameOfAnotherSessionAnswersNothing) {
  StartServer();
  StartEngine();
  BecomeReady();
  server_->answers = false;
  Outcome<uint64_t> put;
  ASSERT_TRUE(StartPut("planet", "saturn", put).ok());
  ASSERT_TRUE(RunUntil([&] { return server_->waiting() == 1; }));
  // The sequence is waiting for an answer; only the session is wrong.
  server_->SendReply(server_->session() + 5, server_->sequences.back(), {});
  ASSERT_TRUE(RunUntil([&] { return !engine_->connection().ready(); }));
  EXPECT_FALSE(put.done());
  EXPECT_THAT(std::string(engine_->connection().last_error().message()), HasSubstr("protocol"));
  CloseEngine();  // while `put` exists to receive the result
  EXPECT_TRUE(absl::IsCancelled(put.status()));
}

TEST_F(ClientEngineTest, ClosingNotifiesTheServerAndLeavesNothingBehind) {
  StartServer();
  StartEngine();
  BecomeReady();
  CloseEngine();
  RunFor(absl::Milliseconds(10));
  EXPECT_EQ(network_.connections(), 0u);
}

}  // namespace
}  // namespace osprey
