// GETs through the engine, in virtual time: the READs that they take, and their behaviour and
// answers when bytes are torn, late or missing.

#include <cstring>
#include <deque>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/client/client_engine_fixture.h"

namespace osprey {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::MatchesRegex;

class ClientGetTest : public ClientEngineTest {
 protected:
  explicit ClientGetTest(const fake::NetworkOptions& network = {}) : ClientEngineTest(network) {}
  void SetUp() override {
    StartServer();
    StartEngine();
    BecomeReady();
  }
  // Directly into the table, as if another client had written it.
  uint64_t Store(absl::string_view key, absl::string_view value) {
    const index::WriteResult result = server_->table().Put(
        key, {reinterpret_cast<const std::byte*>(value.data()), value.size()}, {}, now_);
    EXPECT_TRUE(result.status.ok()) << result.status;
    return result.version;
  }
  uint64_t reads() const { return engine_->counters().reads; }
};

TEST_F(ClientGetTest, AnInlineValueTakesOneReadAndNoMessage) {
  const uint64_t version = Store("planet", "saturn");
  const absl::StatusOr<Value> value = Get("planet");
  ASSERT_TRUE(value.ok()) << value.status();
  EXPECT_EQ(value->bytes, "saturn");
  EXPECT_EQ(value->version, version);
  EXPECT_EQ(reads(), 1u);
  EXPECT_TRUE(server_->requests.empty());
}

TEST_F(ClientGetTest, AnItemTakesTwoReadsAndAMissOne) {
  const std::string text(500, 's');
  Store("planet", text);
  EXPECT_EQ(Get("planet")->bytes, text);
  EXPECT_EQ(reads(), 2u);
  EXPECT_TRUE(absl::IsNotFound(Get("star").status()));
  EXPECT_EQ(reads(), 3u);
  EXPECT_EQ(engine_->counters().hits, 1u);
  EXPECT_EQ(engine_->counters().misses, 1u);
  EXPECT_TRUE(server_->requests.empty());
}

TEST_F(ClientGetTest, EmptyValuesAndKeysAndValuesOfEverySizeComeBack) {
  for (size_t key_bytes : {1, 63, 64, 65, 4096}) {
    for (size_t value_bytes : {0, 1, 40, 1023, 1024, 1025, 65536, 1 << 20}) {
      const std::string key(key_bytes, static_cast<char>('a' + value_bytes % 20));
      std::string text(value_bytes, '\0');
      for (size_t i = 0; i < text.size(); ++i) text[i] = static_cast<char>(i * 31 + key_bytes);
      Store(key, text);
      const absl::StatusOr<Value> value = Get(key);
      ASSERT_TRUE(value.ok()) << value.status() << " " << key_bytes << " " << value_bytes;
      ASSERT_EQ(value->bytes, text) << key_bytes << " " << value_bytes;
    }
  }
  EXPECT_TRUE(server_->requests.empty());
}

TEST_F(ClientGetTest, GetsThatAreReadyTogetherGoOutAsOneChain) {
  std::deque<Outcome<Value>> gets;
  for (int i = 0; i < 64; ++i) {
    Store(absl::StrCat("key", i), absl::StrCat("v", i));
    ASSERT_TRUE(StartGet(absl::StrCat("key", i), gets.emplace_back()).ok());
  }
  int chains = 0;
  network_.before_reads = [&](rdma::ConnectionId) { ++chains; };
  ASSERT_TRUE(RunUntil([&] { return engine_->in_flight() == 0; }));
  EXPECT_EQ(chains, 1);
  EXPECT_EQ(reads(), 64u);
  for (int i = 0; i < 64; ++i) EXPECT_EQ(gets[i].value->value().bytes, absl::StrCat("v", i));
}

TEST_F(ClientGetTest, MoreGetsThanTheConnectionTakesReadsAreAllAnswered) {
  std::deque<Outcome<Value>> gets;
  Store("planet", "saturn");
  for (int i = 0; i < 256; ++i) ASSERT_TRUE(StartGet("planet", gets.emplace_back()).ok());
  ASSERT_TRUE(RunUntil([&] { return engine_->in_flight() == 0; }));
  for (const Outcome<Value>& get : gets) EXPECT_EQ(get.value->value().bytes, "saturn");
}

// --- Measuring

TEST_F(ClientGetTest, AMeasuredReadIsOneReadAndCountsAsNoGet) {
  int chains = 0;
  network_.before_reads = [&](rdma::ConnectionId) { ++chains; };
  for (const uint32_t bytes : {1u, 8u, 256u, Client::kMeasureBytesMax}) {
    Outcome<Value> measure;
    ASSERT_TRUE(engine_->start().Measure(bytes, now_ + absl::Seconds(1), measure.Callback()).ok());
    ASSERT_TRUE(RunUntil([&] { return measure.done(); }));
    EXPECT_TRUE(measure.status().ok()) << measure.status();
  }
  EXPECT_EQ(chains, 4);
  EXPECT_EQ(engine_->counters().gets, 0u);
  EXPECT_EQ(engine_->counters().hits, 0u);
  EXPECT_EQ(reads(), 0u);
  EXPECT_EQ(engine_->counters().read_bytes, 0u);
  EXPECT_TRUE(server_->requests.empty());
  Store("planet", "saturn");
  EXPECT_EQ(Get("planet")->bytes, "saturn") << "an operation is used again for a GET";
  EXPECT_EQ(reads(), 1u);
}

TEST_F(ClientGetTest, AMeasuredReadOfNothingOrOfTooMuchIsRefused) {
  Outcome<Value> measure;
  for (const uint32_t bytes : {0u, Client::kMeasureBytesMax + 1}) {
    const absl::Status status =
        engine_->start().Measure(bytes, now_ + absl::Seconds(1), measure.Callback());
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
  }
  EXPECT_FALSE(measure.done());
}

TEST_F(ClientGetTest, AMeasuredReadEndsAtItsDeadlineOrGoesOnWithTheNextConnection) {
  network_.HoldReads(id(), true);
  Outcome<Value> late;
  ASSERT_TRUE(engine_->start().Measure(8, now_ + absl::Milliseconds(50), late.Callback()).ok());
  ASSERT_TRUE(RunUntil([&] { return late.done(); }));
  EXPECT_TRUE(absl::IsDeadlineExceeded(late.status())) << late.status();
  network_.HoldReads(id(), false);
  Outcome<Value> measure;
  ASSERT_TRUE(engine_->start().Measure(8, now_ + absl::Seconds(5), measure.Callback()).ok());
  KillServer();
  RunFor(absl::Milliseconds(50));
  StartServer(2);
  ASSERT_TRUE(RunUntil([&] { return measure.done(); }, absl::Seconds(6)));
  EXPECT_TRUE(measure.status().ok()) << measure.status();
}

// --- Traces

// "key, lease, cache, READ, landed".
std::string StepsOf(const std::vector<TraceStep>& steps) {
  return absl::StrJoin(steps, ", ", [](std::string* out, const TraceStep& step) {
    absl::StrAppend(out, step.what);
  });
}

// The details of the steps of that kind, from the first on.
std::vector<std::string> DetailsOf(const std::vector<TraceStep>& steps, const char* what) {
  std::vector<std::string> details;
  for (const TraceStep& step : steps) {
    if (step.what == what) details.push_back(step.detail);
  }
  return details;
}

TEST_F(ClientGetTest, ATraceHasEachStepOfAGet) {
  const uint64_t version = Store("planet", std::string(500, 's'));
  std::vector<TraceStep> steps;
  ASSERT_TRUE(Trace("planet", steps).ok());
  EXPECT_EQ(StepsOf(steps), "key, lease, cache, READ, landed, checked, READ, landed, checked, hit");
  EXPECT_THAT(DetailsOf(steps, "cache"), ElementsAre("no location"));
  EXPECT_THAT(DetailsOf(steps, "READ"),
              ElementsAre(MatchesRegex("offset=0x[0-9a-f]+ length=256, the key's window"),
                          MatchesRegex("offset=0x[0-9a-f]+ length=[0-9]+, an item of .*")));
  EXPECT_THAT(DetailsOf(steps, "checked"),
              ElementsAre("checksum is right; next: an item of the key's fingerprint",
                          "checksum and key are right"));
  EXPECT_THAT(DetailsOf(steps, "hit"), ElementsAre(absl::StrCat("500 bytes, version ", version)));
  for (size_t i = 1; i < steps.size(); ++i) EXPECT_GE(steps[i].at, steps[i - 1].at) << i;
  EXPECT_GE(steps.back().at, absl::Microseconds(200)) << "each READ takes a step of 100 us";
  // It is a GET like others.
  EXPECT_EQ(engine_->counters().gets, 1u);
  EXPECT_EQ(engine_->counters().hits, 1u);
  EXPECT_EQ(reads(), 2u);
  const std::string item = DetailsOf(steps, "READ")[1].substr(0, 12);
  steps.clear();
  ASSERT_TRUE(Trace("planet", steps).ok());
  EXPECT_EQ(StepsOf(steps), "key, lease, cache, READ, landed, checked, hit");
  EXPECT_THAT(DetailsOf(steps, "cache")[0], HasSubstr(item));
  EXPECT_THAT(DetailsOf(steps, "READ")[0], AllOf(HasSubstr(item), HasSubstr("known location")));
}

TEST_F(ClientGetTest, ATraceEndsWithTheResultWhateverItIs) {
  std::vector<TraceStep> steps;
  EXPECT_TRUE(absl::IsNotFound(Trace("planet", steps).status()));
  EXPECT_EQ(StepsOf(steps), "key, lease, cache, READ, landed, checked, miss");
  Store("planet", std::string(300000, 's'));
  steps.clear();
  ASSERT_TRUE(Trace("planet", steps).ok());
  EXPECT_EQ(steps[steps.size() - 2].detail, "the value, 300000 bytes: checksum and key are right");
  network_.HoldReads(id(), true);
  steps.clear();
  EXPECT_TRUE(absl::IsDeadlineExceeded(Trace("planet", steps).status()));
  EXPECT_EQ(StepsOf(steps), "key, lease, error");
  network_.HoldReads(id(), false);
  // The next GET of the operation that was traced is none.
  EXPECT_TRUE(Get("planet").ok());
  EXPECT_EQ(StepsOf(steps), "key, lease, error");
}

TEST_F(ClientGetTest, ATraceShowsALostConnection) {
  Store("planet", "saturn");
  network_.before_reads = [&](rdma::ConnectionId reader) {
    network_.before_reads = nullptr;
    network_.Break(reader);
  };
  std::vector<TraceStep> steps;
  ASSERT_TRUE(Trace("planet", steps).ok());
  EXPECT_EQ(StepsOf(steps),
            "key, lease, connection, key, lease, cache, READ, landed, checked, hit");
}

// --- Deadlines (R4, R5)

TEST_F(ClientGetTest, WithoutAConnectionItFailsAtItsDeadlineAndSaysWhy) {
  KillServer();
  const absl::Time start = now_;
  const absl::StatusOr<Value> value = Get("planet", absl::Milliseconds(300));
  EXPECT_TRUE(absl::IsUnavailable(value.status())) << value.status();
  EXPECT_THAT(std::string(value.status().message()), HasSubstr(kUri));
  EXPECT_GE(now_ - start, absl::Milliseconds(300));
  EXPECT_LE(now_ - start, absl::Milliseconds(302));
}

TEST_F(ClientGetTest, AReadThatIsLateCostsOneOperationAndNotTheConnection) {
  Store("planet", "saturn");
  Store("star", "vega");
  network_.HoldReads(id(), true);
  const absl::Time start = now_;
  EXPECT_TRUE(absl::IsDeadlineExceeded(Get("planet", absl::Milliseconds(50)).status()));
  EXPECT_GE(now_ - start, absl::Milliseconds(50));
  EXPECT_LE(now_ - start, absl::Milliseconds(52));
  EXPECT_EQ(engine_->in_flight(), 0);

  // The next operation must not get the buffer in which that READ has yet to land.
  Outcome<Value> next;
  ASSERT_TRUE(StartGet("star", next).ok());
  RunFor(absl::Milliseconds(10));
  EXPECT_FALSE(next.done());
  network_.HoldReads(id(), false);
  ASSERT_TRUE(RunUntil([&] { return next.done(); }));
  EXPECT_EQ(next.value->value().bytes, "vega");
  EXPECT_EQ(engine_->counters().connects, 1u);
}

TEST_F(ClientGetTest, AReadThatNeverEndsBreaksTheConnectionAndOthersGoOn) {
  Store("planet", "saturn");
  network_.HoldReads(id(), true);
  const absl::Time start = now_;
  EXPECT_TRUE(absl::IsDeadlineExceeded(Get("planet", absl::Milliseconds(500)).status()));
  Outcome<Value> next;
  ASSERT_TRUE(StartGet("planet", next, absl::Seconds(30)).ok());
  ASSERT_TRUE(RunUntil([&] { return next.done(); }, absl::Seconds(30)));
  EXPECT_EQ(next.value->value().bytes, "saturn");
  EXPECT_EQ(engine_->counters().connects, 2u);
  EXPECT_LE(now_ - start, client::ClientEngine::kReadsStuckMax() + absl::Seconds(1));
}

TEST_F(ClientGetTest, ReplyAfterTheDeadlineIsRejected) {
  Store("planet", "saturn");
  Outcome<Value> get;
  ASSERT_TRUE(StartGet("planet", get, absl::Milliseconds(10)).ok());
  engine_->Poll(now_);             // posts the READ
  now_ += absl::Milliseconds(10);  // the process was stopped meanwhile; the READ has long landed
  engine_->Poll(now_);
  ASSERT_TRUE(get.done());
  EXPECT_TRUE(absl::IsDeadlineExceeded(get.status())) << get.status();
}

TEST_F(ClientGetTest, ManyLateReadsDoNotUseTheClientUp) {
  Store("planet", "saturn");
  network_.HoldReads(id(), true);
  for (int i = 0; i < 1000; ++i) {
    EXPECT_TRUE(absl::IsDeadlineExceeded(Get("planet", absl::Milliseconds(1)).status()));
  }
  EXPECT_EQ(engine_->counters().reads, 128u);  // as many as the connection takes, and no more
  network_.HoldReads(id(), false);
  EXPECT_EQ(Get("planet")->bytes, "saturn");
}

// --- Reconnects (R7)

TEST_F(ClientGetTest, AConnectionThatBreaksInMidLookupIsOnlyADelay) {
  CloseEngine();
  StartEngine(256, 64 << 20, /*slot_cache_bytes=*/0);  // so that every GET has two READs
  BecomeReady();
  const std::string text(500, 's');
  Store("planet", text);
  for (int break_at = 1; break_at <= 2; ++break_at) {
    int chains = 0;
    network_.before_reads = [&](rdma::ConnectionId reader) {
      if (++chains == break_at) network_.Break(reader);
    };
    const uint64_t before = reads();
    const absl::StatusOr<Value> value = Get("planet");
    ASSERT_TRUE(value.ok()) << value.status();
    EXPECT_EQ(value->bytes, text);
    EXPECT_EQ(engine_->counters().connects, 1u + break_at);
    EXPECT_EQ(reads() - before, 2u + break_at);  // after a break it starts from the window again
  }
}

TEST_F(ClientGetTest, BytesOfAFailedReadAreIgnored) {
  Store("planet", "saturn");
  ASSERT_EQ(Get("planet")->bytes, "saturn");
  // The half that lands contains the whole line of "planet", from a connection that is gone.
  network_.FailNextReads(id(), absl::UnavailableError("flushed"));
  network_.before_reads = [&](rdma::ConnectionId) {
    network_.before_reads = nullptr;
    Store("planet", "uranus");
  };
  Outcome<Value> get;
  ASSERT_TRUE(StartGet("planet", get).ok());
  ASSERT_TRUE(RunUntil([&] { return !engine_->connection().ready(); }));
  EXPECT_FALSE(get.done());
  Store("planet", "neptune");
  ASSERT_TRUE(RunUntil([&] { return get.done(); }));
  EXPECT_EQ(get.value->value().bytes, "neptune");
  EXPECT_EQ(engine_->counters().connects, 2u);
}

// --- Torn records (R1) and the last resort (R6)

class ClientTornGetTest : public ClientGetTest {
 protected:
  ClientTornGetTest() : ClientGetTest(Pieces()) {}
  static fake::NetworkOptions Pieces() {
    fake::NetworkOptions options;
    options.read_piece_bytes = 32;
    options.shuffle_pieces = true;
    return options;
  }
};

TEST_F(ClientTornGetTest, ReturnsOldOrNewValueWhileItIsOverwritten) {
  uint64_t version = Store("planet", std::string(500, 'a'));
  int pieces = 0;
  int writes = 0;
  network_.before_piece = [&](absl::Span<const std::byte>) {
    if (++pieces % 7 != 0) return;
    version = Store("planet", std::string(500, static_cast<char>('a' + ++writes % 26)));
  };
  for (int i = 0; i < 300; ++i) {
    const uint64_t before = version;
    const absl::StatusOr<Value> value = Get("planet");
    ASSERT_TRUE(value.ok()) << value.status();
    ASSERT_EQ(value->bytes, std::string(500, value->bytes[0]));
    ASSERT_GE(value->version, before);
    ASSERT_LE(value->version, version);
  }
  EXPECT_GT(engine_->counters().torn, 100u);
  EXPECT_GT(engine_->counters().retries, 100u);
}

TEST_F(ClientTornGetTest, AsksTheServerWhenItIsTornAllTheTime) {
  // Long enough for the line's contents to lie in more than one piece.
  int writes = 0;
  const auto write = [&] {
    Store("planet", absl::StrCat("saturn and its many rings ", ++writes % 10));
  };
  write();
  network_.before_piece = [&](absl::Span<const std::byte>) { write(); };
  const absl::StatusOr<Value> value = Get("planet");
  ASSERT_TRUE(value.ok()) << value.status();
  EXPECT_THAT(value->bytes, HasSubstr("saturn"));
  EXPECT_EQ(engine_->counters().rpc_gets, 1u);
  EXPECT_EQ(server_->requests.size(), 1u);
  std::vector<TraceStep> steps;
  ASSERT_TRUE(Trace("planet", steps).ok());
  EXPECT_THAT(StepsOf(steps), HasSubstr("READ, landed, checked, pause, READ"));
  EXPECT_THAT(StepsOf(steps), EndsWith("checked, message, hit"));
  EXPECT_THAT(DetailsOf(steps, "checked")[0], HasSubstr("torn by a write"));
  EXPECT_THAT(steps.back().detail, EndsWith(", by message"));
}

TEST_F(ClientTornGetTest, ALongValueIsReadWhereTheServersReplySays) {
  const std::string text(5000, 't');
  Store("planet", text);
  bool asked = false;
  network_.before_piece = [&](absl::Span<const std::byte>) {
    if (!asked) Store("planet", text);
  };
  server_->tamper_reply = [&](auto&, auto&) { asked = true; };
  const absl::StatusOr<Value> value = Get("planet");
  ASSERT_TRUE(value.ok()) << value.status();
  EXPECT_EQ(value->bytes, text);
  EXPECT_EQ(engine_->counters().rpc_gets, 1u);
}

TEST_F(ClientTornGetTest, ASlotInAReplyIsCheckedLikeAnyOther) {
  const std::string text(5000, 't');
  Store("planet", text);
  Store("star", std::string(5000, 'x'));
  bool asked = false;
  network_.before_piece = [&](absl::Span<const std::byte>) {
    if (!asked) Store("planet", text);
  };
  server_->tamper_reply = [&](auto&, auto& body) {
    asked = true;
    body.slot = server_->table().Find("star")->slot;
  };
  const absl::StatusOr<Value> value = Get("planet");
  ASSERT_TRUE(value.ok()) << value.status();
  EXPECT_EQ(value->bytes, text);
}

TEST_F(ClientTornGetTest, RepeatedlyTornGetBacksOffUntilItsDeadline) {
  Store("planet", std::string(5000, 't'));
  network_.before_piece = [&](absl::Span<const std::byte>) {
    Store("planet", std::string(5000, 't'));
  };
  const absl::StatusOr<Value> value = Get("planet", absl::Seconds(1));
  EXPECT_TRUE(absl::IsDeadlineExceeded(value.status())) << value.status();
  EXPECT_GE(engine_->counters().rpc_gets, 5u);
  EXPECT_LE(engine_->counters().rpc_gets, 40u);
}

TEST_F(ClientTornGetTest, AReplyThatAnnouncesMoreThanAnyValueIsAnError) {
  Store("planet", std::string(5000, 't'));
  network_.before_piece = [&](absl::Span<const std::byte>) {
    Store("planet", std::string(5000, 't'));
  };
  server_->tamper_reply = [&](auto&, auto& body) { body.value_length = uint64_t{1} << 50; };
  EXPECT_TRUE(absl::IsInternal(Get("planet").status()));
}

// --- Large values

class ClientPiecewiseGetTest : public ClientGetTest {
 protected:
  ClientPiecewiseGetTest() : ClientGetTest(SmallReads()) {}
  static fake::NetworkOptions SmallReads() {
    fake::NetworkOptions options;
    options.read_bytes_max = 4096;
    return options;
  }
};

TEST_F(ClientPiecewiseGetTest, AValueLongerThanTheDevicesReadsComesInSeveral) {
  std::string text(1 << 20, '\0');  // more pieces than the connection takes at once
  for (size_t i = 0; i < text.size(); ++i) text[i] = static_cast<char>(i * 7 + i / 4096);
  Store("planet", text);
  Outcome<Value> large, small;
  ASSERT_TRUE(StartGet("planet", large).ok());
  ASSERT_TRUE(StartGet("absent", small).ok());
  ASSERT_TRUE(RunUntil([&] { return large.done() && small.done(); }));
  EXPECT_EQ(large.value->value().bytes, text);
  EXPECT_TRUE(absl::IsNotFound(small.status()));
  EXPECT_GE(reads(), 256u);
}

TEST_F(ClientGetTest, GetsWaitForBuffersWhenThereAreFew) {
  CloseEngine();
  StartEngine(/*operations_max=*/64, /*buffer_bytes_max=*/4 << 20);
  BecomeReady();
  const std::string text(1 << 20, 'b');
  Store("planet", text);
  std::deque<Outcome<Value>> gets;
  for (int i = 0; i < 16; ++i) ASSERT_TRUE(StartGet("planet", gets.emplace_back()).ok());
  ASSERT_TRUE(RunUntil([&] { return engine_->in_flight() == 0; }));
  for (const Outcome<Value>& get : gets) EXPECT_EQ(get.value->value().bytes, text);
}

// Each GET in flight has a buffer for its window, and keeps it afterwards.
TEST_F(ClientGetTest, BuffersOfShortReadsAreNotKeptFromLongerOnes) {
  CloseEngine();
  StartEngine(/*operations_max=*/4096, /*buffer_bytes_max=*/4 << 20);
  BecomeReady();
  const std::string value(4000, 'r');
  Store("planet", value);
  std::vector<Outcome<Value>> gets(4096);
  for (Outcome<Value>& get : gets) ASSERT_TRUE(StartGet("planet", get).ok());
  for (const Outcome<Value>& get : gets) {
    ASSERT_TRUE(RunUntil([&] { return get.done(); }, absl::Seconds(2)));
    ASSERT_TRUE(get.status().ok()) << get.status();
  }
  // Now with all buffers idle.
  std::vector<Outcome<Value>> misses(4096);
  for (Outcome<Value>& get : misses) ASSERT_TRUE(StartGet("absent", get).ok());
  ASSERT_TRUE(RunUntil([&] { return engine_->in_flight() == 0; }, absl::Seconds(2)));
  const std::string long_value(200000, 'r');
  Store("sun", long_value);
  EXPECT_EQ(Get("sun")->bytes, long_value);
}

// --- Starting

TEST_F(ClientGetTest, BadArgumentsAreRefusedWithTheirBound) {
  Outcome<Value> get;
  EXPECT_TRUE(absl::IsInvalidArgument(StartGet("", get)));
  const absl::Status status = StartGet(std::string(4097, 'k'), get);
  EXPECT_TRUE(absl::IsInvalidArgument(status));
  EXPECT_THAT(std::string(status.message()), HasSubstr("4096"));
  EXPECT_EQ(engine_->in_flight(), 0);
}

TEST_F(ClientGetTest, OperationsMaxIsABound) {
  CloseEngine();
  StartEngine(/*operations_max=*/3);
  BecomeReady();
  Outcome<Value> gets[4];
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(StartGet("planet", gets[i]).ok());
  const absl::Status status = StartGet("planet", gets[3]);
  EXPECT_TRUE(absl::IsResourceExhausted(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("operations_max"));
  ASSERT_TRUE(RunUntil([&] { return engine_->in_flight() == 0; }));
  EXPECT_TRUE(StartGet("planet", gets[3]).ok());
  ASSERT_TRUE(RunUntil([&] { return gets[3].done(); }));
}

TEST_F(ClientGetTest, ACallbackMayStartTheNextOperation) {
  Store("planet", "saturn");
  int left = 1000;
  std::function<void(absl::StatusOr<Value>)> next = [&](absl::StatusOr<Value> value) {
    ASSERT_EQ(value->bytes, "saturn");
    if (--left > 0) {
      ASSERT_TRUE(engine_->start().Get("planet", true, now_ + absl::Seconds(1), next).ok());
    }
  };
  ASSERT_TRUE(engine_->start().Get("planet", true, now_ + absl::Seconds(1), next).ok());
  ASSERT_TRUE(RunUntil([&] { return left == 0; }, absl::Seconds(5)));
}

TEST_F(ClientGetTest, ACallbackMayNotPoll) {
  const auto poll = [&](absl::StatusOr<Value> value) {
    if (!absl::IsCancelled(value.status())) engine_->Poll(now_);
  };
  ASSERT_TRUE(engine_->start().Get("planet", true, now_ + absl::Seconds(1), poll).ok());
  EXPECT_DEATH(RunUntil([&] { return engine_->in_flight() == 0; }), "may not call Poll");
}

TEST_F(ClientGetTest, NothingStartsAfterClose) {
  engine_->Close();
  Outcome<Value> get;
  EXPECT_TRUE(absl::IsCancelled(StartGet("planet", get)));
}

TEST_F(ClientGetTest, ClosingCancelsWhatIsInFlightEvenWithReadsUnderWay) {
  Store("planet", "saturn");
  network_.HoldReads(id(), true);
  Outcome<Value> get;
  ASSERT_TRUE(StartGet("planet", get).ok());
  RunFor(absl::Milliseconds(2));
  engine_->Close();
  EXPECT_TRUE(absl::IsCancelled(get.status()));
  EXPECT_FALSE(engine_->closed());  // its READ may still land
  ASSERT_TRUE(RunUntil([&] { return engine_->closed(); }));
}

}  // namespace
}  // namespace osprey
