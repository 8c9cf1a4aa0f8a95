// When a server of a cluster has engines, what is owed to them at their end, and how it gives its right back.

#include <atomic>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "gtest/gtest.h"
#include "rdma/lease_time.h"
#include "tests/server/cluster/node/node_world.h"

namespace osprey::server {
namespace {

// *Else* a READ of its memory counts while the next primary executes writes.
TEST(NodeServiceTest, AServerThatEndsAwaitsItsReadersAndDeletesItsKey) {
  World world(/*replicas=*/2);
  TestServer a{world, "a"};
  absl::Time deleted = absl::InfinitePast();
  a.calls.before_execution = [&](const Transaction& transaction) {
    if (transaction.operations[0].kind == StoreOperation::Kind::kDelete &&
        transaction.operations[0].range.key == world.keys.Server("a"))
      deleted = absl::Now();
  };
  a.Start();
  a.Serve();
  ASSERT_TRUE(Await([&] { return a.SaysThatItServes(); }));
  const absl::Time began = absl::Now();
  a.End();
  EXPECT_GE(deleted - began, AwaitedFor(kReaderLease()));
  EXPECT_FALSE(a.SaysThatItServes());
  EXPECT_TRUE(world.store.Range({world.keys.Server("a")}).keys.empty());
}

// *Else* the only copy ends with it.
TEST(NodeServiceTest, AServerThatIsToEndHandsOverToOneThatGetsItsCopyMeanwhile) {
  World world(/*replicas=*/2);
  TestServer a{world, "a"}, b{world, "b"};
  a.Start();
  a.Serve();
  a.Put("of a");
  b.Start();
  a.Stop();
  b.Serve();
  EXPECT_TRUE(b.Has("of a"));
}

// *Else* what the slot still has of the first shard is in the second, or clients of the first READ that their keys
// are absent.
TEST(NodeServiceTest, ASlotThatIsFreeHoldsAnotherShard) {
  World world{/*replicas=*/1, /*shards=*/2};
  std::atomic<bool> is_to_end{false};
  TestServer a{world, "a"};
  a.Start();
  a.Serve([&] { is_to_end = true; });
  a.Put("of shard 0");
  ASSERT_TRUE(Await([&] { return a.ServedShards() == 1; }));
  a.clock.AdvanceTo(absl::Now() + absl::Hours(1));  // that of an earlier primary of shard 0
  // Another server has shard 0, and has ended.
  ShardRecord record;
  record.term = 9;
  record.primary = "gone";
  record.in_sync = {{"gone", 1, 0xE, 0xF}};
  {
    const std::lock_guard<std::mutex> lock(world.mutex);
    Transaction put;
    put.operations = {StoreOperation::Put(world.keys.Shard(0), EncodeShardRecord(record))};
    ASSERT_EQ(world.store.Execute(put).outcome, TransactionOutcome::kApplied);
  }
  ASSERT_TRUE(Await([&] { return is_to_end.load(); }));
  a.node->slot(0).EndService({});
  a.Serve([] {}, 1);
  EXPECT_TRUE(Await([&] { return a.ServedShards() == 2; }));
  EXPECT_FALSE(a.Has("of shard 0"));
  a.Put("of shard 1");
  EXPECT_LT(a.clock.Now(), absl::Now() + absl::Minutes(1)) << "its keys would end early";
  EXPECT_TRUE(Await([&] { return a.node->stats().primaries == 1; })) << "of shard 0 it is none now";
  EXPECT_EQ(a.node->stats().shards, 2u);
}

// Both are in sync. The first one is the primary until it is to end.
struct Pair {
  Pair() {
    // *Else* a machine that stands still for a second parts them, and `a` gives no copy without engines.
    world.backup_timeout = kPatience;
    a.Start();
    a.Serve([this] { a_is_to_end = true; });
    b.Start();
    EXPECT_TRUE(Await([&] { return world.InSync() == 2; }));
  }
  void HandOver() {
    a.Stop();
    EXPECT_TRUE(Await([&] { return a_is_to_end.load(); }));
  }

  World world{/*replicas=*/2};
  TestServer a{world, "a"}, b{world, "b"};
  std::atomic<bool> a_is_to_end{false};
};

// *Else* entries of the next primary change tables that its engines still use.
TEST(NodeServiceTest, TablesAreABackupsOnceTheEnginesHaveEnded) {
  Pair pair;
  pair.HandOver();
  pair.b.Serve();
  pair.b.Put("later");
  absl::SleepFor(absl::Milliseconds(500));  // several appends
  EXPECT_FALSE(pair.a.Has("later"));
  pair.a.node->slot(0).EndService({});
}

// They failed, say. *Else* the cluster's thread, which has other shards, waits for ever.
TEST(NodeServiceTest, EnginesThatHaveEndedByThemselvesAreNotAwaited) {
  Pair pair;
  pair.a.node->slot(0).EndService({});
  pair.a.Stop();
  pair.b.Serve();
  pair.b.Put("later");
  EXPECT_TRUE(Await([&] { return pair.a.Has("later"); })) << "it goes on as a backup";
}

// *Else* a client deletes the absent key without an entry, and has it again of the next primary.
TEST(NodeServiceTest, WhatAServerEvictedAtItsEndGoesWhenItIsThePrimaryAgain) {
  Pair pair;
  pair.a.Put("evicted");
  pair.HandOver();
  pair.a.Evict("evicted");
  pair.a.node->slot(0).EndService({});
  pair.a.GoOn();
  std::atomic<bool> b_is_to_end{false};
  pair.b.Serve([&] { b_is_to_end = true; });
  EXPECT_TRUE(pair.b.Has("evicted"));
  pair.b.Stop();
  ASSERT_TRUE(Await([&] { return b_is_to_end.load(); }));
  pair.b.node->slot(0).EndService({});
  pair.a.Serve();
  EXPECT_TRUE(Await([&] { return !pair.b.Has("evicted"); }));
}

// *Else* the copy waits for the eviction, and that for the copy.
TEST(NodeServiceTest, WithTooFewMembersAnEvictionKeepsNoServerFromJoining) {
  World world(/*replicas=*/3);
  ASSERT_EQ(world.cluster.min_in_sync, 2u);
  TestServer a{world, "a"}, b{world, "b"}, c{world, "c"};
  a.Start();
  a.Serve();
  b.Start();
  ASSERT_TRUE(Await([&] { return world.InSync() == 2; }));
  a.Put("evicted");
  b.Kill();
  ASSERT_TRUE(Await([&] { return world.InSync() == 1; }));
  a.Evict("evicted");
  c.Start();
  ASSERT_TRUE(Await([&] { return world.InSync() == 2; }));
  EXPECT_FALSE(c.Has("evicted"));
  a.Put("later");
  EXPECT_TRUE(Await([&] { return c.Has("later"); }));
}

// *Else* the replica counts as applied what its table lacks.
class DecidedAndNotMadeTest : public testing::TestWithParam</*the engines end first:*/ bool> {};
INSTANTIATE_TEST_SUITE_P(EnginesEnd, DecidedAndNotMadeTest, testing::Bool(), [](const auto& one) {
  return one.param ? "ByThemselves" : "AsTheyHaveTo";
});

TEST_P(DecidedAndNotMadeTest, TheBackupMakesIt) {
  Pair pair;
  TestServer::Write put;
  pair.a.DecidePut("decided", absl::ZeroDuration(), put);
  ASSERT_EQ(pair.a.writes.Commit(), absl::OkStatus());
  if (GetParam()) {
    pair.a.node->slot(0).EndService({});
    absl::SleepFor(absl::Milliseconds(200));  // turns of the cluster's thread
    pair.a.Stop();
  } else {
    pair.HandOver();
    pair.a.node->slot(0).EndService({});
  }
  pair.b.Serve();
  EXPECT_TRUE(pair.b.Has("decided"));
  pair.b.Put("later");
  EXPECT_TRUE(Await([&] { return pair.a.Has("later"); }));
  EXPECT_TRUE(pair.a.Has("decided"));
}

// Servers of earlier releases do not say that they take parts of values.
TEST(NodeServiceTest, LongValuesAreRefusedWhileAnEarlierReleaseIsThere) {
  World world(/*replicas=*/1);
  const auto put_record = [&](const std::string& text) {
    Transaction transaction;
    transaction.operations = {StoreOperation::Put(world.keys.Server("old"), text)};
    const std::lock_guard<std::mutex> lock(world.mutex);
    EXPECT_EQ(world.store.Execute(transaction).outcome, TransactionOutcome::kApplied);
  };
  TestServer a{world, "a"};
  a.Start();
  a.Serve();
  const auto is_taken = [&] {
    return a.writes.BeginUpload(0, "key", kReplicatedValueBytesMax + 1).ok();
  };
  EXPECT_TRUE(Await(is_taken));
  put_record(R"({"addresses":[],"counter":1,"incarnation":"00000000000000f1"})");
  EXPECT_TRUE(Await([&] { return !is_taken(); }));
  put_record(R"({"addresses":[],"counter":1,"incarnation":"00000000000000f2","value_parts":1})");
  EXPECT_TRUE(Await(is_taken));
}

}  // namespace
}  // namespace osprey::server
