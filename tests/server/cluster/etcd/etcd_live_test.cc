// EtcdClient beside a real etcd: one member and three, which are killed and stopped.

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <iterator>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/cluster/etcd/etcd_client.h"
#include "tests/server/cluster/etcd/etcd_process.h"

namespace osprey {
namespace {

using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::ElementsAre;
using ::testing::Field;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr absl::Duration kTimeout = absl::Seconds(20);
constexpr absl::Duration kShort = absl::Milliseconds(500);

TransactionResult Put(ConfigurationStore& store, const std::string& key, const std::string& value,
                      absl::Duration timeout = kTimeout) {
  Transaction transaction;
  transaction.operations = {StoreOperation::Put(key, value)};
  return store.Execute(transaction, timeout);
}

// Whether a transaction with that compare is applied.
bool Holds(ConfigurationStore& store, const StoreCompare& compare) {
  Transaction transaction;
  transaction.compares = {compare};
  const TransactionResult result = store.Execute(transaction, kTimeout);
  EXPECT_TRUE(result.status.ok()) << result.status;
  return result.outcome == TransactionOutcome::kApplied;
}

std::string ValueOf(ConfigurationStore& store, const std::string& key,
                    absl::Duration timeout = kTimeout) {
  const auto answer = store.Range({key}, timeout);
  EXPECT_TRUE(answer.ok()) << answer.status();
  return answer.ok() && !answer->keys.empty() ? answer->keys[0].value : "";
}

// --- One member

class EtcdMemberTest : public ::testing::Test {
 protected:
  // One for all tests, each with keys of its own.
  static void SetUpTestSuite() { cluster_ = new EtcdCluster(); }
  static void TearDownTestSuite() { delete cluster_; }

  std::string Key(absl::string_view name) const {
    return absl::StrCat(::testing::UnitTest::GetInstance()->current_test_info()->name(), "/", name);
  }

  static EtcdCluster* cluster_;
  std::unique_ptr<EtcdClient> store_ = cluster_->NewClient();
};

EtcdCluster* EtcdMemberTest::cluster_ = nullptr;

TEST_F(EtcdMemberTest, RangeReturnsWhatWasPut) {
  const auto before = store_->Range({Key(""), true}, kTimeout);
  ASSERT_TRUE(before.ok()) << before.status();
  EXPECT_THAT(before->keys, IsEmpty());
  const TransactionResult first = Put(*store_, Key("a"), "1");
  ASSERT_EQ(first.outcome, TransactionOutcome::kApplied) << first.status;
  EXPECT_EQ(first.header.revision, before->header.revision + 1);
  const int64_t created = first.header.revision;
  ASSERT_EQ(Put(*store_, Key("b"), "").outcome, TransactionOutcome::kApplied);
  ASSERT_EQ(Put(*store_, Key("a"), "2").outcome, TransactionOutcome::kApplied);
  const auto after = store_->Range({Key(""), true}, kTimeout);
  ASSERT_TRUE(after.ok()) << after.status();
  EXPECT_THAT(after->keys, ElementsAre(StoredKey{Key("a"), "2", created, created + 2, 2},
                                       StoredKey{Key("b"), "", created + 1, created + 1, 1}));
  EXPECT_EQ(after->header,
            (StoreHeader{before->header.cluster_id, before->header.member_id, created + 2}));
  const auto changed = store_->Range({Key(""), true, created + 2}, kTimeout);
  ASSERT_TRUE(changed.ok()) << changed.status();
  EXPECT_THAT(changed->keys, ElementsAre(Field(&StoredKey::key, Key("a"))));
  EXPECT_THAT(store_->Range({Key("")}, kTimeout)->keys, IsEmpty()) << "not a prefix";
}

TEST_F(EtcdMemberTest, KeysAndValuesAreAnyBytes) {
  std::string bytes;
  for (int byte = 0; byte < 256; ++byte) bytes.push_back(static_cast<char>(byte));
  const std::string prefix = Key("\xff\xff");
  ASSERT_EQ(Put(*store_, prefix + bytes, bytes).outcome, TransactionOutcome::kApplied);
  const auto answer = store_->Range({prefix, true}, kTimeout);
  ASSERT_TRUE(answer.ok()) << answer.status();
  ASSERT_THAT(answer->keys, SizeIs(1));
  EXPECT_EQ(answer->keys[0].key, prefix + bytes);
  EXPECT_EQ(answer->keys[0].value, bytes);
}

TEST_F(EtcdMemberTest, EachCompareHoldsOrNot) {
  const std::string key = Key("a");
  EXPECT_TRUE(Holds(*store_, StoreCompare::Absent(key)));
  EXPECT_TRUE(Holds(*store_, StoreCompare::ModRevision(key, 0)));
  EXPECT_FALSE(Holds(*store_, StoreCompare::Value(key, "")));
  ASSERT_EQ(Put(*store_, key, "1").outcome, TransactionOutcome::kApplied);
  ASSERT_EQ(Put(*store_, key, "2").outcome, TransactionOutcome::kApplied);
  const StoredKey stored = store_->Range({key}, kTimeout)->keys[0];
  EXPECT_FALSE(Holds(*store_, StoreCompare::Absent(key)));
  EXPECT_TRUE(Holds(*store_, StoreCompare::ModRevision(key, stored.mod_revision)));
  EXPECT_FALSE(Holds(*store_, StoreCompare::ModRevision(key, stored.create_revision)));
  EXPECT_TRUE(Holds(*store_, StoreCompare::CreateRevision(key, stored.create_revision)));
  EXPECT_FALSE(Holds(*store_, StoreCompare::CreateRevision(key, stored.mod_revision)));
  EXPECT_TRUE(Holds(*store_, StoreCompare::Version(key, 2)));
  EXPECT_FALSE(Holds(*store_, StoreCompare::Version(key, 1)));
  EXPECT_TRUE(Holds(*store_, StoreCompare::Value(key, "2")));
  EXPECT_FALSE(Holds(*store_, StoreCompare::Value(key, "1")));
}

TEST_F(EtcdMemberTest, TransactionIsOneChangeWithAllResults) {
  ASSERT_EQ(Put(*store_, Key("old"), "1").outcome, TransactionOutcome::kApplied);
  Transaction transaction;
  transaction.compares = {StoreCompare::Value(Key("old"), "1"), StoreCompare::Absent(Key("new"))};
  transaction.operations = {StoreOperation::Put(Key("new"), "2"),
                            StoreOperation::Delete(Key("old")), StoreOperation::Delete(Key("none")),
                            StoreOperation::Range({Key(""), true})};
  transaction.otherwise = {{Key(""), true}, {Key("none")}};
  const TransactionResult applied = store_->Execute(transaction, kTimeout);
  ASSERT_EQ(applied.outcome, TransactionOutcome::kApplied) << applied.status;
  const int64_t revision = applied.header.revision;
  ASSERT_THAT(applied.results, SizeIs(4));
  EXPECT_EQ(applied.results[1].deleted, 1);
  EXPECT_EQ(applied.results[2].deleted, 0);
  EXPECT_THAT(applied.results[3].keys,
              ElementsAre(StoredKey{Key("new"), "2", revision, revision, 1}));

  const TransactionResult refused = store_->Execute(transaction, kTimeout);
  EXPECT_EQ(refused.outcome, TransactionOutcome::kRefused);
  EXPECT_TRUE(refused.status.ok());
  EXPECT_EQ(refused.header.revision, revision);
  ASSERT_THAT(refused.results, SizeIs(2));
  EXPECT_THAT(refused.results[0].keys, SizeIs(1));
  EXPECT_THAT(refused.results[1].keys, IsEmpty());
}

TEST_F(EtcdMemberTest, OfRacingSwapsExactlyOneIsApplied) {
  ASSERT_EQ(Put(*store_, Key("a"), "0").outcome, TransactionOutcome::kApplied);
  const int64_t revision = store_->Range({Key("a")}, kTimeout)->keys[0].mod_revision;
  std::vector<TransactionOutcome> outcomes(4);
  std::vector<std::thread> threads;
  for (TransactionOutcome& outcome : outcomes) {
    threads.emplace_back([&outcome, revision, key = Key("a")] {
      Transaction swap;
      swap.compares = {StoreCompare::ModRevision(key, revision)};
      swap.operations = {StoreOperation::Put(key, "1")};
      outcome = cluster_->NewClient()->Execute(swap, kTimeout).outcome;
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(std::count(outcomes.begin(), outcomes.end(), TransactionOutcome::kApplied), 1);
  EXPECT_EQ(std::count(outcomes.begin(), outcomes.end(), TransactionOutcome::kRefused), 3);
}

TEST_F(EtcdMemberTest, WhatEtcdRefusesUnseenIsNotApplied) {
  Transaction many;
  for (int i = 0; i < 129; ++i)
    many.operations.push_back(StoreOperation::Put(Key(absl::StrCat(i)), ""));
  Transaction twice;
  twice.operations = {StoreOperation::Put(Key("a"), ""), StoreOperation::Put(Key("a"), "")};
  Transaction long_value;
  long_value.operations = {StoreOperation::Put(Key("a"), std::string(1700000, 'x'))};
  for (const Transaction& transaction : {many, twice, long_value}) {
    const TransactionResult result = store_->Execute(transaction, kTimeout);
    EXPECT_EQ(result.outcome, TransactionOutcome::kNotApplied);
    EXPECT_TRUE(absl::IsInvalidArgument(result.status)) << result.status;
  }
  // Here gRPC says so, in words that would be the same of an answer.
  const TransactionResult longer = Put(*store_, Key("a"), std::string(3 << 20, 'x'));
  EXPECT_EQ(longer.outcome, TransactionOutcome::kUnknown);
  EXPECT_TRUE(absl::IsInvalidArgument(longer.status)) << longer.status;
  many.operations.pop_back();
  EXPECT_EQ(store_->Execute(many, kTimeout).outcome, TransactionOutcome::kApplied);
}

TEST_F(EtcdMemberTest, AnswersOfMegabytesAreReadOrRefused) {
  const std::string value(1 << 20, 'x');
  for (int i = 0; i < 4; ++i) {
    const auto answer = store_->Range({Key(""), true}, kTimeout);
    if (i < 3) {
      ASSERT_TRUE(answer.ok()) << answer.status();
      EXPECT_THAT(answer->keys, SizeIs(i));
    } else {
      EXPECT_TRUE(absl::IsDataLoss(answer.status())) << answer.status();
    }
    ASSERT_EQ(Put(*store_, Key(absl::StrCat(i)), value).outcome, TransactionOutcome::kApplied);
  }
}

TEST_F(EtcdMemberTest, StatusOfAMemberIsKnown) {
  const auto status = store_->MemberStatus(0, kTimeout);
  ASSERT_TRUE(status.ok()) << status.status();
  EXPECT_THAT(status->version, ::testing::StartsWith("3."));
  EXPECT_EQ(status->leader_id, status->header.member_id);
  EXPECT_GT(status->database_bytes, 0u);
  EXPECT_THAT(status->errors, IsEmpty());
}

TEST_F(EtcdMemberTest, StoppedMemberLeavesTheOutcomeUnknown) {
  ASSERT_EQ(Put(*store_, Key("a"), "1").outcome, TransactionOutcome::kApplied);
  cluster_->Stop(0);
  const absl::Time begin = absl::Now();
  const TransactionResult result = Put(*store_, Key("a"), "2", kShort);
  const auto read = store_->Range({Key("a")}, kShort);
  EXPECT_LT(absl::Now() - begin, absl::Seconds(10));
  cluster_->Continue(0);
  EXPECT_EQ(result.outcome, TransactionOutcome::kUnknown);
  EXPECT_TRUE(absl::IsDeadlineExceeded(result.status)) << result.status;
  EXPECT_TRUE(absl::IsDeadlineExceeded(read.status())) << read.status();
  EXPECT_EQ(Put(*store_, Key("a"), "3").outcome, TransactionOutcome::kApplied);
}

TEST_F(EtcdMemberTest, KilledMemberServesAgainAfterItsRestart) {
  ASSERT_EQ(Put(*store_, Key("a"), "1").outcome, TransactionOutcome::kApplied);
  cluster_->Kill(0);
  const TransactionResult result = Put(*store_, Key("a"), "2");
  EXPECT_EQ(result.outcome, TransactionOutcome::kNotApplied);
  EXPECT_TRUE(absl::IsUnavailable(result.status)) << result.status;
  EXPECT_TRUE(absl::IsUnavailable(store_->Range({Key("a")}, kTimeout).status()));
  cluster_->Restart(0);
  EXPECT_EQ(ValueOf(*store_, Key("a")), "1");
  EXPECT_EQ(Put(*store_, Key("a"), "3").outcome, TransactionOutcome::kApplied);
}

// The fix of the message is carried out.
TEST(EtcdSpaceTest, FixOfAFullDatabaseIsThatOfTheError) {
  const EtcdCluster cluster(1, {"--quota-backend-bytes=1000000"});
  const auto store = cluster.NewClient();
  TransactionResult result;
  for (int i = 0; i < 100 && (i == 0 || result.status.ok()); ++i)
    result = Put(*store, "a", std::string(100000, 'x'));
  EXPECT_EQ(result.outcome, TransactionOutcome::kUnknown);
  EXPECT_TRUE(absl::IsResourceExhausted(result.status)) << result.status;
  EXPECT_THAT(std::string(result.status.message()),
              AllOf(HasSubstr("compact and defragment it"), HasSubstr("etcdctl alarm disarm")));
  const auto read = store->Range({"a"}, kTimeout);
  ASSERT_TRUE(read.ok()) << "reads go on: " << read.status();
  EXPECT_THAT(store->MemberStatus(0, kTimeout)->errors, ElementsAre(HasSubstr("NOSPACE")));
  cluster.Control({"compact", absl::StrCat(read->header.revision)});
  cluster.Control({"defrag"});
  cluster.Control({"alarm", "disarm"});
  EXPECT_EQ(Put(*store, "a", "1").outcome, TransactionOutcome::kApplied);
}

// --- Three members

// Several threads, each with a client of its own, count upwards in one key by swaps. Every swap that
// is applied counts once, and one of unknown outcome at most once.
class Counting {
 public:
  explicit Counting(EtcdCluster& cluster) : cluster_(cluster) {
    for (size_t i = 0; i < kThreads; ++i) threads_.emplace_back([this, i] { Count(i); });
  }
  ~Counting() {
    ends_ = true;
    for (std::thread& thread : threads_)
      if (thread.joinable()) thread.join();
  }

  // Until each thread has applied some more swaps.
  void ExpectProgress() {
    int before[kThreads];
    std::copy(std::begin(applied_), std::end(applied_), before);
    const absl::Time deadline = absl::Now() + absl::Seconds(60);
    for (size_t i = 0; i < kThreads; ++i) {
      while (applied_[i] < before[i] + 5 && absl::Now() < deadline)
        absl::SleepFor(absl::Milliseconds(10));
      EXPECT_GE(applied_[i], before[i] + 5) << "thread " << i;
    }
  }

  void ExpectThatEachCountedOnce() {
    ends_ = true;
    for (std::thread& thread : threads_) thread.join();
    int applied = 0, count = 0;
    for (const std::atomic<int>& one : applied_) applied += one;
    EXPECT_TRUE(absl::SimpleAtoi(ValueOf(*cluster_.NewClient(), "count"), &count));
    EXPECT_GE(count, applied);
    EXPECT_LE(count, applied + unknown_);
    std::printf("%d swaps applied, %d unknown, %d counted\n", applied, unknown_.load(), count);
  }

 private:
  static constexpr size_t kThreads = 3;

  void Count(size_t thread) {
    const auto store = cluster_.NewClient(thread);
    while (!ends_) {
      const auto read = store->Range({"count"}, absl::Seconds(2));
      if (!read.ok()) continue;
      int count = 0;
      int64_t revision = 0;
      if (!read->keys.empty()) {
        EXPECT_TRUE(absl::SimpleAtoi(read->keys[0].value, &count));
        revision = read->keys[0].mod_revision;
      }
      Transaction swap;
      swap.compares = {StoreCompare::ModRevision("count", revision)};
      swap.operations = {StoreOperation::Put("count", absl::StrCat(count + 1))};
      const TransactionOutcome outcome = store->Execute(swap, absl::Seconds(2)).outcome;
      if (outcome == TransactionOutcome::kUnknown) ++unknown_;
      if (outcome == TransactionOutcome::kApplied) ++applied_[thread];
    }
  }

  EtcdCluster& cluster_;
  std::atomic<bool> ends_ = false;
  std::atomic<int> applied_[kThreads] = {};
  std::atomic<int> unknown_ = 0;
  std::vector<std::thread> threads_;
};

TEST(EtcdClusterTest, CallsGoOnWithoutTheMemberOfTheClient) {
  EtcdCluster cluster(3);
  const size_t other = (cluster.WaitForLeader() + 1) % 3;
  const auto store = cluster.NewClient(other);
  ASSERT_EQ(Put(*store, "a", "1").outcome, TransactionOutcome::kApplied);
  cluster.Kill(other);
  const TransactionResult result = Put(*store, "a", "2");
  EXPECT_EQ(result.outcome, TransactionOutcome::kApplied) << result.status;
  EXPECT_EQ(ValueOf(*store, "a"), "2");
  EXPECT_TRUE(absl::IsUnavailable(store->MemberStatus(0, kTimeout).status()));
}

TEST(EtcdClusterTest, ReadsGoOnBesideAStoppedMember) {
  EtcdCluster cluster(3);
  const size_t other = (cluster.WaitForLeader() + 1) % 3;
  const auto store = cluster.NewClient(other);
  ASSERT_EQ(Put(*store, "a", "1").outcome, TransactionOutcome::kApplied);
  cluster.Stop(other);
  // A third of it is for the member that is stopped.
  constexpr absl::Duration kPatience = absl::Seconds(6);
  EXPECT_EQ(ValueOf(*store, "a", kPatience), "1") << "on a connection that was open";
  EXPECT_EQ(ValueOf(*cluster.NewClient(other), "a", kPatience), "1") << "on a new one";
  const auto stuck = cluster.NewClient(other);
  EXPECT_EQ(Put(*stuck, "a", "2", kShort).outcome, TransactionOutcome::kUnknown);
  EXPECT_EQ(Put(*stuck, "a", "3").outcome, TransactionOutcome::kApplied);
  cluster.Continue(other);
}

TEST(EtcdClusterTest, SwapsCountOnceThroughTheLeadersDeath) {
  EtcdCluster cluster(3);
  Counting counting(cluster);
  counting.ExpectProgress();
  cluster.Kill(cluster.WaitForLeader());
  counting.ExpectProgress();
  counting.ExpectThatEachCountedOnce();
}

TEST(EtcdClusterTest, SwapsCountOnceThroughAStoppedLeader) {
  EtcdCluster cluster(3);
  Counting counting(cluster);
  counting.ExpectProgress();
  const size_t leader = cluster.WaitForLeader();
  cluster.Stop(leader);
  counting.ExpectProgress();
  cluster.Continue(leader);
  counting.ExpectProgress();
  counting.ExpectThatEachCountedOnce();
}

TEST(EtcdClusterTest, MinorityRefusesUnseen) {
  EtcdCluster cluster(3);
  const size_t leader = cluster.WaitForLeader();
  const auto store = cluster.NewClient(leader);
  ASSERT_EQ(Put(*store, "a", "1").outcome, TransactionOutcome::kApplied);
  cluster.Kill((leader + 1) % 3);
  cluster.Kill((leader + 2) % 3);
  // The leader steps down when the others have been silent for an election's time.
  TransactionResult result;
  for (int i = 0; i < 30 && result.outcome == TransactionOutcome::kUnknown; ++i)
    result = Put(*store, "a", "2", absl::Seconds(2));
  EXPECT_EQ(result.outcome, TransactionOutcome::kNotApplied);
  EXPECT_THAT(std::string(result.status.message()), HasSubstr("etcdserver: no leader"));
  const auto read = store->Range({"a"}, kTimeout);
  EXPECT_TRUE(absl::IsUnavailable(read.status())) << read.status();
  cluster.Restart((leader + 1) % 3);
  EXPECT_THAT(ValueOf(*store, "a"), AnyOf("1", "2"));
}

// An old value is no sign that the transaction will not happen.
TEST(EtcdClusterTest, UnknownTransactionTakesEffectLater) {
  EtcdCluster cluster(3, {"--election-timeout=3000"});
  const size_t leader = cluster.WaitForLeader();
  const auto store = cluster.NewClient(leader);
  ASSERT_EQ(Put(*store, "a", "1").outcome, TransactionOutcome::kApplied);
  // The leader has the transaction in its log, and the followers do not.
  cluster.Stop((leader + 1) % 3);
  cluster.Stop((leader + 2) % 3);
  EXPECT_EQ(Put(*store, "a", "2", kShort).outcome, TransactionOutcome::kUnknown);
  cluster.Continue((leader + 1) % 3);
  cluster.Continue((leader + 2) % 3);
  const absl::Time deadline = absl::Now() + absl::Seconds(30);
  while (ValueOf(*store, "a") != "2" && absl::Now() < deadline)
    absl::SleepFor(absl::Milliseconds(20));
  EXPECT_EQ(ValueOf(*store, "a"), "2");
}

}  // namespace
}  // namespace osprey
