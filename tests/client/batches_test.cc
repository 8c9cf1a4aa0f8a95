// Blocking GETs (client/read/get_batches.h) in virtual time: one chain of READs for many, and an
// operation for each GET that READs alone do not answer. get_test covers these operations.

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/client/client_batches_fixture.h"

namespace osprey {
namespace {

using ::testing::HasSubstr;

class ClientGroupsTest : public ClientWaitingTest {
 protected:
  explicit ClientGroupsTest(const fake::NetworkOptions& network = {})
      : ClientWaitingTest(network) {}
  void GetAll(const std::vector<absl::string_view>& keys,
              absl::Duration deadline = absl::Seconds(1)) {
    ASSERT_EQ(Begin(keys, deadline), keys.size());
    ASSERT_TRUE(RunUntil([&] { return unanswered_ == 0; }, deadline + absl::Seconds(1)));
    EXPECT_EQ(engine_->in_flight(), 0);
  }
};

TEST_F(ClientGroupsTest, SixteenInlineKeysAreOneChain) {
  std::vector<std::string> keys;
  std::vector<uint64_t> versions;
  for (int i = 0; i < 16; ++i) {
    keys.push_back(absl::StrCat("key", i));
    versions.push_back(Store(keys.back(), absl::StrCat("value", i)));
  }
  GetAll({keys.begin(), keys.end()});
  for (int i = 0; i < 16; ++i) {
    ASSERT_TRUE(answers_[i].ok()) << answers_[i].status();
    EXPECT_EQ(answers_[i]->bytes, absl::StrCat("value", i));
    EXPECT_EQ(answers_[i]->version, versions[i]);
    EXPECT_EQ(answers_[i]->ttl, absl::InfiniteDuration());
  }
  EXPECT_EQ(chains_, 1);
  EXPECT_EQ(counters().reads, 16u);
  EXPECT_EQ(counters().read_bytes, 16u * 256);
  EXPECT_EQ(counters().gets, 16u);
  EXPECT_EQ(counters().hits, 16u);
  EXPECT_TRUE(server_->requests.empty());
}

TEST_F(ClientGroupsTest, EachKeyIsAnsweredByItself) {
  Store("inline", "1");
  Store("item", std::string(500, 'i'));
  Store("long", std::string(5000, 'l'));
  const std::string too_long(4097, 'k');
  GetAll({"item", "absent", "", "long", "inline", too_long});
  EXPECT_EQ(answers_[0]->bytes, std::string(500, 'i'));
  EXPECT_TRUE(absl::IsNotFound(answers_[1].status())) << answers_[1].status();
  EXPECT_EQ(ReasonOf(answers_[2].status()), Reason::kEmptyKey);
  EXPECT_EQ(answers_[3]->bytes, std::string(5000, 'l'));
  EXPECT_EQ(answers_[4]->bytes, "1");
  EXPECT_EQ(ReasonOf(answers_[5].status()), Reason::kKeyTooLong);
  // Windows; the item, and separately the long one.
  EXPECT_EQ(counters().reads, 6u);
  EXPECT_EQ(chains_, 3);
  EXPECT_EQ(counters().gets, 4u);
  EXPECT_EQ(counters().hits, 3u);
  EXPECT_EQ(counters().misses, 1u);
}

TEST_F(ClientGroupsTest, AKnownPlaceIsReadFirst) {
  CloseEngine();
  StartEngine();
  BecomeReady();
  Store("planet", std::string(500, 's'));
  GetAll({"planet"});
  EXPECT_EQ(counters().reads, 2u);
  GetAll({"planet"});
  EXPECT_EQ(counters().reads, 3u);
  EXPECT_EQ(counters().hints, 1u);
  Store("planet", std::string(900, 'S'));  // elsewhere
  GetAll({"planet"});
  EXPECT_EQ(answers_[0]->bytes, std::string(900, 'S'));
  EXPECT_EQ(counters().reads, 6u);
  EXPECT_EQ(counters().stale_hints, 1u);
}

TEST_F(ClientGroupsTest, BoundsHoldForThemAsForOperations) {
  CloseEngine();
  StartEngine(/*operations_max=*/5);
  BecomeReady();
  EXPECT_EQ(Begin({"a", "b", "c", "d", "e", "f", "g"}), 5u);
  EXPECT_EQ(engine_->in_flight(), 5);
  EXPECT_EQ(engine_->StartGets({"h"}, &answers_[5], now_ + absl::Seconds(1), now_, unanswered_),
            0u);
  Outcome<Value> one_more;
  EXPECT_TRUE(absl::IsResourceExhausted(StartGet("h", one_more)));
  ASSERT_TRUE(RunUntil([&] { return unanswered_ == 0; }));
  EXPECT_EQ(engine_->in_flight(), 0);
}

TEST_F(ClientGroupsTest, WithoutAConnectionTheyWaitForOneUntilTheirDeadline) {
  KillServer();
  RunFor(absl::Milliseconds(10));
  Begin({"a", "b"}, absl::Milliseconds(300));
  ASSERT_TRUE(RunUntil([&] { return unanswered_ == 0; }));
  for (const absl::StatusOr<Value>& answer : answers_)
    EXPECT_TRUE(absl::IsUnavailable(answer.status())) << answer.status();
  Begin({"a"}, absl::Seconds(5));
  StartServer(2);
  Store("a", "1");
  ASSERT_TRUE(RunUntil([&] { return unanswered_ == 0; }, absl::Seconds(6)));
  EXPECT_EQ(answers_[0]->bytes, "1");
}

// --- Deadlines (R4, R5)

TEST_F(ClientGroupsTest, ReadsAfterTheDeadlineAreRejected) {
  Store("planet", "saturn");
  ASSERT_EQ(Begin({"planet", "star"}, absl::Milliseconds(10)), 2u);
  now_ += absl::Milliseconds(10);  // the READs have long landed
  engine_->Poll(now_);
  EXPECT_EQ(unanswered_, 0u);
  for (const absl::StatusOr<Value>& answer : answers_)
    EXPECT_TRUE(absl::IsDeadlineExceeded(answer.status())) << answer.status();
  EXPECT_EQ(counters().gets, 2u);
  EXPECT_EQ(counters().hits, 0u);
}

TEST_F(ClientGroupsTest, NorWhatIsJudgedAfterItAsTheProcessWasStopped) {
  CloseEngine();
  bool stopped = false;
  coarse_clock_ = [&] { return now_ + (stopped ? absl::Seconds(2) : absl::ZeroDuration()); };
  StartEngine();
  BecomeReady();
  Store("planet", "saturn");
  GetAll({"planet"});
  EXPECT_EQ(answers_[0]->bytes, "saturn");
  ASSERT_EQ(Begin({"planet", "star"}), 2u);
  network_.before_piece = [&](absl::Span<const std::byte>) { stopped = true; };
  engine_->Poll(now_);
  EXPECT_EQ(unanswered_, 0u);
  for (const absl::StatusOr<Value>& answer : answers_)
    EXPECT_TRUE(absl::IsDeadlineExceeded(answer.status())) << answer.status();
  EXPECT_EQ(counters().hits, 1u);
  EXPECT_EQ(counters().misses, 0u);
}

TEST_F(ClientGroupsTest, LateReadKeepsItsBufferWithoutBlockingTheNextBatch) {
  Store("planet", "saturn");
  Store("star", "vega");
  network_.HoldReads(id(), true);
  GetAll({"planet"}, absl::Milliseconds(50));
  EXPECT_TRUE(absl::IsDeadlineExceeded(answers_[0].status())) << answers_[0].status();
  // READs that land there later must not land in the next batch's buffer.
  Begin({"star", "planet"});
  RunFor(absl::Milliseconds(10));
  EXPECT_EQ(unanswered_, 2u);
  network_.HoldReads(id(), false);
  ASSERT_TRUE(RunUntil([&] { return unanswered_ == 0; }));
  EXPECT_EQ(answers_[0]->bytes, "vega");
  EXPECT_EQ(answers_[1]->bytes, "saturn");
  EXPECT_EQ(counters().connects, 1u);
}

TEST_F(ClientGroupsTest, ReadsThatNeverEndBreakTheConnection) {
  Store("planet", "saturn");
  network_.HoldReads(id(), true);
  Begin({"planet", "star"}, absl::Seconds(30));
  ASSERT_TRUE(RunUntil([&] { return unanswered_ == 0; }, absl::Seconds(30)));
  EXPECT_EQ(answers_[0]->bytes, "saturn");
  EXPECT_TRUE(absl::IsNotFound(answers_[1].status()));
  EXPECT_EQ(counters().connects, 2u);
}

TEST_F(ClientGroupsTest, ClosingAnswersThem) {
  network_.HoldReads(id(), true);
  Begin({"planet", "star"});
  engine_->Close();
  EXPECT_EQ(unanswered_, 0u);
  for (const absl::StatusOr<Value>& answer : answers_)
    EXPECT_TRUE(absl::IsCancelled(answer.status())) << answer.status();
  EXPECT_EQ(Begin({"planet"}), 0u);
}

// --- Reconnects (R7)

TEST_F(ClientGroupsTest, AConnectionThatBreaksIsOnlyADelay) {
  const std::string text(500, 's');
  Store("planet", text);
  for (int break_at = 1; break_at <= 2; ++break_at) {
    chains_ = 0;
    network_.before_reads = [&](rdma::ConnectionId reader) {
      if (++chains_ == break_at) network_.Break(reader);
    };
    GetAll({"planet", "star"});
    EXPECT_EQ(answers_[0]->bytes, text);
    EXPECT_TRUE(absl::IsNotFound(answers_[1].status()));
    EXPECT_EQ(counters().connects, 1u + break_at);
  }
}

TEST_F(ClientGroupsTest, BytesOfAFailedReadAreIgnored) {
  Store("planet", "saturn");
  GetAll({"planet"});
  network_.FailNextReads(id(), absl::UnavailableError("flushed"));
  network_.before_reads = [&](rdma::ConnectionId) {
    network_.before_reads = nullptr;
    Store("planet", "uranus");
  };
  Begin({"planet"});
  ASSERT_TRUE(RunUntil([&] { return !engine_->connection().ready(); }));
  EXPECT_EQ(unanswered_, 1u);
  Store("planet", "neptune");
  ASSERT_TRUE(RunUntil([&] { return unanswered_ == 0; }));
  EXPECT_EQ(answers_[0]->bytes, "neptune");
}

// --- Torn records (R1), and fallback to the server

class ClientTornGroupsTest : public ClientGroupsTest {
 protected:
  ClientTornGroupsTest() : ClientGroupsTest(ShuffledPieces()) {}
};

TEST_F(ClientTornGroupsTest, OldOrNewValuesWhileTheyAreOverwritten) {
  OverwriteWhileTheyAreRead(300, [&](const std::vector<absl::string_view>& keys) { GetAll(keys); });
  EXPECT_GT(counters().torn, 200u);
  EXPECT_GT(counters().retries, 200u);
}

// The operation that continues keeps the lookup's bounds: the READ of the batch is one of its 8.
TEST_F(ClientTornGroupsTest, TheServerIsAskedWhenOneIsTornAllTheTime) {
  int writes = 0;
  const auto write = [&] {
    Store("planet", absl::StrCat("saturn and its many rings ", ++writes % 10));
  };
  write();
  network_.before_piece = [&](absl::Span<const std::byte>) { write(); };
  GetAll({"planet"});
  ASSERT_TRUE(answers_[0].ok()) << answers_[0].status();
  EXPECT_THAT(answers_[0]->bytes, HasSubstr("saturn"));
  EXPECT_EQ(counters().rpc_gets, 1u);
  // Twice also the map's header and page: the segment might have ended.
  EXPECT_EQ(counters().reads, 8u + 4u);
  EXPECT_EQ(counters().torn, 8u);
  EXPECT_EQ(counters().gets, 1u);
}

// --- Expiry (R8)

TEST_F(ClientGroupsTest, WhatExpiresIsJudgedByTheServersClock) {
  Store("mayfly", "adult", absl::Milliseconds(100));
  GetAll({"mayfly"});
  ASSERT_TRUE(answers_[0].ok()) << answers_[0].status();
  EXPECT_GT(answers_[0]->ttl, absl::Milliseconds(90));
  EXPECT_LE(answers_[0]->ttl, absl::Milliseconds(100));
  RunFor(absl::Milliseconds(200));
  GetAll({"mayfly"});
  EXPECT_TRUE(absl::IsNotFound(answers_[0].status())) << answers_[0].status();
  EXPECT_EQ(counters().rpc_gets, 0u);
  // Long after the last message from the server, only the server can decide.
  Store("tortoise", "old", absl::Hours(1));
  RunFor(absl::Seconds(11), absl::Milliseconds(100));
  GetAll({"tortoise"});
  EXPECT_EQ(answers_[0]->bytes, "old");
}

// The batch READs its head, and an operation READs its value.
TEST_F(ClientGroupsTest, ALongValueThatExpiresHasItsTimeToLive) {
  const std::string long_value(300 << 10, 'v');
  Store("elephant", long_value, absl::Hours(1));
  GetAll({"elephant"});
  ASSERT_TRUE(answers_[0].ok()) << answers_[0].status();
  EXPECT_EQ(answers_[0]->bytes, long_value);
  EXPECT_GT(answers_[0]->ttl, absl::Minutes(59));
  EXPECT_LE(answers_[0]->ttl, absl::Hours(1));
}

// --- Concurrent operations

TEST_F(ClientGroupsTest, GroupsAndOperationsShareTheConnection) {
  for (int i = 0; i < 16; ++i) Store(absl::StrCat("key", i), std::string(300, 'v'));
  std::vector<std::string> names;
  for (int i = 0; i < 16; ++i) names.push_back(absl::StrCat("key", i));
  const std::vector<absl::string_view> keys(names.begin(), names.end());
  std::vector<Outcome<Value>> gets(100);
  for (Outcome<Value>& get : gets) ASSERT_TRUE(StartGet("key1", get).ok());
  engine_->Submit(now_);
  // 28 READs are left of 128: one batch, and the caller's own READs make space for the next.
  std::vector<absl::StatusOr<Value>> answers(32);
  EXPECT_EQ(engine_->StartGets(keys, answers.data(), now_ + absl::Seconds(1), now_, unanswered_),
            16u);
  EXPECT_EQ(
      engine_->StartGets(keys, answers.data() + 16, now_ + absl::Seconds(1), now_, unanswered_),
      0u);
  ASSERT_TRUE(RunUntil([&] { return unanswered_ == 0; }));
  EXPECT_EQ(
      engine_->StartGets(keys, answers.data() + 16, now_ + absl::Seconds(1), now_, unanswered_),
      16u);
  ASSERT_TRUE(RunUntil([&] { return engine_->in_flight() == 0; }));
  for (const absl::StatusOr<Value>& answer : answers) EXPECT_EQ(answer->bytes.size(), 300u);
  for (const Outcome<Value>& get : gets) EXPECT_EQ(get.value->value().bytes.size(), 300u);
}

// A batch has 16 KiB, and there is 1 MiB: the last ones are operations. Idle batches release
// theirs.
TEST_F(ClientGroupsTest, WhereBuffersAreUsedUpTheyAreOperations) {
  CloseEngine();
  StartEngine(/*operations_max=*/256, /*buffer_bytes_max=*/1 << 20, /*slot_cache_bytes=*/0);
  BecomeReady();
  Store("planet", "saturn");
  network_.HoldReads(id(), true);
  std::vector<absl::StatusOr<Value>> answers(70);
  std::vector<size_t> unanswered(answers.size());
  for (size_t i = 0; i < answers.size(); ++i) {
    ASSERT_EQ(
        engine_->StartGets({"planet"}, &answers[i], now_ + absl::Seconds(1), now_, unanswered[i]),
        1u);
  }
  EXPECT_LT(counters().reads, answers.size());
  network_.HoldReads(id(), false);
  ASSERT_TRUE(RunUntil([&] { return engine_->in_flight() == 0; }));
  for (const absl::StatusOr<Value>& answer : answers) EXPECT_EQ(answer->bytes, "saturn");
  const std::string text(200000, 't');
  Store("sun", text);
  EXPECT_EQ(Get("sun")->bytes, text);
}

}  // namespace
}  // namespace osprey
