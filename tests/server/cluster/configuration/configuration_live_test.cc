// The records of a cluster in a real etcd: creation, swaps of several authors, and the watch.

#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/cluster/configuration/cluster_record.h"
#include "server/cluster/configuration/configuration_watch.h"
#include "server/cluster/configuration/shard_swaps.h"
#include "server/cluster/configuration/store_identity.h"
#include "server/cluster/configuration/swap_tracker.h"
#include "tests/server/cluster/etcd/etcd_process.h"

namespace osprey {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr absl::Duration kTimeout = absl::Seconds(20);
constexpr uint64_t kId = 0xF1;

const ClusterKeys kKeys("/osprey/test/");

// A server that has a key, and what it has read.
class Member {
 public:
  Member(const EtcdCluster& cluster, const std::string& id, uint64_t incarnation)
      : store_(cluster.NewClient()), self_{id, 0, incarnation, incarnation + 100} {
    Transaction creation;
    creation.compares = {StoreCompare::Absent(kKeys.Server(id))};
    creation.operations = {
        StoreOperation::Put(kKeys.Server(id), EncodeServerRecord({incarnation, {"rdma://a"}, 0}))};
    const TransactionResult result = store_->Execute(creation, kTimeout);
    EXPECT_EQ(result.outcome, TransactionOutcome::kApplied) << result.status;
    self_.create_revision = result.header.revision;
  }

  std::vector<uint32_t> Read() {
    const int64_t before = identity_.revision();
    const auto servers = store_->Range(watch_.ServersRange(), kTimeout);
    const StoreRange asked = watch_.ShardsRange();
    const auto shards = store_->Range(asked, kTimeout);
    EXPECT_TRUE(servers.ok() && shards.ok()) << servers.status() << shards.status();
    EXPECT_TRUE(identity_.Check(servers->header, before).ok());
    EXPECT_TRUE(identity_.Check(shards->header, before).ok());
    EXPECT_THAT(watch_.TakeServers(*servers).errors, IsEmpty());
    const WatchNews news = watch_.TakeShards(asked, *shards);
    EXPECT_THAT(news.errors, IsEmpty());
    return news.changed;
  }
  TransactionResult Send(const std::vector<ShardSwap>& swaps) {
    return store_->Execute(SwapTransaction(kKeys, swaps), kTimeout);
  }
  void MustApply(const absl::StatusOr<ShardSwap>& swap) {
    ASSERT_TRUE(swap.ok()) << swap.status();
    const TransactionResult result = Send({*swap});
    ASSERT_EQ(result.outcome, TransactionOutcome::kApplied) << result.status;
    (void)Read();
  }
  void End() {
    Transaction removal;
    removal.operations = {StoreOperation::Delete(kKeys.Server(self_.server))};
    EXPECT_EQ(store_->Execute(removal, kTimeout).outcome, TransactionOutcome::kApplied);
  }

  ConfigurationStore& store() { return *store_; }
  const Replica& self() const { return self_; }
  ShardAuthor author() const { return {kKeys, self_}; }
  const ConfigurationWatch& watch() const { return watch_; }
  const StoredShard& Shard(uint32_t shard) const { return *watch_.Shard(shard); }

 private:
  const std::unique_ptr<EtcdClient> store_;
  Replica self_;
  ConfigurationWatch watch_{kKeys, 64};
  StoreIdentity identity_{kId};
};

class ConfigurationLiveTest : public ::testing::Test {
 protected:
  ConfigurationLiveTest() {
    const TransactionResult result = cluster_.NewClient()->Execute(
        CreateCluster(kKeys, {1, kId, 64, 3, 2, 1, kShardBytesMin}), kTimeout);
    EXPECT_EQ(result.outcome, TransactionOutcome::kApplied) << result.status;
  }

  EtcdCluster cluster_;
};

TEST_F(ConfigurationLiveTest, AClusterIsCreatedOnce) {
  const auto store = cluster_.NewClient();
  const TransactionResult again =
      store->Execute(CreateCluster(kKeys, {1, kId + 1, 64, 3, 2, 1, kShardBytesMin}), kTimeout);
  ASSERT_EQ(again.outcome, TransactionOutcome::kRefused) << again.status;
  ASSERT_THAT(again.results, SizeIs(2));
  ASSERT_THAT(again.results[0].keys, SizeIs(1));
  EXPECT_EQ(DecodeClusterRecord(again.results[0].keys[0].value)->id, kId);
  EXPECT_THAT(again.results[1].keys, SizeIs(64));
}

TEST_F(ConfigurationLiveTest, AMemberTakesOverAllShardsInTwoTransactions) {
  Member a(cluster_, "a", 1), b(cluster_, "b", 2);
  EXPECT_THAT(a.Read(), SizeIs(64));
  std::vector<ShardSwap> adoptions;
  for (uint32_t shard = 0; shard < 64; ++shard)
    adoptions.push_back(*AdoptShard(a.author(), a.Shard(shard), 0));
  for (const auto& group : GroupSwaps(adoptions))
    EXPECT_EQ(a.Send(group).outcome, TransactionOutcome::kApplied);
  EXPECT_THAT(a.Read(), SizeIs(64));
  std::vector<ShardSwap> additions;
  for (uint32_t shard = 0; shard < 64; ++shard)
    additions.push_back(*AddMember(a.author(), a.Shard(shard), b.self()));
  for (const auto& group : GroupSwaps(additions))
    EXPECT_EQ(a.Send(group).outcome, TransactionOutcome::kApplied);
  (void)b.Read();
  EXPECT_EQ(b.watch().CreateRevision("a"), a.self().create_revision);
  EXPECT_FALSE(PromoteSelf(b.author(), b.Shard(0), b.watch().CreateRevision("a"), 0).ok());
  a.End();
  (void)b.Read();
  EXPECT_EQ(b.watch().CreateRevision("a"), 0);
  std::vector<ShardSwap> promotions;
  for (uint32_t shard = 0; shard < 64; ++shard)
    promotions.push_back(*PromoteSelf(b.author(), b.Shard(shard), 0, 0));
  const auto groups = GroupSwaps(promotions);
  ASSERT_THAT(groups, SizeIs(2));
  for (const auto& group : groups) EXPECT_EQ(b.Send(group).outcome, TransactionOutcome::kApplied);
  EXPECT_THAT(b.Read(), SizeIs(64));
  EXPECT_EQ(b.Shard(63).record, (ShardRecord{2, "b", {b.self()}}));
}

TEST_F(ConfigurationLiveTest, ARefusalBringsTheRecordThatIsThere) {
  Member a(cluster_, "a", 1), b(cluster_, "b", 2);
  (void)a.Read();
  (void)b.Read();
  SwapTracker tracker(7);
  ASSERT_TRUE(tracker.Saw(b.Shard(7)));
  a.MustApply(AdoptShard(a.author(), a.Shard(7), 0));
  const ShardSwap late = *AdoptShard(b.author(), tracker.shard(), 0);
  tracker.Begin(late);
  const TransactionResult refused = b.Send({late});
  ASSERT_EQ(refused.outcome, TransactionOutcome::kRefused);
  EXPECT_TRUE(tracker.TakeAnswer(refused, 0).ok());
  EXPECT_EQ(tracker.state(), SwapTracker::State::kIdle);
  EXPECT_EQ(tracker.shard(), a.Shard(7));
  EXPECT_THAT(b.Read(), ElementsAre(7));
  EXPECT_EQ(b.Shard(7), a.Shard(7));
}

// etcd is stopped while the swap is sent, and executes it later: only then is its fate settled.
TEST_F(ConfigurationLiveTest, ASwapWithoutAnAnswerIsSettledByARead) {
  Member a(cluster_, "a", 1), b(cluster_, "b", 2);
  (void)a.Read();
  a.MustApply(AdoptShard(a.author(), a.Shard(0), 0));
  SwapTracker tracker(0);
  ASSERT_TRUE(tracker.Saw(a.Shard(0)));
  const ShardSwap swap = *AddMember(a.author(), tracker.shard(), b.self());
  tracker.Begin(swap);
  cluster_.Stop(0);
  const TransactionResult silent =
      a.store().Execute(SwapTransaction(kKeys, {swap}), absl::Milliseconds(500));
  cluster_.Continue(0);
  ASSERT_EQ(silent.outcome, TransactionOutcome::kUnknown) << silent.status;
  EXPECT_TRUE(tracker.TakeAnswer(silent, 0).ok());
  EXPECT_THAT(tracker.Counted(), ElementsAre(a.self(), b.self()));
  // Settled either way: by the swap, or by another revision.
  while (tracker.state() == SwapTracker::State::kUnknown) {
    (void)a.Read();
    if (tracker.Saw(a.Shard(0))) break;
    const ShardSwap renewal = RenewRecord(a.author(), tracker.shard());
    tracker.Begin(renewal);
    EXPECT_TRUE(tracker.TakeAnswer(a.Send({renewal}), 0).ok());
  }
  (void)a.Read();
  EXPECT_EQ(tracker.Counted(), a.Shard(0).record.in_sync);
  EXPECT_EQ(tracker.shard(), a.Shard(0));
}

}  // namespace
}  // namespace osprey
