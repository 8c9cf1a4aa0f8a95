// The simulation of a server with a data directory, and the test of it: each mistake with that
// directory shows as a wrong answer within some seeds.

#include <sys/wait.h>
#include <unistd.h>

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
#include "tests/support/subprocess.h"
#include "tests/support/volume.h"

namespace osprey {
namespace {

using index::Mutant;

SimulationReport RunSeed(uint64_t seed) { return Simulate({seed, 400, /*durable=*/true}); }

// In a separate process, which prints the seed even if it crashes.
TEST(DurableSimulationTest, EveryAnswerIsRightOverAllLives) {
  constexpr int kSeeds = 600 / kVolumeParts;
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

// In the child: 0 if it was found, in a run that is correct without it.
int Look(const Mistake& mistake) {
  for (uint64_t seed = 1; seed <= kSeedsMax; ++seed) {
    index::active_mutant = mistake.mutant;
    const SimulationReport report = RunSeed(seed);
    index::active_mutant = Mutant::kNone;
    if (report.wrong.empty()) continue;
    if (const SimulationReport right = RunSeed(seed); !right.wrong.empty()) {
      std::cout << "without any mutant, seed " << seed << ": " << right.wrong << std::endl;
      return 1;
    }
    std::cout << mistake.name << ": seed " << seed << ": " << report.wrong.substr(0, 200)
              << std::endl;
    return 0;
  }
  return 1;
}

class DurableMutantsTest : public testing::TestWithParam<Mistake> {};

// In a process of its own: a failed assertion is not an answer, and counts as not found.
TEST_P(DurableMutantsTest, IsFound) {
  std::cout << std::flush;
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) _exit(Look(GetParam()));
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFEXITED(status)) << "it crashed, by signal " << WTERMSIG(status);
  EXPECT_EQ(WEXITSTATUS(status), 0) << "nothing wrong was seen in " << kSeedsMax << " seeds";
}

#define MISTAKE(name) \
  Mistake { Mutant::name, #name }

INSTANTIATE_TEST_SUITE_P(Mutants, DurableMutantsTest,
                         testing::Values(MISTAKE(kReplyBeforeCommit), MISTAKE(kCommitWithoutSync),
                                         MISTAKE(kApplyBeforeCommit), MISTAKE(kEvictionNotLogged),
                                         MISTAKE(kResultsNotRestored), MISTAKE(kCeilingForgotten)),
                         [](const testing::TestParamInfo<Mistake>& mistake) {
                           return std::string(mistake.param.name);
                         });

}  // namespace
}  // namespace osprey
