// Some seeds of the simulation of a cluster, and mistakes that it finds. simulate_cluster runs many seeds.

#include "tests/simulation/cluster/cluster_simulation.h"

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <iostream>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "server/cluster/replication/test_hooks.h"
#include "tests/support/mistake_hunt.h"

namespace osprey {
namespace {

bool IsLong() { return std::getenv("OSPREY_TEST_LONG") != nullptr; }

TEST(ClusterSimulationTest, EveryAnswerIsRightWhateverHappens) {
  const uint64_t seeds = IsLong() ? 3000 : 30;
  ClusterCounts counts;
  for (uint64_t seed = 1; seed <= seeds; ++seed) {
    const ClusterReport report = SimulateCluster({.seed = seed, .operations = 300});
    ASSERT_EQ(report.wrong, "");
    counts.Add(report);
  }
  std::cout << counts.ToString() << std::endl;
  EXPECT_EQ(counts.Void(), "");
}

// None waits until its deadline, say. (Of 1061: long puts of one connection, where the later one is whole first.)
TEST(ClusterSimulationTest, WithoutFaultsNoOperationFails) {
  std::vector<uint64_t> seeds = {1061};
  for (uint64_t seed = 1; seed <= (IsLong() ? 1000u : 20u); ++seed) seeds.push_back(seed);
  for (const uint64_t seed : seeds)
    ASSERT_EQ(SimulateCluster({.seed = seed, .operations = 300, .has_faults = false}).wrong, "");
}

// A primary that is to end has no link to the other member, and waits for one. *Else* it ends with the data (4297).
TEST(ClusterSimulationTest, APrimaryWithoutALinkEndsWithoutLoss) {
  for (const uint64_t seed : {4213, 4297})
    EXPECT_EQ(SimulateCluster({.seed = seed, .operations = 300}).wrong, "");
}

// A server that is to end becomes the primary of shards whose last one comes back at once.
TEST(ClusterSimulationTest, AServerThatEndsKeepsNoShardToItself) {
  for (const uint64_t seed : {7713, 9374})
    EXPECT_EQ(SimulateCluster({.seed = seed, .operations = 300}).wrong, "");
}

// A move ends with its server, and two others have joined instead of it. *Else* there is one copy too many.
TEST(ClusterSimulationTest, AMoveThatEndsLeavesNoCopyTooMany) {
  EXPECT_EQ(SimulateCluster({.seed = 21340, .operations = 300}).wrong, "");
}

// Without a bound they hand over to each other for ever.
TEST(ClusterSimulationTest, ServersThatEndTogetherEnd) {
  EXPECT_EQ(SimulateCluster({.seed = 16096, .operations = 300}).wrong, "");
}

// The clock is ahead, and the shard without a primary for longer than a mark is ahead of it. *Else* a key ends late.
TEST(ClusterSimulationTest, KeysEndInTimeAfterSeveralFailovers) {
  EXPECT_EQ(SimulateCluster({.seed = 1021, .operations = 300}).wrong, "");
}

TEST(ClusterSimulationTest, TheSameSeedIsTheSameRun) {
  for (const uint64_t seed : {3, 8}) {
    const ClusterReport one = SimulateCluster({.seed = seed, .operations = 200});
    const ClusterReport two = SimulateCluster({.seed = seed, .operations = 200});
    EXPECT_EQ(one.trace_hash, two.trace_hash);
    EXPECT_EQ(one.virtual_ms, two.virtual_ms);
    EXPECT_EQ(one.switches, two.switches);
  }
}

// With these seeds, of which simulate_cluster has found each.
struct Mistaken {
  const char* name;
  ReplicationMistake mistake;
  std::vector<uint64_t> seeds;
};

class ClusterMistakesTest : public testing::TestWithParam<Mistaken> {};

TEST_P(ClusterMistakesTest, IsFound) {
  ExpectFound(GetParam().name, GetParam().seeds, [](uint64_t seed, bool has_mistake) {
    return SimulateCluster(
               {.seed = seed,
                .operations = 300,
                .mistake = has_mistake ? GetParam().mistake : ReplicationMistake::kNone})
        .wrong;
  });
}

INSTANTIATE_TEST_SUITE_P(
    Mistakes, ClusterMistakesTest,
    testing::Values(
        Mistaken{"answers uncommitted",
                 ReplicationMistake::kAnswersUncommitted,
                 {39, 84, 119, 120, 131, 154}},
        Mistaken{"expiry not reported", ReplicationMistake::kExpiryNotReported, {8, 9, 10}},
        Mistaken{"parts count at once", ReplicationMistake::kPartsCountAtOnce, {537, 569, 657}}),
    [](const auto& one) {
      std::string name = one.param.name;
      std::replace(name.begin(), name.end(), ' ', '_');
      return name;
    });

TEST(ClusterSimulationTest, ARunWithTooFewEventsIsVoid) {
  ClusterCounts counts;
  counts.runs = 100;
  EXPECT_NE(counts.Void(), "");
}

}  // namespace
}  // namespace osprey
