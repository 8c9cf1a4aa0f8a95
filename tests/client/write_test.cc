// Writes through the engine, in virtual time: their results when connections break, servers restart
// and answers are missing. A value's memory does not change while the server may READ it.

#include <deque>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/engine/engine.h"
#include "server/requests/tables.h"
#include "tests/client/client_engine_fixture.h"

namespace osprey {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

class ClientWriteTest : public ClientEngineTest {
 protected:
  void SetUp() override {
    StartServer();
    StartEngine();
    BecomeReady();
  }
  static std::string Text(const absl::Status& status) { return std::string(status.message()); }
};

TEST_F(ClientWriteTest, PutGetDeleteOfEverySize) {
  for (size_t bytes : {0, 1, 100, 1000, 1024, 1025, 5000, 65536, 1 << 20}) {
    const std::string key = absl::StrCat("key", bytes);
    std::string text(bytes, '\0');
    for (size_t i = 0; i < text.size(); ++i) text[i] = static_cast<char>(i * 31);
    const absl::StatusOr<uint64_t> version = Put(key, text);
    ASSERT_TRUE(version.ok()) << version.status();
    const absl::StatusOr<Value> value = Get(key);
    ASSERT_TRUE(value.ok()) << value.status();
    ASSERT_EQ(value->bytes, text);
    EXPECT_EQ(value->version, *version);
    Outcome<uint64_t> deleted;
    ASSERT_TRUE(engine_->start().Delete(key, {}, now_ + absl::Seconds(1), deleted.Callback()).ok());
    ASSERT_TRUE(RunUntil([&] { return deleted.done(); }));
    EXPECT_TRUE(deleted.status().ok());
    EXPECT_TRUE(absl::IsNotFound(Get(key).status()));
  }
  EXPECT_EQ(server_->rendezvous_mismatches, 0);
  EXPECT_EQ(engine_->counters().writes, 18u);
}

TEST_F(ClientWriteTest, ValuesThatFitTheFrameTravelInItAndLongerOnesAreFetched) {
  ASSERT_TRUE(Put("k", std::string(server_->eager_bytes_max - 1, 'e')).ok());
  EXPECT_EQ(server_->rendezvous_values.size(), 0u);
  ASSERT_TRUE(Put("k", std::string(server_->eager_bytes_max, 'r')).ok());
  EXPECT_EQ(server_->rendezvous_values.size(), 1u);
}

TEST_F(ClientWriteTest, ConditionsAreKeptAndTheirErrorsSayWhatIsThere) {
  WriteOptions absent;
  absent.if_absent = true;
  const absl::StatusOr<uint64_t> first = Put("planet", "saturn", absent);
  ASSERT_TRUE(first.ok());
  const absl::Status again = Put("planet", "mars", absent).status();
  EXPECT_TRUE(absl::IsAlreadyExists(again)) << again;
  EXPECT_THAT(Text(again), HasSubstr(absl::StrCat("present version ", *first)));
  WriteOptions version;
  version.if_version = *first + 1;
  EXPECT_TRUE(absl::IsFailedPrecondition(Put("planet", "mars", version).status()));
  version.if_version = *first;
  EXPECT_TRUE(Put("planet", "mars", version).ok());
  EXPECT_EQ(Get("planet")->bytes, "mars");
  EXPECT_TRUE(absl::IsNotFound(Put("star", "vega", version).status()));
}

TEST_F(ClientWriteTest, BadArgumentsAreRefusedWithTheirBound) {
  Outcome<uint64_t> put;
  EXPECT_TRUE(absl::IsInvalidArgument(StartPut("", "v", put)));
  EXPECT_THAT(Text(StartPut(std::string(4097, 'k'), "v", put)), HasSubstr("4096"));
  const absl::Status large = StartPut("k", std::string((1 << 20) + 1, 'v'), put);
  EXPECT_TRUE(absl::IsInvalidArgument(large));
  EXPECT_THAT(Text(large), HasSubstr("1048576"));
  WriteOptions both;
  both.if_absent = true;
  both.if_version = 3;
  EXPECT_TRUE(absl::IsInvalidArgument(StartPut("k", "v", put, absl::Seconds(1), both)));
  WriteOptions absent;
  absent.if_absent = true;
  EXPECT_TRUE(absl::IsInvalidArgument(engine_->start().Delete("k", absent, now_, put.Callback())));
  EXPECT_EQ(engine_->in_flight(), 0);
  EXPECT_TRUE(server_->requests.empty());
}

TEST_F(ClientWriteTest, MoreWritesThanTheSessionAllowsWaitTheirTurn) {
  std::deque<Outcome<uint64_t>> puts;
  for (int i = 0; i < 200; ++i) {
    ASSERT_TRUE(StartPut(absl::StrCat("key", i), "v", puts.emplace_back()).ok());
  }
  size_t most = 0;
  server_->answers = false;
  RunFor(absl::Milliseconds(5));
  most = server_->waiting();
  EXPECT_EQ(most, server_->requests_max);
  server_->answers = true;
  ASSERT_TRUE(RunUntil([&] { return engine_->in_flight() == 0; }));
  for (const Outcome<uint64_t>& put : puts) EXPECT_TRUE(put.status().ok()) << put.status();
}

TEST_F(ClientWriteTest, RequestsThatAreReadyTogetherGoOutInAsFewFramesAsTheyFitInto) {
  KillServer();
  StartServer(2);
  server_->requests_max = 128;
  ASSERT_TRUE(RunUntil([&] { return server_->hellos == 1; }, absl::Seconds(5)));
  BecomeReady();
  std::deque<Outcome<uint64_t>> puts;
  for (int i = 0; i < 100; ++i) {
    ASSERT_TRUE(StartPut(absl::StrCat("key", i), "v", puts.emplace_back()).ok());
  }
  ASSERT_TRUE(RunUntil([&] { return engine_->in_flight() == 0; }));
  for (const Outcome<uint64_t>& put : puts) EXPECT_TRUE(put.status().ok()) << put.status();
  EXPECT_EQ(server_->requests.size(), 100u);
  // 24 + 56 + key + value bytes each, 8192 a frame.
  EXPECT_EQ(server_->frames, 2);
  EXPECT_EQ(engine_->counters().messages, 100u);
  EXPECT_EQ(engine_->counters().frames, 2u);
  for (size_t i = 0; i < 100; ++i) EXPECT_EQ(server_->sequences[i], i + 1);
}

TEST_F(ClientWriteTest, LargeAndSmallValuesShareFramesInTheirOrder) {
  Outcome<uint64_t> small, large, full, last;
  ASSERT_TRUE(StartPut("small", "v", small).ok());
  ASSERT_TRUE(StartPut("large", std::string(100000, 'l'), large).ok());
  ASSERT_TRUE(StartPut("full", std::string(1000, 'f'), full).ok());
  ASSERT_TRUE(StartPut("small", "w", last).ok());
  ASSERT_TRUE(RunUntil([&] { return engine_->in_flight() == 0; }));
  EXPECT_EQ(server_->frames, 1);
  EXPECT_EQ(Get("small")->bytes, "w");
  EXPECT_EQ(Get("large")->bytes, std::string(100000, 'l'));
  EXPECT_EQ(Get("full")->bytes, std::string(1000, 'f'));
}

TEST_F(ClientWriteTest, RepliesMayShareAFrameToo) {
  server_->batches_replies = true;
  std::deque<Outcome<uint64_t>> puts;
  for (int i = 0; i < 200; ++i)
    ASSERT_TRUE(StartPut(absl::StrCat("key", i), "v", puts.emplace_back()).ok());
  Outcome<Number> number;
  ASSERT_TRUE(
      engine_->start().Increment("n", 1, {}, now_ + absl::Seconds(1), number.Callback()).ok());
  ASSERT_TRUE(RunUntil([&] { return engine_->in_flight() == 0; }));
  uint64_t last = 0;
  for (const Outcome<uint64_t>& put : puts) {
    ASSERT_TRUE(put.status().ok()) << put.status();
    EXPECT_GT(**put.value, last);
    last = **put.value;
  }
  EXPECT_EQ(number.value->value().value, 1);
  EXPECT_EQ(engine_->counters().connects, 1u);
}

TEST_F(ClientWriteTest, ABatchThatBreaksTheRulesCostsTheConnectionAndNothingElse) {
  const auto frame = [&](rdma::Opcode opcode, uint64_t session, uint64_t sequence,
                         size_t payload_bytes) {
    rdma::EmptyMessage message(opcode, session, sequence);
    message.header.length += static_cast<uint32_t>(payload_bytes);
    return std::string(reinterpret_cast<const char*>(message.bytes().data()),
                       message.bytes().size());
  };
  uint64_t connects = 1;
  for (int kind = 0; kind < 4; ++kind) {
    const uint64_t session = server_->session();
    std::string inner;
    if (kind == 1) inner = frame(rdma::Opcode::kPing, session, 1, 0);         // a request
    if (kind == 2) inner = frame(rdma::Opcode::kReply, session, 1, 1 << 20);  // longer than it is
    if (kind == 3) inner = frame(rdma::Opcode::kReply, session, 999, 0);      // without a request
    server_->Send(frame(rdma::Opcode::kBatch, session, 0, inner.size()) + inner);
    EXPECT_TRUE(Put("planet", absl::StrCat(kind)).ok()) << kind;
    EXPECT_EQ(Get("planet")->bytes, absl::StrCat(kind));
    EXPECT_EQ(engine_->counters().connects, ++connects) << kind;
  }
}

TEST_F(ClientWriteTest, PingAndStatsAreAnswered) {
  Outcome<uint64_t> ping;
  Outcome<std::string> stats;
  ASSERT_TRUE(engine_->start().Ping(now_ + absl::Seconds(1), ping.Callback()).ok());
  ASSERT_TRUE(engine_->start().Stats(now_ + absl::Seconds(1), stats.Callback()).ok());
  ASSERT_TRUE(RunUntil([&] { return ping.done() && stats.done(); }));
  EXPECT_TRUE(ping.status().ok());
  EXPECT_EQ(stats.value->value(), "name=value\n");
}

// --- Deadlines at every stage

TEST_F(ClientWriteTest, WithoutAConnectionItFailsAtItsDeadlineAsNotApplied) {
  KillServer();
  RunFor(absl::Milliseconds(1));
  const absl::Time start = now_;
  const absl::Status status = Put("planet", "saturn", {}, absl::Milliseconds(200)).status();
  EXPECT_TRUE(absl::IsUnavailable(status)) << status;
  EXPECT_THAT(Text(status), HasSubstr("not applied"));
  EXPECT_LE(now_ - start, absl::Milliseconds(202));
}

TEST_F(ClientWriteTest, AWriteThatHadToWaitForOthersFailsAsNotApplied) {
  server_->answers = false;
  std::deque<Outcome<uint64_t>> puts;
  for (uint32_t i = 0; i < server_->requests_max; ++i) {
    ASSERT_TRUE(StartPut("planet", "saturn", puts.emplace_back(), absl::Seconds(2)).ok());
  }
  const absl::Status status = Put("planet", "mars", {}, absl::Milliseconds(100)).status();
  EXPECT_TRUE(absl::IsDeadlineExceeded(status)) << status;
  EXPECT_THAT(Text(status), HasSubstr("not applied"));
  server_->answers = true;
  RunFor(absl::Milliseconds(10));
  EXPECT_EQ(server_->requests.size(), server_->requests_max);
}

TEST_F(ClientWriteTest, AWriteWithoutAnAnswerFailsAsPerhapsApplied) {
  server_->answers = false;
  const absl::Status status = Put("planet", "saturn", {}, absl::Milliseconds(100)).status();
  EXPECT_TRUE(absl::IsDeadlineExceeded(status)) << status;
  EXPECT_THAT(Text(status), HasSubstr("may still be applied, once"));
  EXPECT_THAT(Text(status), Not(HasSubstr("not applied")));
  // Its late answer is harmless.
  server_->answers = true;
  RunFor(absl::Milliseconds(10));
  EXPECT_EQ(Get("planet")->bytes, "saturn");
  EXPECT_EQ(engine_->counters().connects, 1u);
}

TEST_F(ClientWriteTest, TimedOutWritesDoNotUseTheSessionUpForEver) {
  server_->answers = false;
  for (int i = 0; i < 50; ++i) {
    EXPECT_TRUE(
        absl::IsDeadlineExceeded(Put("planet", "saturn", {}, absl::Milliseconds(5)).status()));
  }
  EXPECT_EQ(server_->requests.size(), server_->requests_max);  // no more than the session allows
  server_->answers = true;
  EXPECT_TRUE(Put("planet", "mars").ok());
}

TEST_F(ClientWriteTest, TheValueOfATimedOutWriteStaysWhereTheServerMayReadIt) {
  const std::string first(5000, '1');
  const std::string second(5000, '2');
  server_->answers = false;
  EXPECT_TRUE(absl::IsDeadlineExceeded(Put("planet", first, {}, absl::Milliseconds(10)).status()));
  Outcome<uint64_t> next;
  ASSERT_TRUE(StartPut("planet", second, next).ok());
  RunFor(absl::Milliseconds(5));
  server_->answers = true;  // now it READs both
  ASSERT_TRUE(RunUntil([&] { return next.done(); }));
  EXPECT_TRUE(next.status().ok()) << next.status();
  EXPECT_EQ(server_->rendezvous_mismatches, 0);
  EXPECT_THAT(server_->rendezvous_values, ::testing::ElementsAre(first, second));
}

TEST_F(ClientWriteTest, ValuesInFlightAreBounded) {
  CloseEngine();
  StartEngine(/*operations_max=*/64, /*buffer_bytes_max=*/4 << 20);
  BecomeReady();
  server_->answers = false;
  std::deque<Outcome<uint64_t>> puts;
  const std::string large(1 << 20, 'v');
  for (int i = 0; i < 4; ++i) ASSERT_TRUE(StartPut("k", large, puts.emplace_back()).ok());
  Outcome<uint64_t> small;
  const absl::Status status = StartPut("k", "v", small);
  EXPECT_TRUE(absl::IsResourceExhausted(status)) << status;
  EXPECT_THAT(Text(status), HasSubstr("buffer_bytes_max"));
  server_->answers = true;
  ASSERT_TRUE(RunUntil([&] { return engine_->in_flight() == 0; }));
  EXPECT_TRUE(Put("k", "v").ok());
}

// --- Broken connections

TEST_F(ClientWriteTest, AWriteThatWasNeverSentWaitsForTheNextServer) {
  KillServer();
  Outcome<uint64_t> put;
  ASSERT_TRUE(StartPut("planet", "saturn", put, absl::Seconds(10)).ok());
  RunFor(absl::Seconds(1));
  EXPECT_FALSE(put.done());
  StartServer(2);
  ASSERT_TRUE(RunUntil([&] { return put.done(); }, absl::Seconds(5)));
  EXPECT_TRUE(put.status().ok()) << put.status();
  EXPECT_EQ(Get("planet")->bytes, "saturn");
}

TEST_F(ClientWriteTest, ASentWriteIsUnknownWhenTheServerThatHadItIsGone) {
  server_->answers = false;
  Outcome<uint64_t> put;
  ASSERT_TRUE(StartPut("planet", "saturn", put, absl::Seconds(10)).ok());
  ASSERT_TRUE(RunUntil([&] { return server_->waiting() == 1; }));
  KillServer();
  StartServer(2);
  ASSERT_TRUE(RunUntil([&] { return put.done(); }, absl::Seconds(5)));
  EXPECT_EQ(put.status().code(), absl::StatusCode::kUnknown) << put.status();
  EXPECT_TRUE(server_->requests.empty());  // never repeated across incarnations
  EXPECT_TRUE(absl::IsNotFound(Get("planet").status()));
}

TEST_F(ClientWriteTest, ASentWriteIsUnknownWhenTheServerForgotTheSession) {
  server_->answers = false;
  Outcome<uint64_t> put;
  ASSERT_TRUE(StartPut("planet", "saturn", put, absl::Seconds(10)).ok());
  ASSERT_TRUE(RunUntil([&] { return server_->waiting() == 1; }));
  network_.Break(id());
  ASSERT_TRUE(RunUntil([&] { return put.done(); }, absl::Seconds(5)));
  EXPECT_EQ(put.status().code(), absl::StatusCode::kUnknown) << put.status();
  EXPECT_EQ(server_->requests.size(), 1u);
}

TEST_F(ClientWriteTest, WritesAreRepeatedInOrderUnderTheirOldSequences) {
  server_->resumes = true;
  server_->answers = false;
  Outcome<uint64_t> puts[3];
  const std::string large(5000, 'r');
  ASSERT_TRUE(StartPut("a", "1", puts[0]).ok());
  ASSERT_TRUE(StartPut("b", large, puts[1]).ok());
  ASSERT_TRUE(StartPut("c", "3", puts[2]).ok());
  ASSERT_TRUE(RunUntil([&] { return server_->waiting() == 3; }));
  const std::vector<uint64_t> sequences = server_->sequences;
  network_.Break(id());
  ASSERT_TRUE(RunUntil([&] { return server_->requests.size() == 6; }));
  // Once more, while they are being repeated.
  network_.Break(id());
  ASSERT_TRUE(RunUntil([&] { return server_->requests.size() == 9; }));
  server_->answers = true;
  ASSERT_TRUE(RunUntil([&] { return engine_->in_flight() == 0; }));
  for (const auto& put : puts) EXPECT_TRUE(put.status().ok()) << put.status();
  for (size_t i = 0; i < 9; ++i) EXPECT_EQ(server_->sequences[i], sequences[i % 3]);
  EXPECT_EQ(Get("b")->bytes, large);
  // New writes follow them.
  ASSERT_TRUE(Put("d", "4").ok());
  EXPECT_EQ(server_->sequences.back(), 4u);
}

TEST_F(ClientWriteTest, AWriteThatTimedOutWhileDisconnectedIsNotRepeated) {
  server_->resumes = true;
  server_->answers = false;
  Outcome<uint64_t> put;
  ASSERT_TRUE(StartPut("planet", "saturn", put, absl::Milliseconds(100)).ok());
  ASSERT_TRUE(RunUntil([&] { return server_->waiting() == 1; }));
  server_->accepts = false;
  network_.Break(id());
  ASSERT_TRUE(RunUntil([&] { return put.done(); }));
  EXPECT_TRUE(absl::IsDeadlineExceeded(put.status())) << put.status();
  EXPECT_THAT(Text(put.status()), HasSubstr("may still be applied, once"));
  server_->accepts = server_->answers = true;
  BecomeReady();
  RunFor(absl::Milliseconds(10));
  EXPECT_EQ(server_->requests.size(), 1u);
}

TEST_F(ClientWriteTest, PingIsSimplyAskedAgainAfterABreak) {
  server_->answers = false;
  Outcome<uint64_t> ping;
  ASSERT_TRUE(engine_->start().Ping(now_ + absl::Seconds(5), ping.Callback()).ok());
  ASSERT_TRUE(RunUntil([&] { return server_->waiting() == 1; }));
  network_.Break(id());
  server_->answers = true;
  ASSERT_TRUE(RunUntil([&] { return ping.done(); }));
  EXPECT_TRUE(ping.status().ok()) << ping.status();
}

TEST_F(ClientWriteTest, ARefusalOfAServerThatIsAboutToEndIsNoFailure) {
  server_->tamper_reply = [](auto&, auto& body) {
    body.status = static_cast<uint32_t>(absl::StatusCode::kUnavailable);
  };
  Outcome<uint64_t> put;
  ASSERT_TRUE(StartPut("planet", "saturn", put, absl::Seconds(10)).ok());
  ASSERT_TRUE(RunUntil([&] { return server_->requests.size() == 1; }));
  RunFor(absl::Milliseconds(2));
  KillServer();
  StartServer(2);
  ASSERT_TRUE(RunUntil([&] { return put.done(); }, absl::Seconds(5)));
  EXPECT_TRUE(put.status().ok()) << put.status();
}

// Another connection to the same primary does not help.
TEST_F(ClientWriteTest, AWriteThatTooFewReplicasWouldHaveFailsAtOnce) {
  server_->tamper_reply = [](auto&, auto& body) {
    body.status = static_cast<uint32_t>(absl::StatusCode::kUnavailable);
    body.reason = WireNumberOf(Reason::kTooFewReplicas);
  };
  Outcome<uint64_t> put;
  ASSERT_TRUE(StartPut("planet", "saturn", put, absl::Seconds(10)).ok());
  ASSERT_TRUE(RunUntil([&] { return put.done(); }, absl::Seconds(1)));
  EXPECT_EQ(ReasonOf(put.status()), Reason::kTooFewReplicas) << put.status();
  EXPECT_FALSE(MayBeApplied(put.status()));
}

TEST_F(ClientWriteTest, ClosingSaysOfEachWriteWhatIsKnown) {
  server_->answers = false;
  Outcome<uint64_t> sent;
  Outcome<uint64_t> unsent;
  ASSERT_TRUE(StartPut("planet", std::string(5000, 's'), sent).ok());
  ASSERT_TRUE(RunUntil([&] { return server_->waiting() == 1; }));
  ASSERT_TRUE(StartPut("planet", "mars", unsent).ok());
  engine_->Close();
  EXPECT_TRUE(absl::IsCancelled(sent.status()));
  EXPECT_THAT(Text(sent.status()), HasSubstr("may have been applied"));
  EXPECT_THAT(Text(unsent.status()), HasSubstr("not applied"));
}

// --- With the server that ships: a write is applied once, wherever the connection breaks

class ClientAndServerTest : public ClientEngineTest {
 protected:
  static constexpr uint64_t kIncarnation = 77;

  void SetUp() override {
    server_domain_ = network_.NewDomain("server");
    region_ = server_domain_->Allocate(8 << 20, rdma::Access::kRemoteRead).value();
    scratch_ = server_domain_->Allocate(4096, rdma::Access::kLocal).value();
    index::TableOptions table_options;
    table_options.incarnation = kIncarnation;
    table_options.hash_seed = 5;
    tables_ = server::Tables::Create({region_->data(), region_->size()}, 1, table_options).value();
    std::vector<server::EnginePort> ports;
    ports.push_back({server_domain_->NewTransport({}).value(), region_.get(), scratch_.get()});
    server::EngineOptions options;
    options.incarnation = kIncarnation;
    options.random = [this] { return ++random_; };
    shipping_ = std::make_unique<server::Engine>(*tables_, std::move(ports), options, now_);
    ASSERT_TRUE(shipping_->Listen(0, kUri).ok());
    also_polled_ = [this] { shipping_->Poll(now_); };
    StartEngine();
    BecomeReady();
  }
  void TearDown() override {
    CloseEngine();
    also_polled_ = nullptr;
    shipping_.reset();
  }

  std::unique_ptr<rdma::Domain> server_domain_;
  std::unique_ptr<rdma::Memory> region_;
  std::unique_ptr<rdma::Memory> scratch_;
  std::unique_ptr<server::Tables> tables_;
  std::unique_ptr<server::Engine> shipping_;
  uint64_t random_ = 1000;
};

TEST_F(ClientAndServerTest, AWriteIsAppliedOnceWhereverTheConnectionBreaks) {
  uint64_t version = Put("planet", "start").value();
  uint64_t breaks = 0;
  for (const size_t bytes : {size_t{10}, size_t{100000}}) {
    for (const bool lose_frames : {false, true}) {
      for (int rounds = 0; rounds < 12; ++rounds) {
        SCOPED_TRACE(absl::StrCat(bytes, " bytes, break after ", rounds,
                                  " rounds, frames lost: ", lose_frames));
        const std::string value(bytes, static_cast<char>('a' + rounds));
        Outcome<uint64_t> put;
        ASSERT_TRUE(StartPut("planet", value, put, absl::Seconds(5)).ok());
        for (int i = 0; i < rounds; ++i) Step();
        breaks += put.done() ? 0 : 1;
        network_.Break(id(), lose_frames);
        ASSERT_TRUE(RunUntil([&] { return put.done(); }, absl::Seconds(5)));
        ASSERT_TRUE(put.status().ok()) << put.status();
        // Versions are counted by the server: one more means that it was applied once.
        EXPECT_EQ(put.value->value(), version + 1);
        version = put.value->value();
        const absl::StatusOr<Value> now_there = Get("planet", absl::Seconds(5));
        ASSERT_TRUE(now_there.ok()) << now_there.status();
        EXPECT_EQ(now_there->bytes, value);
        EXPECT_EQ(now_there->version, version);
      }
    }
  }
  EXPECT_GT(breaks, 4u);
  EXPECT_GT(shipping_->counters().writes_repeated, 0u);
  EXPECT_EQ(shipping_->counters().gets, 0u);
}

TEST_F(ClientAndServerTest, AServerThatStopsIsLeftInPeace) {
  ASSERT_TRUE(Put("planet", "saturn").ok());
  shipping_->Stop(now_);
  ASSERT_TRUE(RunUntil([&] { return shipping_->done(); }, absl::Seconds(5)));
  EXPECT_FALSE(engine_->connection().ready());
  const absl::Status status = Put("planet", "mars", {}, absl::Milliseconds(200)).status();
  EXPECT_TRUE(absl::IsUnavailable(status)) << status;
}

}  // namespace
}  // namespace osprey
