// The test of the simulation: each mistake of server/wal/format/test_hooks.h shows within some seeds, in a
// run that is right without it. Two rules guard some mistakes: these show only together.

#include <sys/wait.h>
#include <unistd.h>

#include <iostream>
#include <ostream>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "server/wal/format/test_hooks.h"
#include "tests/server/wal/wal_simulation.h"

namespace osprey::server::wal {
namespace {

constexpr uint64_t kSeedsMax = 6000;

struct Mistake {
  std::string name;
  std::vector<Mutant> mutants;
};

void PrintTo(const Mistake& mistake, std::ostream* out) { *out << mistake.name; }

std::string RunSeed(uint64_t seed) {
  SimulationCounts counts;
  SimulationOptions options;
  options.seed = seed;
  return SimulateWal(options, counts);
}

// In the child: 0 if it was found.
int Look(const Mistake& mistake) {
  uint64_t bits = 0;
  for (const Mutant mutant : mistake.mutants) bits |= MutantBit(mutant);
  for (uint64_t seed = 1; seed <= kSeedsMax; ++seed) {
    active_mutants = bits;
    const std::string wrong = RunSeed(seed);
    active_mutants = 0;
    if (wrong.empty()) continue;
    if (const std::string right = RunSeed(seed); !right.empty()) {
      std::cout << "without any mutant, seed " << seed << ": " << right << std::endl;
      return 1;
    }
    std::cout << mistake.name << ": seed " << seed << ": " << wrong << std::endl;
    return 0;
  }
  return 1;
}

class WalMutantsTest : public testing::TestWithParam<Mistake> {};

// In a process of its own: a failed assertion is not an answer, and counts as not found.
TEST_P(WalMutantsTest, IsFound) {
  std::cout << std::flush;
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) _exit(Look(GetParam()));
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFEXITED(status)) << "it crashed, by signal " << WTERMSIG(status);
  EXPECT_EQ(WEXITSTATUS(status), 0) << "nothing wrong was seen in " << kSeedsMax << " seeds";
}

#define MUTANT(name)        \
  Mistake {                 \
#name, { Mutant::name } \
  }

INSTANTIATE_TEST_SUITE_P(
    Mutants, WalMutantsTest,
    testing::Values(Mistake{"kNoChain_kNoLife", {Mutant::kNoChain, Mutant::kNoLife}},
                    MUTANT(kNoSyncedTo), MUTANT(kTailNotRewritten), MUTANT(kNewSegmentNotSynced),
                    MUTANT(kOldEndNotNamed), MUTANT(kCloseBeforeHeader), MUTANT(kNoClose),
                    MUTANT(kAckBeforeSync), MUTANT(kSyncCoversLaterWrites),
                    MUTANT(kOldSegmentNotSynced), MUTANT(kSyncErrorForgotten),
                    MUTANT(kWriteErrorForgotten), MUTANT(kDirectoryNotSynced),
                    MUTANT(kCurrentBeforeParts), MUTANT(kPartsNotVerified), MUTANT(kLogBehindWalk),
                    MUTANT(kOldFilesRemovedFirst)),
    [](const testing::TestParamInfo<Mistake>& mistake) { return mistake.param.name; });

}  // namespace
}  // namespace osprey::server::wal
