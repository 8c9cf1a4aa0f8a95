// Many seeds of tests/simulation.h. By hand, and for hours: bazel run //tests:simulate.

#include "tests/simulation.h"

#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <string>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/simulation_plan.h"

namespace osprey {
namespace {

// Seeds of each aim, and of the mixture six times as many.
constexpr uint64_t kRounds = 20;
constexpr uint64_t kSeedsPerRound = 20;
constexpr int kOperations = 400;

TEST(SimulationTest, EveryAnswerIsRightWhateverHappens) {
  const bool is_long = std::getenv("OSPREY_TEST_LONG") != nullptr;
  const uint64_t count = kSeedsPerRound * (is_long ? 30 * kRounds : kRounds);
  SimulationReport all;
  for (uint64_t seed = 1; seed <= count; ++seed) {
    const SimulationReport report = Simulate({seed, kOperations});
    ASSERT_EQ(report.wrong, "") << "again: bazel run //tests:simulate -- --first-seed=" << seed
                                << " --seeds=1 --operations=" << kOperations;
    all.histories += report.histories;
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
    all.moved += report.moved;
    all.evicted += report.evicted;
    all.scans += report.scans;
    all.stalls += report.stalls;
  }
  std::cout << count << " seeds: " << all.operations << " operations, " << all.unknown
            << " writes unknown; " << all.gets << " GETs, " << all.torn << " torn READs, "
            << all.retries << " retries, " << all.stale_hints << " stale hints, " << all.rpc_gets
            << " GETs by message; " << all.connects << " connections, " << all.server_starts
            << " lives of the server; " << all.splits << " splits, " << all.chained
            << " chained keys, " << all.expired << " expired, " << all.moved << " items moved, "
            << all.evicted << " evicted, " << all.scans << " scans, " << all.stalls
            << " READs stalled; " << all.undecided << " of " << all.histories
            << " histories undecided\n";
  // Else this would show nothing.
  EXPECT_GT(all.torn, count);
  EXPECT_GT(all.unknown, count / 10);
  EXPECT_GT(all.splits, count);
  EXPECT_GT(all.chained, count / 10);
  EXPECT_GT(all.expired, count);
  EXPECT_GT(all.moved, count);
  EXPECT_GT(all.evicted, count);
  EXPECT_GT(all.scans, count);
  EXPECT_GT(all.stalls, count / 10);
  EXPECT_LE(2000 * all.undecided, all.histories);
}

TEST(SimulationTest, TheSameSeedIsTheSameRun) {
  for (uint64_t seed = 1; seed <= kSeedsPerRound; ++seed) {
    const SimulationReport one = Simulate({seed, 200});
    const SimulationReport two = Simulate({seed, 200});
    EXPECT_EQ(one.wrong, two.wrong);
    EXPECT_EQ(one.trace_hash, two.trace_hash) << "seed " << seed << ", aim " << one.aim;
    EXPECT_EQ(one.operations, two.operations);
  }
}

// What a process that is told of a seed alone prints of it.
std::string TraceOf(uint64_t seed) {
  FILE* const pipe = popen(
      absl::StrCat("tests/simulate --seeds=1 --operations=200 --first-seed=", seed).c_str(), "r");
  if (pipe == nullptr) return "no process";
  char line[200] = "";
  const bool read = std::fgets(line, sizeof(line), pipe) != nullptr;
  const int status = pclose(pipe);
  return read && status == 0 ? line : "nothing";
}

// Wherever the machine places things in memory.
TEST(SimulationTest, ASeedIsTheSameRunInAnotherProcess) {
  for (uint64_t seed : {2, 6, 16}) {
    const std::string trace = TraceOf(seed);
    EXPECT_THAT(trace, testing::HasSubstr("trace "));
    EXPECT_EQ(trace, TraceOf(seed));
  }
}

}  // namespace
}  // namespace osprey
