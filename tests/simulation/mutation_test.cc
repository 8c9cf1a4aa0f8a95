// The test of the simulation: each mutant of index/layout/test_hooks.h shows as a wrong answer
// within some seeds. Each is tried in seeds of the one aim that shows it soonest. The same seeds
// without the mutant are among those of simulation_test, and of `simulate`.

#include <cstdint>
#include <ostream>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/string_view.h"
#include "gtest/gtest.h"
#include "index/layout/test_hooks.h"
#include "tests/simulation/plan.h"
#include "tests/simulation/simulation.h"
#include "tests/support/mistake_hunt.h"

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

std::vector<uint64_t> SeedsOf(Aim aim) {
  std::vector<uint64_t> seeds;
  for (uint64_t seed = 1; seeds.size() < kSeedsMax; ++seed) {
    if (AimOf(seed) == aim) seeds.push_back(seed);
  }
  return seeds;
}

class MutationTest : public testing::TestWithParam<Bug> {};

TEST_P(MutationTest, IsNoticed) {
  const std::vector<uint64_t> seeds = SeedsOf(GetParam().aim);
  ExpectFound(GetParam().name, seeds, [](uint64_t seed, bool has_mistake) {
    index::active_mutant = has_mistake ? GetParam().bug : Mutant::kNone;
    const std::string wrong = Simulate({seed, 400}).wrong;
    return !has_mistake || IsWrongAnswer(wrong) ? wrong : "";
  });
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
