// A cluster's servers under faults. Claim: what clients have seen as done stays, in its order, each write
// is made once, and the cluster is whole again when the faults end.

#include <cstdint>
#include <cstdlib>
#include <string>

#include "gtest/gtest.h"
#include "server/cluster/replication/test_hooks.h"
#include "tests/server/cluster/member/member_world.h"
#include "tests/support/volume.h"

namespace osprey {
namespace {

constexpr absl::Duration kWithFaults = absl::Seconds(60);

// Empty, or what is wrong.
std::string RunWorld(MemberWorld& world, absl::Duration with_faults = kWithFaults) {
  return world.Run(with_faults, absl::Seconds(30));
}

void RunSeeds(uint64_t first, uint64_t last, const MemberWorldOptions& options,
              absl::Duration with_faults = kWithFaults) {
  uint64_t acknowledged = 0, reads = 0, region_reads = 0, terms = 0, faults = 0, lost = 0,
           moves = 0;
  for (uint64_t seed = first; seed <= last; ++seed) {
    MemberWorld world(seed, options);
    ASSERT_EQ(RunWorld(world, with_faults), "") << "seed " << seed;
    acknowledged += world.stats().acknowledged;
    reads += world.stats().reads;
    region_reads += world.stats().region_reads;
    terms += world.stats().terms;
    faults += world.stats().faults;
    moves += world.stats().moves;
    lost += world.stats().lost_all;
  }
  const uint64_t seeds = last - first + 1;
  // Else it has shown nothing.
  EXPECT_GT(acknowledged, 200 * seeds);
  EXPECT_GT(reads, 1000 * seeds);
  EXPECT_GT(region_reads, 1000 * seeds);
  EXPECT_GT(terms, 4 * seeds);
  EXPECT_LE(lost, (seeds + 19) / 20);
  const bool can_move = static_cast<int>(options.replicas) < options.servers;
  EXPECT_TRUE(!can_move || moves > seeds / 2) << moves;
  testing::Test::RecordProperty("acknowledged", static_cast<int>(acknowledged));
  testing::Test::RecordProperty("reads", static_cast<int>(reads));
  testing::Test::RecordProperty("region_reads", static_cast<int>(region_reads));
  testing::Test::RecordProperty("terms", static_cast<int>(terms));
  testing::Test::RecordProperty("faults", static_cast<int>(faults));
  testing::Test::RecordProperty("moves", static_cast<int>(moves));
  testing::Test::RecordProperty("lost", static_cast<int>(lost));
}

TEST(MemberSimulationTest, TwoReplicas) { RunSeeds(1, 60 / kLongVolumeParts, {.replicas = 2}); }
TEST(MemberSimulationTest, ThreeReplicas) { RunSeeds(1, 60 / kLongVolumeParts, {.replicas = 3}); }
// Of 8 copies, 9 have memory.
TEST(MemberSimulationTest, MemoryForAPartOfTheShards) {
  RunSeeds(1, 60 / kLongVolumeParts, {.replicas = 2, .slots = 3});
}
// Of 192 copies, 256 have memory.
TEST(MemberSimulationTest, SixtyFourServers) {
  if (kVolumeParts > 1) GTEST_SKIP() << "in the build that ships, since it takes long";
  const bool is_long = std::getenv("OSPREY_TEST_LONG") != nullptr;
  RunSeeds(1, is_long ? 20 : 1, {.servers = 64, .shards = 64, .replicas = 3, .slots = 4},
           is_long ? kWithFaults : absl::Seconds(10));
}

class MemberMistakesTest : public testing::TestWithParam<ReplicationMistake> {
 protected:
  ~MemberMistakesTest() override { active_mistake = ReplicationMistake::kNone; }
};

TEST_P(MemberMistakesTest, IsFound) {
  if (!kSearchesMistakes) GTEST_SKIP() << "searched in the build that ships";
  active_mistake = GetParam();
  for (uint64_t seed = 1; seed <= 400; ++seed) {
    const MemberWorldOptions options{.replicas = static_cast<uint32_t>(2 + seed % 2)};
    MemberWorld world(seed, options);
    if (RunWorld(world).empty()) continue;
    RecordProperty("seed", static_cast<int>(seed));
    active_mistake = ReplicationMistake::kNone;
    MemberWorld without(seed, options);
    EXPECT_EQ(RunWorld(without), "") << "seed " << seed << ", without the mistake";
    return;
  }
  ADD_FAILURE() << "no seed has found it";
}

INSTANTIATE_TEST_SUITE_P(Mistakes, MemberMistakesTest,
                         testing::Values(ReplicationMistake::kAnswersWithoutRight,
                                         ReplicationMistake::kAddsPartOfCopy,
                                         ReplicationMistake::kHandsOverAtOnce,
                                         ReplicationMistake::kSwapsBeforeReads,
                                         ReplicationMistake::kLinksMembersOnly));

}  // namespace
}  // namespace osprey
