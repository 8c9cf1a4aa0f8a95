// Plans of moves, from a status that was made by hand.

#include <map>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tools/cluster/moves.h"

namespace osprey {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class ClusterMovesTest : public testing::Test {
 protected:
  void AddServer(const std::string& id, uint32_t slots, const std::string& zone = "",
                 bool runs = true) {
    ClusterStatus::Server& server = status_.servers[id];
    server.stored.create_revision = ++revision_;
    server.stored.record = ServerRecord{1, {}, 0, slots, zone};
    server.is_renewed = runs;
  }
  void AddShard(const std::vector<std::string>& servers) {
    StoredShard shard;
    shard.shard = static_cast<uint32_t>(status_.shards.size());
    shard.mod_revision = ++revision_;
    shard.record.term = 1;
    shard.record.primary = servers[0];
    for (const std::string& id : servers) shard.record.in_sync.push_back({id, 1, 1, ++revision_u_});
    status_.shards.push_back(shard);
  }
  // Copies of each server, once the moves are done.
  std::map<std::string, int> After(const std::vector<PlacedMove>& moves) {
    std::map<std::string, int> copies;
    for (const auto& shard : status_.shards) {
      for (const Replica& member : shard->record.in_sync) ++copies[member.server];
    }
    for (const PlacedMove& move : moves) {
      --copies[move.move.from];
      ++copies[move.move.to];
    }
    return copies;
  }

  ClusterStatus status_;
  int64_t revision_ = 0;
  uint64_t revision_u_ = 0;
};

TEST_F(ClusterMovesTest, RebalanceEndsWithEqualPartsOfTheSlots) {
  AddServer("a", 8);
  AddServer("b", 8);
  AddServer("c", 4);
  for (int i = 0; i < 8; ++i) AddShard({"a", "b"});
  const std::vector<PlacedMove> moves = PlanRebalance(status_);
  EXPECT_EQ(After(moves), (std::map<std::string, int>{{"a", 7}, {"b", 6}, {"c", 3}}))
      << "7 ÷ 8, 6 ÷ 8 and 3 ÷ 4";
}

// *Else* the end of one zone loses the shard, though there was room elsewhere.
TEST_F(ClusterMovesTest, RebalanceTakesNoZoneMoreCopiesOfAShard) {
  AddServer("a", 4, "z1");
  AddServer("b", 4, "z2");
  AddServer("c", 4, "z1");
  for (int i = 0; i < 4; ++i) AddShard({"a", "b"});
  EXPECT_EQ(After(PlanRebalance(status_)),
            (std::map<std::string, int>{{"a", 2}, {"b", 4}, {"c", 2}}));
}

TEST_F(ClusterMovesTest, ServersThatDoNotSayTheirSlotsAreLeftAlone) {
  AddServer("a", 0);
  AddServer("b", 4);
  AddServer("c", 4);
  for (int i = 0; i < 4; ++i) AddShard({"a", "b"});
  for (const PlacedMove& move : PlanRebalance(status_)) EXPECT_EQ(move.move.from, "b");
}

// Each primary sends its shards' copies one after the other; two primaries do so at once.
TEST_F(ClusterMovesTest, TheCostIsThatOfWholeShards) {
  status_.cluster.shard_bytes = 60 << 20;
  for (const char* id : {"a", "b", "c"}) AddServer(id, 8);
  for (int i = 0; i < 2; ++i) AddShard({"a", "b"});
  AddShard({"b", "a"});
  const std::vector<PlacedMove> moves = {{0, {"b", "c"}}, {1, {"a", "c"}}, {2, {"a", "c"}}};
  EXPECT_EQ(CostOf(status_, moves).bytes, uint64_t{180} << 20);
  EXPECT_EQ(CostOf(status_, moves).time, std::nullopt) << "no server says its rate";
  status_.servers["a"].stored.record->copy_rate = 10 << 20;
  EXPECT_EQ(CostOf(status_, moves).time, std::nullopt) << "b does not";
  status_.servers["b"].stored.record->copy_rate = 30 << 20;
  EXPECT_EQ(CostOf(status_, moves).time, absl::Seconds(12)) << "a sends two, b one in 2 s";
  EXPECT_EQ(CostOf(status_, {}).time, absl::ZeroDuration());
}

TEST_F(ClusterMovesTest, ADrainPrefersOtherZonesAndFreeSlots) {
  AddServer("a", 4, "z1");
  AddServer("b", 4, "z2");
  AddServer("c", 9, "z1");
  AddServer("d", 5, "z3");
  AddServer("e", 4, "z3");
  AddShard({"a", "b"});
  const absl::StatusOr<std::vector<PlacedMove>> moves = PlanDrain(status_, "b");
  ASSERT_TRUE(moves.ok()) << moves.status();
  EXPECT_THAT(*moves, ElementsAre(PlacedMove{0, {"b", "d"}}));
}

TEST_F(ClusterMovesTest, ADrainNeedsAllThatItReads) {
  AddServer("a", 4);
  AddServer("b", 4);
  AddServer("c", 1);
  AddShard({"a", "b"});
  AddShard({"a", "b"});
  EXPECT_THAT(std::string(PlanDrain(status_, "b").status().message()),
              HasSubstr("shard 1: each other server that runs has a copy, or no memory left"));
  EXPECT_THAT(std::string(PlanDrain(status_, "x").status().message()), HasSubstr("no server x"));
  status_.shards[1].reset();
  EXPECT_THAT(std::string(PlanDrain(status_, "b").status().message()),
              HasSubstr("shard 1 has no readable record"));
  status_.shards.pop_back();
  status_.shards[0]->record.move = ShardMove{"a", "c"};
  EXPECT_THAT(std::string(PlanDrain(status_, "b").status().message()),
              HasSubstr("shard 0: a copy moves"));
  EXPECT_THAT(PlanRebalance(status_), IsEmpty());
}

// *Else* a copy too many stays.
TEST_F(ClusterMovesTest, AMoveWhoseNewCopyHasJoinedIsNotCancelled) {
  const ClusterKeys keys("/osprey/test/");
  status_.cluster.replicas = 2;
  for (const char* id : {"a", "b", "c"}) AddServer(id, 4);
  AddShard({"a", "b"});
  ShardRecord& record = status_.shards[0]->record;
  record.move = ShardMove{"b", "c"};
  EXPECT_TRUE(CancelMove(keys, status_, 0).ok());
  record.in_sync.push_back({"c", 1, 1, ++revision_u_});
  const absl::Status refused = CancelMove(keys, status_, 0).status();
  EXPECT_TRUE(absl::IsFailedPrecondition(refused)) << refused;
  EXPECT_THAT(std::string(refused.message()),
              HasSubstr("shard 0: the new copy has joined, so the move from b to c cannot be"));
  EXPECT_THAT(std::string(refused.message()), HasSubstr("kvcli cluster move ETCD_URI 0 c b"));
  // Where another is missing, the old one is needed, and stays.
  status_.cluster.replicas = 3;
  EXPECT_TRUE(CancelMove(keys, status_, 0).ok());
}

TEST_F(ClusterMovesTest, MoreMovesThanATransactionHasAreBegunInSeveral) {
  AddServer("a", 64);
  AddServer("b", 64);
  for (int i = 0; i < 64; ++i) AddShard({"a"});
  const std::vector<PlacedMove> moves = PlanRebalance(status_);
  EXPECT_EQ(moves.size(), 32u);
  const absl::StatusOr<std::vector<PlacedMove>> drain = PlanDrain(status_, "a");
  ASSERT_TRUE(drain.ok()) << drain.status();
  const auto transactions = BeginMoves(ClusterKeys("/osprey/test/"), status_, *drain);
  ASSERT_TRUE(transactions.ok()) << transactions.status();
  ASSERT_EQ(transactions->size(), 2u);
  EXPECT_EQ((*transactions)[0].operations.size(), 32u);
  status_.servers["b"].is_renewed = false;
  EXPECT_FALSE(BeginMoves(ClusterKeys("/osprey/test/"), status_, *drain).ok());
}

}  // namespace
}  // namespace osprey
