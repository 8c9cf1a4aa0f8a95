// A primary with a joiner that does not come, or a copy that moves.

#include <optional>

#include "gtest/gtest.h"
#include "tests/server/cluster/member/shard_member_fixture.h"

namespace osprey {
namespace {

// *Else* the primary waits for its copy, and no other server may join.
TEST_F(ShardMemberTest, AJoinerThatGivesUpIsForgotten) {
  nodes_[1].table.has_memory = false;
  nodes_[2].member.SetAssigned(false);
  Exchange();
  EXPECT_EQ(nodes_[1].member.replica().role(), ShardReplica::Role::kOut);
  nodes_[1].member.SetAssigned(false);
  nodes_[2].member.SetAssigned(true);
  Exchange();
  Swap(0);
  EXPECT_NE(nodes_[0].member.record().record.Find("c"), nullptr);
}

// A server that did not learn of its key, which others have deleted, creates it again, and asks before the primary has
// read that.
TEST_F(ShardMemberTest, AJoinerThatHasAnotherKeyIsRefused) {
  nodes_[2].member.SetAssigned(false);
  BeginIncarnation(1, kIncarnations[1]);
  const int64_t key = watch_.CreateRevision("b");
  Exchange();
  ASSERT_TRUE(nodes_[0].member.WantedSwap(watch_, now_).has_value());
  ReadAll();
  ASSERT_NE(watch_.CreateRevision("b"), key);
  EXPECT_FALSE(nodes_[0].member.WantedSwap(watch_, now_).has_value());
  Join();
  EXPECT_NE(nodes_[0].member.record().record.Find("b"), nullptr);
}

// In this cluster of three replicas a fourth server is needed, but for a record that has two.
TEST_F(ShardMemberTest, ACopyOfThePrimaryMoves) {
  nodes_[2].member.SetAssigned(false);
  Exchange();
  Swap(0);
  ReadAll();
  ASSERT_EQ(nodes_[0].member.record().record.in_sync.size(), 2u);
  EXPECT_EQ(
      store_.Execute(SwapTransaction(keys_, {*BeginMove(*watch_.Shard(0), {"a", "c"})})).outcome,
      TransactionOutcome::kApplied);
  ReadAll();
  EXPECT_EQ(nodes_[0].member.WantedSwap(watch_, now_), std::nullopt) << "it has not joined";
  nodes_[2].member.SetAssigned(true);
  Exchange();
  Swap(0);
  ReadAll();
  EXPECT_EQ(nodes_[0].member.record().record.in_sync.size(), 3u);
  // Two of three stay, so it does not go.
  EXPECT_EQ(nodes_[0].member.WantedSwap(watch_, now_), std::nullopt);
  EXPECT_FALSE(nodes_[0].member.hands_over());
}

// (Others have joined instead of the server that has ended.)
TEST_F(ShardMemberTest, ACopyThatWasToMoveLeavesOnceEnoughStay) {
  Join();
  Join();
  Transaction change;
  change.operations = {
      StoreOperation::Put(keys_.Server("x"), EncodeServerRecord({77, {"shm:///x"}, 0}))};
  const int64_t key = store_.Execute(change).header.revision;
  ShardRecord record = watch_.Shard(0)->record;
  ASSERT_EQ(record.in_sync.size(), 3u);
  record.in_sync.push_back({"x", key, 77, 9});
  record.move = ShardMove{"b", "gone"};
  change.operations = {StoreOperation::Put(keys_.Shard(0), EncodeShardRecord(record))};
  store_.Execute(change);
  ReadAll();
  Swap(0);
  EXPECT_EQ(nodes_[0].member.record().record.Find("b"), nullptr);
  EXPECT_EQ(nodes_[0].member.record().record.in_sync.size(), 3u);
}

TEST_F(ShardMemberTest, AMoveToAServerThatHasEndedIsGivenUp) {
  Join();
  EXPECT_EQ(
      store_.Execute(SwapTransaction(keys_, {*BeginMove(*watch_.Shard(0), {"b", "gone"})})).outcome,
      TransactionOutcome::kApplied);
  ReadShard();
  EXPECT_EQ(nodes_[0].member.WantedSwap(watch_, now_), std::nullopt) << "servers were read before";
  ReadAll();
  Swap(0);
  EXPECT_EQ(nodes_[0].member.record().record.move, std::nullopt);
}

}  // namespace
}  // namespace osprey
