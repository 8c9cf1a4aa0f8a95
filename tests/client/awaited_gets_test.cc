// GETs whose caller awaits READs without Poll (ClientEngine::GetOne, ClientEngine::AwaitReads), in virtual time.
// batches_test covers what Poll does with them.

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "tests/client/client_batches_fixture.h"

namespace osprey {
namespace {

class ClientAwaitedTest : public ClientWaitingTest {
 protected:
  explicit ClientAwaitedTest(const fake::NetworkOptions& network = {})
      : ClientWaitingTest(network) {}
  void StartCachingEngine() {
    CloseEngine();
    StartEngine();
    BecomeReady();
  }
  // As Client::Get does.
  absl::StatusOr<Value> Get(absl::string_view key, absl::Duration deadline = absl::Seconds(1)) {
    if (!BeginOne(key, deadline)) {
      EXPECT_EQ(Begin({key}, deadline), 1u);
    }
    engine_->AwaitReads(unanswered_, now_);
    EXPECT_TRUE(RunUntil([&] { return unanswered_ == 0; }, deadline + absl::Seconds(1)));
    EXPECT_EQ(engine_->in_flight(), 0);
    return answers_[0];
  }
};

TEST_F(ClientAwaitedTest, AnInlineKeyIsAnsweredByOneReadWithoutPoll) {
  const uint64_t version = Store("planet", "saturn");
  const uint64_t ended = engine_->ended();
  ASSERT_TRUE(BeginOne("planet"));
  EXPECT_EQ(unanswered_, 0u);
  ASSERT_TRUE(answers_[0].ok()) << answers_[0].status();
  EXPECT_EQ(answers_[0]->bytes, "saturn");
  EXPECT_EQ(answers_[0]->version, version);
  EXPECT_EQ(answers_[0]->ttl, absl::InfiniteDuration());
  EXPECT_EQ(chains_, 1);
  EXPECT_EQ(counters().reads, 1u);
  EXPECT_EQ(counters().read_bytes, 256u);
  EXPECT_EQ(counters().gets, 1u);
  EXPECT_EQ(counters().hits, 1u);
  EXPECT_EQ(engine_->in_flight(), 0);
  EXPECT_EQ(engine_->ended(), ended + 1);
  EXPECT_TRUE(server_->requests.empty());
}

TEST_F(ClientAwaitedTest, AnAbsentKeyIsAnsweredByOneReadWithoutPoll) {
  Store("planet", "saturn");
  ASSERT_TRUE(BeginOne("star"));
  EXPECT_EQ(unanswered_, 0u);
  EXPECT_TRUE(absl::IsNotFound(answers_[0].status())) << answers_[0].status();
  EXPECT_EQ(counters().reads, 1u);
  EXPECT_EQ(counters().gets, 1u);
  EXPECT_EQ(counters().misses, 1u);
  EXPECT_EQ(counters().hits, 0u);
}

TEST_F(ClientAwaitedTest, AnItemTakesTwoReadsAndOneWhenItsPlaceIsCached) {
  StartCachingEngine();
  for (const size_t bytes : {100, 500, 1500}) {
    const uint64_t reads = counters().reads;
    const std::string key = absl::StrCat("planet", bytes);
    Store(key, std::string(bytes, 's'));
    ASSERT_TRUE(BeginOne(key));
    EXPECT_EQ(unanswered_, 1u);
    engine_->AwaitReads(unanswered_, now_);
    EXPECT_EQ(unanswered_, 0u);
    EXPECT_EQ(answers_[0]->bytes, std::string(bytes, 's'));
    EXPECT_EQ(counters().reads, reads + 2);
    ASSERT_TRUE(BeginOne(key));
    EXPECT_EQ(unanswered_, 0u);
    EXPECT_EQ(answers_[0]->bytes, std::string(bytes, 's'));
    EXPECT_EQ(counters().reads, reads + 3);
  }
  EXPECT_EQ(counters().hints, 3u);
  EXPECT_EQ(counters().stale_hints, 0u);
}

TEST_F(ClientAwaitedTest, AnItemThatMovedIsFoundFromItsWindow) {
  StartCachingEngine();
  Store("planet", std::string(500, 's'));
  EXPECT_EQ(Get("planet")->bytes, std::string(500, 's'));
  Store("planet", std::string(900, 'S'));
  EXPECT_EQ(Get("planet")->bytes, std::string(900, 'S'));
  EXPECT_EQ(counters().stale_hints, 1u);
  EXPECT_EQ(counters().reads, 2u + 3);
  server_->table().Delete("planet", {}, now_);
  EXPECT_TRUE(absl::IsNotFound(Get("planet").status()));
  Store("planet", "tiny");
  EXPECT_EQ(Get("planet")->bytes, "tiny");
  EXPECT_EQ(counters().gets, 4u);
}

TEST_F(ClientAwaitedTest, ALongValueAndOneThatExpiresAreLeftToAnOperation) {
  StartCachingEngine();
  Store("long", std::string(5000, 'l'));
  Store("mayfly", std::string(50, 'm'), absl::Seconds(100));
  for (int round = 0; round < 2; ++round) {
    EXPECT_EQ(Get("long")->bytes, std::string(5000, 'l'));
    const absl::StatusOr<Value> mayfly = Get("mayfly");
    EXPECT_EQ(mayfly->bytes, std::string(50, 'm'));
    EXPECT_LE(mayfly->ttl, absl::Seconds(100));
    EXPECT_GT(mayfly->ttl, absl::Seconds(98));
  }
  EXPECT_EQ(counters().hits, 4u);
}

TEST_F(ClientAwaitedTest, ABatchIsAnsweredWithoutPoll) {
  std::vector<std::string> keys;
  for (int i = 0; i < 16; ++i) {
    keys.push_back(absl::StrCat("key", i));
    Store(keys.back(), std::string(i % 2 == 0 ? 8 : 80, 'v'));
  }
  ASSERT_EQ(Begin({keys.begin(), keys.end()}), 16u);
  engine_->AwaitReads(unanswered_, now_);
  EXPECT_EQ(unanswered_, 0u);
  for (int i = 0; i < 16; ++i) EXPECT_EQ(answers_[i]->bytes, std::string(i % 2 == 0 ? 8 : 80, 'v'));
  EXPECT_EQ(chains_, 2);
  EXPECT_EQ(engine_->in_flight(), 0);
}

TEST_F(ClientAwaitedTest, NothingStartsBesideAnotherOperationOrUnconnected) {
  Store("planet", "saturn");
  EXPECT_FALSE(BeginOne(""));
  EXPECT_FALSE(BeginOne(std::string(5000, 'k')));
  Outcome<Value> other;
  ASSERT_TRUE(StartGet("planet", other).ok());
  EXPECT_FALSE(BeginOne("planet"));
  ASSERT_TRUE(RunUntil([&] { return other.done(); }));
  KillServer();
  RunFor(absl::Milliseconds(10));
  EXPECT_FALSE(BeginOne("planet"));
  EXPECT_EQ(unanswered_, 0u);
  EXPECT_EQ(engine_->in_flight(), 0);
  EXPECT_EQ(counters().gets, 1u);
}

TEST_F(ClientAwaitedTest, WhereReadsTakeLongPollGoesOn) {
  Store("planet", "saturn");
  network_.HoldReads(id(), true);
  ASSERT_TRUE(BeginOne("planet"));
  EXPECT_EQ(unanswered_, 1u);
  EXPECT_EQ(engine_->in_flight(), 1);
  engine_->AwaitReads(unanswered_, now_);
  EXPECT_EQ(unanswered_, 1u);
  network_.HoldReads(id(), false);
  ASSERT_TRUE(RunUntil([&] { return unanswered_ == 0; }));
  EXPECT_EQ(answers_[0]->bytes, "saturn");
  EXPECT_EQ(counters().reads, 1u);
  EXPECT_EQ(counters().hits, 1u);
}

TEST_F(ClientAwaitedTest, ReadsThatAreHeldUpEndAtTheDeadline) {
  Store("planet", "saturn");
  network_.HoldReads(id(), true);
  ASSERT_TRUE(BeginOne("planet", absl::Milliseconds(10)));
  RunFor(absl::Milliseconds(20));
  EXPECT_EQ(unanswered_, 0u);
  EXPECT_TRUE(absl::IsDeadlineExceeded(answers_[0].status())) << answers_[0].status();
  EXPECT_EQ(counters().gets, 1u);
  // Its buffer is not used for the next one.
  network_.HoldReads(id(), false);
  RunFor(absl::Milliseconds(1));
  EXPECT_EQ(Get("planet")->bytes, "saturn");
}

TEST_F(ClientAwaitedTest, AnAnswerJudgedAfterTheDeadlineIsRejected) {
  CloseEngine();
  bool stopped = false;
  coarse_clock_ = [&] { return now_ + (stopped ? absl::Seconds(2) : absl::ZeroDuration()); };
  StartEngine();
  BecomeReady();
  Store("planet", "saturn");
  EXPECT_EQ(Get("planet")->bytes, "saturn");
  network_.before_piece = [&](absl::Span<const std::byte>) { stopped = true; };
  for (const char* const key : {"planet", "star"}) {
    stopped = false;
    ASSERT_TRUE(BeginOne(key));
    EXPECT_EQ(unanswered_, 0u);
    EXPECT_TRUE(absl::IsDeadlineExceeded(answers_[0].status())) << answers_[0].status();
  }
  EXPECT_EQ(counters().gets, 3u);
  EXPECT_EQ(counters().hits, 1u);
  EXPECT_EQ(counters().misses, 0u);
}

TEST_F(ClientAwaitedTest, AFailedReadIsADelayAndItsBytesAreIgnored) {
  Store("planet", "saturn");
  network_.FailNextReads(id(), absl::UnavailableError("flushed"));
  ASSERT_TRUE(BeginOne("planet"));
  EXPECT_EQ(unanswered_, 1u);
  EXPECT_FALSE(engine_->connection().ready());
  Store("planet", "neptune");
  ASSERT_TRUE(RunUntil([&] { return unanswered_ == 0; }));
  EXPECT_EQ(answers_[0]->bytes, "neptune");
  EXPECT_EQ(counters().connects, 2u);
}

// The connection asks a silent server by a READ of its own, which ends among the others.
TEST_F(ClientAwaitedTest, TheConnectionsOwnReadIsAwaitedAmongTheOthers) {
  Store("planet", "saturn");
  network_.HoldReads(id(), true);
  ASSERT_TRUE(RunUntil([&] { return engine_->connection().probing(); }, absl::Seconds(10)));
  EXPECT_FALSE(BeginOne("planet"));
  ASSERT_EQ(Begin({"planet"}), 1u);
  network_.HoldReads(id(), false);
  engine_->AwaitReads(unanswered_, now_);
  EXPECT_EQ(unanswered_, 0u);
  EXPECT_EQ(answers_[0]->bytes, "saturn");
  EXPECT_FALSE(engine_->connection().probing());
  EXPECT_TRUE(engine_->connection().ready());
}

TEST_F(ClientAwaitedTest, AServerThatServesNoReadsIsAskedByOperations) {
  Store("planet", "saturn");
  network_.Break(id());
  RunFor(absl::Microseconds(100));
  EXPECT_FALSE(BeginOne("planet"));
  ASSERT_EQ(Begin({"planet"}), 1u);
  engine_->AwaitReads(unanswered_, now_);
  EXPECT_EQ(unanswered_, 1u);
  ASSERT_TRUE(RunUntil([&] { return unanswered_ == 0; }));
  EXPECT_EQ(answers_[0]->bytes, "saturn");
}

class ClientTornAwaitedTest : public ClientAwaitedTest {
 protected:
  ClientTornAwaitedTest() : ClientAwaitedTest(ShuffledPieces()) {}
};

TEST_F(ClientTornAwaitedTest, OldOrNewValuesWhileTheyAreOverwritten) {
  StartCachingEngine();
  OverwriteWhileTheyAreRead(300, [&](const std::vector<absl::string_view>& keys) {
    std::vector<absl::StatusOr<Value>> all;
    for (absl::string_view key : keys) all.push_back(Get(key));
    answers_ = all;
  });
  EXPECT_GT(counters().torn, 100u);
  EXPECT_GT(counters().stale_hints, 100u);
}

}  // namespace
}  // namespace osprey
