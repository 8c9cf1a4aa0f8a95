// Some seeds of tests/simulation/simulation.h. The suite "simulation" of tools/test runs many, and
// by hand: bazel run //tests/simulation:simulate.

#include "tests/simulation/simulation.h"

#include <iostream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "index/layout/test_hooks.h"
#include "tests/support/subprocess.h"
#include "tests/support/volume.h"

namespace osprey {
namespace {

using testing::HasSubstr;
using testing::Not;

// One of each aim, and five of the mixture.
constexpr uint64_t kSeedsPerRound = 20;

ProgramResult RunSimulate(std::vector<std::string> flags) {
  flags.insert(flags.begin(), "tests/simulation/simulate");
  ProgramOptions options;
  options.timeout = absl::Minutes(14);
  return RunProgram(flags, options);
}

// In a separate process, which prints the seed even if it crashes.
TEST(SimulationTest, EveryAnswerIsRightWhateverHappens) {
  constexpr int kSeeds = 400 / kLongVolumeParts;
  const ProgramResult result = RunSimulate({absl::StrCat("--seeds=", kSeeds), "--operations=400"});
  std::cout << result.out;
  EXPECT_EQ(result.exit_status, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr(absl::StrCat(kSeeds, " seeds: ")));
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

// The result does not depend on memory addresses.
TEST(SimulationTest, ASeedIsTheSameRunInAnotherProcess) {
  for (uint64_t seed : {2, 6, 16}) {
    const auto trace = [&] {
      return RunSimulate({"--seeds=1", "--operations=200", absl::StrCat("--first-seed=", seed)})
          .out;
    };
    const std::string once = trace();
    EXPECT_THAT(once, HasSubstr("trace "));
    EXPECT_EQ(once, trace());
  }
}

// A slow client had no turn for 737 ms. It is not late if it ends the operation in the next one.
TEST(SimulationTest, AClientWithFewTurnsEndsAnOperationInTheNextOne) {
  EXPECT_EQ(Simulate({21245, 5000}).wrong, "");
}

TEST(SimulationTest, FailurePrintsTheCommandThatReproducesIt) {
  const auto flags = [](uint64_t first, uint64_t seeds) {
    return std::vector<std::string>{
        absl::StrCat("--first-seed=", first), absl::StrCat("--seeds=", seeds), "--operations=400",
        absl::StrCat("--mutant=", static_cast<int>(index::Mutant::kKeyNotCompared))};
  };
  const ProgramResult result = RunSimulate(flags(1, 20));
  EXPECT_EQ(result.exit_status, 1);
  EXPECT_THAT(result.out, HasSubstr("no order explains"));
  EXPECT_THAT(result.out,
              HasSubstr("again: bazel run //tests/simulation:simulate -- --first-seed=2 --seeds=1 "
                        "--operations=400 --mutant="));
  EXPECT_THAT(RunSimulate(flags(2, 1)).out, HasSubstr("no order explains"));
}

TEST(SimulationTest, CrashPrintsItsSeedAndTheResumeCommand) {
  const ProgramResult result =
      RunSimulate({"--first-seed=3", "--seeds=8", "--operations=10", "--jobs=2", "--crash-at=6"});
  EXPECT_EQ(result.exit_status, 1);
  EXPECT_THAT(result.out, HasSubstr("CRASHED, by s"));
  EXPECT_THAT(result.out,
              HasSubstr("again: bazel run //tests/simulation:simulate -- --first-seed=6 --seeds=1 "
                        "--operations=10\n"));
  EXPECT_THAT(result.out, Not(HasSubstr("signal 15")));  // of the other process
  EXPECT_THAT(result.err, HasSubstr("go on with --first-seed="));
}

TEST(SimulationTest, ARunThatShowsNothingIsVoid) {
  SimulationCounts counts;
  EXPECT_THAT(counts.Void(100, false), HasSubstr("only 0 torn READs"));
  counts.histories = 1'000'000;
  counts.undecided = 2002;
  EXPECT_THAT(counts.Void(0, false), HasSubstr("2002 histories undecided"));
  counts.undecided = 2000;
  EXPECT_EQ(counts.Void(0, false), "");
  // Seeds differ: 300 with one operation each prove nothing.
  const ProgramResult result = RunSimulate({"--seeds=300", "--operations=1"});
  EXPECT_EQ(result.exit_status, 1);
  EXPECT_THAT(result.out, HasSubstr("VOID: only "));
}

}  // namespace
}  // namespace osprey
