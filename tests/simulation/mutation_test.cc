// The test of the simulation: each mutant of index/layout/test_hooks.h shows as a wrong answer
// within some seeds. Each is tried in seeds of the one aim that shows it soonest. The same seeds
// without the mutant are among those of simulation_test, and of `simulate`.
//
// In a separate process: a failed assertion is not an answer, and counts as not found.

#include <sys/wait.h>
#include <unistd.h>

#include <iostream>
#include <ostream>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/string_view.h"
#include "gtest/gtest.h"
#include "index/layout/test_hooks.h"
#include "tests/simulation/plan.h"
#include "tests/simulation/simulation.h"

namespace osprey {
namespace {

using index::Mutant;

constexpr uint64_t kSeedsMax = 600;  // of the aim

struct Bug {
  Mutant bug;
  const char* name;
  Aim aim;
};

void PrintTo(const Bug& bug, std::ostream* out) { *out << bug.name; }

// Whether the failure is a wrong answer, and not a leftover, a late or a missing answer.
bool IsWrongAnswer(absl::string_view wrong) {
  return absl::StartsWith(wrong, "key '") || absl::StartsWith(wrong, "a scan ");
}

// In the child: 0 if it was found, in a run that is correct without it.
int Look(const Bug& bug) {
  uint64_t tried = 0;
  for (uint64_t seed = 1; tried < kSeedsMax; ++seed) {
    if (AimOf(seed) != bug.aim) continue;
    ++tried;
    index::active_mutant = bug.bug;
    const SimulationReport report = Simulate({seed, 400});
    if (!IsWrongAnswer(report.wrong)) continue;
    index::active_mutant = Mutant::kNone;
    if (const SimulationReport right = Simulate({seed, 400}); !right.wrong.empty()) {
      std::cout << "without any bug, seed " << seed << ": " << right.wrong << std::endl;
      return 1;
    }
    std::cout << bug.name << ": seed " << seed << ", the " << tried << "th with aim "
              << NameOf(bug.aim) << ": " << report.wrong.substr(0, 200) << std::endl;
    return 0;
  }
  return 1;
}

class MutationTest : public testing::TestWithParam<Bug> {};

TEST_P(MutationTest, IsNoticed) {
  std::cout << std::flush;
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) _exit(Look(GetParam()));
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFEXITED(status)) << "it crashed, by signal " << WTERMSIG(status);
  EXPECT_EQ(WEXITSTATUS(status), 0) << "no wrong answer was seen in " << kSeedsMax << " seeds";
}

#define BUG(name, aim) \
  Bug { Mutant::name, #name, Aim::aim }

INSTANTIATE_TEST_SUITE_P(
    Bugs, MutationTest,
    testing::Values(BUG(kNewItemLiveBeforeOldIsDead, kOneKey), BUG(kNoDeadMarkOnUpdate, kOneKey),
                    BUG(kNoDeadMarkOnDelete, kOneKey), BUG(kNoDeadMarkOnPromotion, kWindow),
                    BUG(kSlotClearedBeforeDeadMark, kOneKey), BUG(kMoveInsideWindow, kWindow),
                    BUG(kMoveFromWindowToChain, kWindow),
                    BUG(kMoveFromOverflowIntoSecondLine, kChain),
                    BUG(kChainSourceClearedFirst, kChain), BUG(kMiddleOfChainUnlinked, kMiddle),
                    BUG(kDirectoryBeforeCopy, kGrowth), BUG(kOldLinesNotPoisoned, kGrowth),
                    BUG(kGenerationKeptOnReuse, kGrowth), BUG(kWriteDuringSplit, kGrowth),
                    BUG(kNoDeadMarkOnMove, kMoves), BUG(kChangedItemMoved, kMoves),
                    BUG(kExpiryIgnored, kExpiry), BUG(kNoSecondLook, kExpiry),
                    BUG(kNoItemChecksum, kOneKey), BUG(kChecksumWithoutVersion, kRepeats),
                    BUG(kChecksumWithoutOffset, kForgery), BUG(kChecksumWithoutIncarnation, kLives),
                    BUG(kDeadIsMiss, kTwins), BUG(kKeyNotCompared, kTwins),
                    BUG(kPiecesNotVerified, kPieces), BUG(kStateNotCompared, kOneKey),
                    BUG(kMappedProbeTrusted, kWindow), BUG(kFingerprintNotConfirmed, kTwins),
                    BUG(kConfirmedBySlot, kTwins), BUG(kChainMissNotConfirmed, kChain),
                    BUG(kChainMissConfirmedTooEarly, kMiddle), BUG(kGenerationOfOneLine, kGrowth),
                    BUG(kGenerationUnchecked, kGrowth), BUG(kAbsentByLatestTime, kExpiry),
                    BUG(kPresentByEarliestTime, kExpiry), BUG(kClientClockSlewed, kExpiry),
                    BUG(kServerClockSlewed, kExpiry), BUG(kVersionsRepeat, kLives),
                    BUG(kAckBeforePublish, kOneKey), BUG(kScanNotConfirmed, kScanRace),
                    BUG(kMergeMissedByCursor, kScans)),
    [](const testing::TestParamInfo<Bug>& bug) { return std::string(bug.param.name); });

}  // namespace
}  // namespace osprey
