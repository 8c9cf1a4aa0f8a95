// The servers of one shard under failures. Claim: what clients have seen as done stays, in its order,
// and each write is made once. Each mistake of test_hooks.h is found by it.

#include <cstdint>
#include <string>

#include "gtest/gtest.h"
#include "server/cluster/replication/test_hooks.h"
#include "tests/server/cluster/replication/replication_world.h"

namespace osprey {
namespace {

constexpr int kSteps = 2500;

// Empty, or what is wrong.
std::string RunWorld(ReplicationWorld& world) {
  for (int step = 0; step < kSteps; ++step) {
    if (std::string wrong = world.Step(); !wrong.empty()) return wrong;
  }
  return "";
}

TEST(ReplicationSimulationTest, WhatWasSeenStays) {
  uint64_t acknowledged = 0, promotions = 0, joins = 0, hand_overs = 0;
  for (uint64_t seed = 1; seed <= 5000; ++seed) {
    ReplicationWorld world(seed, LimitsOf(seed));
    ASSERT_EQ(RunWorld(world), "") << "seed " << seed;
    acknowledged += world.acknowledged();
    promotions += world.promotions();
    joins += world.joins();
    hand_overs += world.hand_overs();
  }
  EXPECT_GT(acknowledged, 50000u);
  EXPECT_GT(promotions, 2000u);
  EXPECT_GT(joins, 1000u);
  EXPECT_GT(hand_overs, 500u);
  RecordProperty("acknowledged", static_cast<int>(acknowledged));
  RecordProperty("promotions", static_cast<int>(promotions));
  RecordProperty("joins", static_cast<int>(joins));
  RecordProperty("hand_overs", static_cast<int>(hand_overs));
}

class ReplicationMistakesTest : public testing::TestWithParam<ReplicationMistake> {
 protected:
  ~ReplicationMistakesTest() override { active_mistake = ReplicationMistake::kNone; }
};

TEST_P(ReplicationMistakesTest, IsFound) {
  active_mistake = GetParam();
  for (uint64_t seed = 1; seed <= 20000; ++seed) {
    ReplicationWorld world(seed, LimitsOf(seed));
    if (!RunWorld(world).empty()) {
      RecordProperty("seed", static_cast<int>(seed));
      return;
    }
  }
  ADD_FAILURE() << "no seed has found it";
}

INSTANTIATE_TEST_SUITE_P(
    Mistakes, ReplicationMistakesTest,
    testing::Values(ReplicationMistake::kTakesLowerTerm, ReplicationMistake::kDropsPendingEagerly,
                    ReplicationMistake::kAppliesUnconfirmed,
                    ReplicationMistake::kSameLsnIsSameGroup, ReplicationMistake::kAppliesAtOnce,

                    ReplicationMistake::kServesBeforeTail, ReplicationMistake::kDropsTail,
                    ReplicationMistake::kCommitsTailAlone, ReplicationMistake::kAddsBehind,
                    ReplicationMistake::kCommitsBelowMin, ReplicationMistake::kAddsAheadOfMembers,
                    ReplicationMistake::kDiscardsEarly, ReplicationMistake::kJoinsWithGap));

}  // namespace
}  // namespace osprey
