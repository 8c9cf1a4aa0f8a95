// Blocking GETs with a mapped region (client/read/shm_fast_path.h), in virtual time. Those that one probe
// answers are done before StartGets returns; the rest run as usual.

#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/client/client_batches_fixture.h"

namespace osprey {
namespace {

fake::NetworkOptions Views(uint32_t piece_bytes = 0) {
  fake::NetworkOptions options;
  options.has_views = true;
  options.read_piece_bytes = piece_bytes;
  options.shuffle_pieces = true;
  return options;
}

class ClientMappedTest : public ClientWaitingTest {
 protected:
  explicit ClientMappedTest(const fake::NetworkOptions& network = Views())
      : ClientWaitingTest(network) {}
  // Begins all, and returns the number that were answered at once.
  size_t GetAtOnce(const std::vector<absl::string_view>& keys,
                   absl::Duration deadline = absl::Seconds(1)) {
    EXPECT_EQ(Begin(keys, deadline), keys.size());
    EXPECT_EQ(static_cast<size_t>(engine_->in_flight()), unanswered_);
    return keys.size() - unanswered_;
  }
  void Finish(absl::Duration most = absl::Seconds(2)) {
    ASSERT_TRUE(RunUntil([&] { return unanswered_ == 0; }, most));
    EXPECT_EQ(engine_->in_flight(), 0);
  }
};

TEST_F(ClientMappedTest, WhatOneLookFindsIsAnsweredAtOnce) {
  std::vector<std::string> keys;
  std::vector<uint64_t> versions;
  for (int i = 0; i < 16; ++i) {
    keys.push_back(absl::StrCat("key", i));
    versions.push_back(Store(keys.back(), std::string(i % 2 == 0 ? 10 : 600, 'a' + i)));
  }
  EXPECT_EQ(GetAtOnce({keys.begin(), keys.end()}), 16u);
  for (int i = 0; i < 16; ++i) {
    ASSERT_TRUE(answers_[i].ok()) << answers_[i].status();
    EXPECT_EQ(answers_[i]->bytes, std::string(i % 2 == 0 ? 10 : 600, 'a' + i));
    EXPECT_EQ(answers_[i]->version, versions[i]);
    EXPECT_EQ(answers_[i]->ttl, absl::InfiniteDuration());
  }
  EXPECT_EQ(chains_, 1);
  EXPECT_EQ(counters().reads, 16u);
  EXPECT_EQ(counters().gets, 16u);
  EXPECT_EQ(counters().hits, 16u);
  EXPECT_EQ(engine_->ended(), 16u);
  EXPECT_TRUE(server_->requests.empty());
}

TEST_F(ClientMappedTest, PartitionsEachHaveTheirPlace) {
  CloseEngine();
  KillServer();
  StartServer(2, /*partitions=*/4);
  StartEngine();
  BecomeReady();
  for (int i = 0; i < 40; ++i) {
    const std::string key = absl::StrCat("key", i);
    const std::string value(i % 2 == 0 ? 10 : 600, 'v');
    ASSERT_TRUE(Put(key, value).ok());
    EXPECT_EQ(GetAtOnce({key}), 1u) << key;
    EXPECT_EQ(answers_[0]->bytes, value);
  }
}

TEST_F(ClientMappedTest, TheRestIsAnsweredAsEver) {
  Store("inline", "1");
  Store("item", std::string(500, 'i'));
  Store("long", std::string(5000, 'l'));
  Store("mayfly", std::string(100, 'm'), absl::Hours(1));
  const std::string too_long(4097, 'k');
  EXPECT_EQ(GetAtOnce({"item", "absent", "", "long", "mayfly", "inline", too_long}), 4u);
  EXPECT_EQ(answers_[0]->bytes, std::string(500, 'i'));
  EXPECT_EQ(ReasonOf(answers_[2].status()), Reason::kEmptyKey);
  EXPECT_EQ(answers_[5]->bytes, "1");
  EXPECT_EQ(ReasonOf(answers_[6].status()), Reason::kKeyTooLong);
  Finish();
  EXPECT_TRUE(absl::IsNotFound(answers_[1].status())) << answers_[1].status();
  EXPECT_EQ(answers_[3]->bytes, std::string(5000, 'l'));
  EXPECT_EQ(answers_[4]->bytes, std::string(100, 'm'));
  EXPECT_GT(answers_[4]->ttl, absl::Minutes(59));
  EXPECT_EQ(counters().gets, 5u);
  EXPECT_EQ(counters().hits, 4u);
  EXPECT_EQ(counters().misses, 1u);
}

TEST_F(ClientMappedTest, WhereNothingIsSeenTheyWait) {
  Store("planet", "saturn");
  network_.HoldReads(id(), true);
  EXPECT_EQ(GetAtOnce({"planet"}), 0u);
  network_.HoldReads(id(), false);
  Finish();
  EXPECT_EQ(answers_[0]->bytes, "saturn");
  KillServer();
  RunFor(absl::Milliseconds(10));
  EXPECT_EQ(GetAtOnce({"planet"}, absl::Seconds(5)), 0u);
  StartServer(2);
  Store("planet", "uranus");
  Finish(absl::Seconds(6));
  EXPECT_EQ(answers_[0]->bytes, "uranus");
}

// R7: bytes of a failed READ are not accepted, and the next connection answers.
TEST_F(ClientMappedTest, AReadThatFailsIsOnlyADelay) {
  Store("planet", "saturn");
  network_.FailNextReads(id(), absl::UnavailableError("gone"));
  EXPECT_EQ(GetAtOnce({"planet"}), 0u);
  Store("planet", "neptune");
  Finish();
  EXPECT_EQ(answers_[0]->bytes, "neptune");
  EXPECT_EQ(counters().connects, 2u);
  network_.before_reads = [&](rdma::ConnectionId reader) {
    network_.before_reads = nullptr;
    network_.Break(reader);
  };
  EXPECT_EQ(GetAtOnce({"planet", "absent"}), 0u);
  Finish();
  EXPECT_EQ(answers_[0]->bytes, "neptune");
  EXPECT_TRUE(absl::IsNotFound(answers_[1].status())) << answers_[1].status();
}

// The server dies during the copy, and its memory with it.
TEST_F(ClientMappedTest, AServerThatDiesMeanwhileIsOnlyADelay) {
  Store("planet", std::string(500, 's'));
  network_.before_piece = [&](absl::Span<const std::byte>) {
    network_.before_piece = nullptr;
    KillServer();
  };
  EXPECT_EQ(GetAtOnce({"planet"}, absl::Seconds(5)), 0u);
  StartServer(2);
  Finish(absl::Seconds(6));
  EXPECT_TRUE(absl::IsNotFound(answers_[0].status())) << answers_[0].status();
}

// R4.
TEST_F(ClientMappedTest, MappedGetValidatedAfterTheDeadlineIsRejected) {
  CloseEngine();
  bool stopped = false;
  coarse_clock_ = [&] { return now_ + (stopped ? absl::Seconds(2) : absl::ZeroDuration()); };
  StartEngine();
  BecomeReady();
  Store("planet", "saturn");
  EXPECT_EQ(GetAtOnce({"planet"}), 1u);
  EXPECT_EQ(answers_[0]->bytes, "saturn");
  network_.before_piece = [&](absl::Span<const std::byte>) { stopped = true; };
  EXPECT_EQ(GetAtOnce({"planet"}), 1u);
  EXPECT_TRUE(absl::IsDeadlineExceeded(answers_[0].status())) << answers_[0].status();
  EXPECT_EQ(counters().gets, 2u);
  EXPECT_EQ(counters().hits, 1u);
}

TEST_F(ClientMappedTest, AnEngineThatIsClosedBeginsNone) {
  Store("planet", "saturn");
  engine_->Close();
  absl::StatusOr<Value> answer;
  EXPECT_EQ(engine_->StartGets({"planet"}, &answer, now_ + absl::Seconds(1), now_, unanswered_),
            0u);
}

TEST_F(ClientMappedTest, APollIsDueNowAndThen) {
  engine_->Poll(now_);
  EXPECT_FALSE(engine_->IsPollDue(now_ + absl::Microseconds(99)));
  EXPECT_TRUE(engine_->IsPollDue(now_ + absl::Microseconds(100)));
}

// --- Reports to the server

// As access_sampler_test and client_get_stats_test check for operations.
TEST_F(ClientMappedTest, MappedHitsAndLatencyAreReportedOnRequest) {
  constexpr uint32_t kPartitions = 4;
  CloseEngine();
  KillServer();
  StartServer(2, kPartitions);
  server_->tamper_welcome = [](rdma::FrameHeader&, rdma::WelcomeBody& body) {
    body.wants_hints = body.wants_reports = 1;
  };
  clock_ = [this] { return now_ += absl::Nanoseconds(100); };
  StartEngine();
  BecomeReady();
  const std::string value(100, 'v');
  std::vector<std::string> names;
  std::set<uint64_t> items;
  for (int i = 0; i < 16; ++i) {
    names.push_back(absl::StrCat("key", i));
    ASSERT_TRUE(Put(names.back(), value).ok());
    const index::Slot slot =
        index::Slot::Unpack(server_->TableOf(names.back()).Find(names.back())->slot);
    uint32_t partition = 0;
    while (&server_->table(partition) != &server_->TableOf(names.back())) ++partition;
    items.insert(
        index::AccessHint{index::WordKind::kSlot, slot.fingerprint, partition, slot.offset}.Pack());
  }
  const std::vector<absl::string_view> keys(names.begin(), names.end());
  for (int round = 0; round < 100; ++round) ASSERT_EQ(GetAtOnce(keys), keys.size());
  RunFor(absl::Seconds(3));
  std::set<uint64_t> told;
  for (const std::vector<uint64_t>& some : server_->hints) told.insert(some.begin(), some.end());
  EXPECT_EQ(told, items);
  uint64_t hits = 0, timed = 0;
  for (const rdma::ReportBody& report : server_->reports) {
    hits += report.hits;
    for (const uint32_t count : report.latencies) timed += count;
  }
  EXPECT_EQ(hits, 1600u);
  EXPECT_GT(timed, 10u);  // one of 64
}

// --- While others write (R1)

class ClientTornMappedTest : public ClientMappedTest {
 protected:
  ClientTornMappedTest() : ClientMappedTest(Views(/*piece_bytes=*/32)) {}
};

TEST_F(ClientTornMappedTest, OldOrNewValuesWhileTheyAreOverwritten) {
  size_t at_once = 0;
  OverwriteWhileTheyAreRead(1000, [&](const std::vector<absl::string_view>& keys) {
    at_once += GetAtOnce(keys);
    Finish();
  });
  // Some were torn, some were not.
  EXPECT_GT(at_once, 300u);
  EXPECT_LT(at_once, 2700u);
}

}  // namespace
}  // namespace osprey
