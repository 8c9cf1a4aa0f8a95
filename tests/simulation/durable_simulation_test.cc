// The simulation of a server with a data directory, and the test of it: each mistake with that
// directory shows as a wrong answer within some seeds.

#include <iostream>
#include <ostream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "index/layout/test_hooks.h"
#include "tests/simulation/simulation.h"
#include "tests/support/mistake_hunt.h"
#include "tests/support/subprocess.h"
#include "tests/support/volume.h"

namespace osprey {
namespace {

using index::Mutant;

SimulationReport RunSeed(uint64_t seed) { return Simulate({seed, 400, /*durable=*/true}); }

// In a separate process, which prints the seed even if it crashes.
TEST(DurableSimulationTest, EveryAnswerIsRightOverAllLives) {
  constexpr int kSeeds = 600 / kLongVolumeParts;
  ProgramOptions options;
  options.timeout = absl::Minutes(14);
  const ProgramResult result =
      RunProgram({"tests/simulation/simulate", absl::StrCat("--seeds=", kSeeds), "--operations=400",
                  "--durable=1"},
                 options);
  std::cout << result.out;
  EXPECT_EQ(result.exit_status, 0) << result.err;
  EXPECT_THAT(result.out, testing::HasSubstr(absl::StrCat(kSeeds, " seeds: ")));
}

TEST(DurableSimulationTest, TheSameSeedIsTheSameRun) {
  for (uint64_t seed = 1; seed <= 20; ++seed)
    EXPECT_EQ(RunSeed(seed).trace_hash, RunSeed(seed).trace_hash) << "seed " << seed;
}

// --- Mistakes ------------------------------------------------------------------------------------

constexpr uint64_t kSeedsMax = 3000;

struct Mistake {
  Mutant mutant;
  const char* name;
};

void PrintTo(const Mistake& mistake, std::ostream* out) { *out << mistake.name; }

class DurableMutantsTest : public testing::TestWithParam<Mistake> {};

TEST_P(DurableMutantsTest, IsFound) {
  ExpectFound(GetParam().name, SeedsUpTo(kSeedsMax), [](uint64_t seed, bool has_mistake) {
    index::active_mutant = has_mistake ? GetParam().mutant : Mutant::kNone;
    return RunSeed(seed).wrong;
  });
}

#define MISTAKE(name) \
  Mistake { Mutant::name, #name }

INSTANTIATE_TEST_SUITE_P(Mutants, DurableMutantsTest,
                         testing::Values(MISTAKE(kReplyBeforeCommit), MISTAKE(kCommitWithoutSync),
                                         MISTAKE(kApplyBeforeCommit), MISTAKE(kEvictionNotLogged),
                                         MISTAKE(kResultsNotRestored), MISTAKE(kCeilingForgotten),
                                         MISTAKE(kTimeMarkForgotten), MISTAKE(kPiecesAbsorbed)),
                         [](const testing::TestParamInfo<Mistake>& mistake) {
                           return std::string(mistake.param.name);
                         });

}  // namespace
}  // namespace osprey
