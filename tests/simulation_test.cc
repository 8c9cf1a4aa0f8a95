// Many seeds of tests/simulation.h. By hand: bazel run //tests:simulation_test -- --seed=17
// [--operations=400]

#include "tests/simulation.h"

#include <cstdlib>
#include <iostream>
#include <string>

#include "absl/strings/numbers.h"
#include "absl/strings/strip.h"
#include "gtest/gtest.h"

namespace osprey {
namespace {

uint64_t seed_given = 0;
int operations_given = 400;

TEST(SimulationTest, EveryAnswerIsRightWhateverHappens) {
  const bool is_long = std::getenv("OSPREY_TEST_LONG") != nullptr;
  const uint64_t first = seed_given == 0 ? 1 : seed_given;
  const uint64_t count = seed_given != 0 ? 1 : is_long ? 5000 : 150;
  SimulationReport all;
  for (uint64_t seed = first; seed < first + count; ++seed) {
    const SimulationReport report = Simulate({seed, operations_given});
    ASSERT_EQ(report.wrong, "") << "again: bazel run //tests:simulation_test -- --seed=" << seed
                                << " --operations=" << operations_given;
    all.undecided += report.undecided;
    all.operations += report.operations;
    all.unknown += report.unknown;
    all.gets += report.gets;
    all.torn += report.torn;
    all.retries += report.retries;
    all.stale_hints += report.stale_hints;
    all.rpc_gets += report.rpc_gets;
    all.connects += report.connects;
    all.server_starts += report.server_starts;
    all.splits += report.splits;
    all.chained += report.chained;
    all.expired += report.expired;
  }
  std::cout << count << " seeds: " << all.operations << " operations, " << all.unknown
            << " writes unknown; " << all.gets << " GETs, " << all.torn << " torn READs, "
            << all.retries << " retries, " << all.stale_hints << " stale hints, " << all.rpc_gets
            << " GETs by message; " << all.connects << " connections, " << all.server_starts
            << " lives of the server; " << all.splits << " splits, " << all.chained
            << " chained keys, " << all.expired << " expired; " << all.undecided
            << " histories undecided\n";
  if (count == 1) return;
  // Else this would show nothing.
  EXPECT_GT(all.torn, count / 10);
  EXPECT_GT(all.unknown, count / 10);
  EXPECT_GT(all.splits, count);
  EXPECT_GT(all.chained, count / 10);
  EXPECT_GT(all.expired, count);
  EXPECT_LE(all.undecided, count / 100);
}

TEST(SimulationTest, TheSameSeedIsTheSameRun) {
  for (uint64_t seed : {3, 4, 5}) {
    const SimulationReport one = Simulate({seed, 200});
    const SimulationReport two = Simulate({seed, 200});
    EXPECT_EQ(one.wrong, two.wrong);
    EXPECT_EQ(one.retries, two.retries);
    EXPECT_EQ(one.torn, two.torn);
    EXPECT_EQ(one.connects, two.connects);
    EXPECT_EQ(one.operations, two.operations);
  }
}

}  // namespace
}  // namespace osprey

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  for (int i = 1; i < argc; ++i) {
    absl::string_view flag = argv[i];
    const bool known =
        (absl::ConsumePrefix(&flag, "--seed=") && absl::SimpleAtoi(flag, &osprey::seed_given)) ||
        (absl::ConsumePrefix(&flag, "--operations=") &&
         absl::SimpleAtoi(flag, &osprey::operations_given));
    if (!known) return std::cerr << "usage: simulation_test [--seed=N] [--operations=N]\n", 2;
  }
  return RUN_ALL_TESTS();
}
