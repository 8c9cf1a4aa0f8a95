// Some seeds of the simulation of a cluster, and mistakes that it finds. simulate_cluster runs many seeds.

#include "tests/simulation/cluster/cluster_simulation.h"

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

TEST(ClusterSimulationTest, TheSameSeedIsTheSameRun) {
  for (const uint64_t seed : {3, 8}) {
    const ClusterReport one = SimulateCluster({.seed = seed, .operations = 200});
    const ClusterReport two = SimulateCluster({.seed = seed, .operations = 200});
    EXPECT_EQ(one.trace_hash, two.trace_hash);
    EXPECT_EQ(one.virtual_ms, two.virtual_ms);
    EXPECT_EQ(one.switches, two.switches);
  }
}

TEST(ClusterSimulationTest, ARunWithTooFewEventsIsVoid) {
  ClusterCounts counts;
  counts.runs = 100;
  EXPECT_NE(counts.Void(), "");
}

}  // namespace
}  // namespace osprey
