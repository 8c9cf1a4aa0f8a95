// The test of the test: the interleaving of tests/index/interleaving.h finds mistakes that
// index/README.md's rules exclude, each made on purpose.

#include <iostream>
#include <string>

#include "gtest/gtest.h"
#include "index/layout/test_hooks.h"
#include "tests/index/interleaving.h"

namespace osprey::index {
namespace {

struct Bug {
  Mutant bug;
  const char* name;
  Scene scene = Scene::kSteady;
};

class MutantTest : public testing::TestWithParam<Bug> {
 protected:
  void SetUp() override { active_mutant = GetParam().bug; }
  void TearDown() override { active_mutant = Mutant::kNone; }
};

// Prints the first seed that shows it. The mistakes that are missing here (partial checksums,
// generations, a chain's middle) have other tests: record_test, lookup_test.
TEST_P(MutantTest, IsNoticed) {
  constexpr uint64_t kSeedsMax = 1200;
  for (uint64_t seed = 1; seed <= kSeedsMax; ++seed) {
    Interleaving interleaving(seed, GetParam().scene);
    const std::string wrong = interleaving.Run(400);
    if (wrong.empty()) continue;
    std::cout << "seed " << seed << ": " << wrong << "\n";
    return;
  }
  FAIL() << "nothing wrong was seen in " << kSeedsMax << " runs";
}

#define BUG(name) \
  Bug { Mutant::name, #name }
#define BUG_OF_GROWTH(name) \
  Bug { Mutant::name, #name, Scene::kGrowing }
#define BUG_OF_TIME(name) \
  Bug { Mutant::name, #name, Scene::kExpiring }

INSTANTIATE_TEST_SUITE_P(
    Bugs, MutantTest,
    testing::Values(BUG(kNewItemLiveBeforeOldIsDead), BUG(kNoDeadMarkOnUpdate),
                    BUG(kNoDeadMarkOnDelete), BUG(kNoDeadMarkOnPromotion), BUG(kNoDeadMarkOnMove),
                    BUG(kChangedItemMoved), BUG(kSlotClearedBeforeDeadMark), BUG(kMoveInsideWindow),
                    BUG(kMoveFromWindowToChain), BUG(kMoveFromOverflowIntoSecondLine),
                    BUG(kChainSourceClearedFirst), BUG(kNoItemChecksum), BUG(kDeadIsMiss),
                    BUG(kKeyNotCompared), BUG(kPiecesNotVerified), BUG(kStateNotCompared),
                    BUG(kFingerprintNotConfirmed), BUG(kConfirmedBySlot),
                    BUG(kChainMissNotConfirmed), BUG(kChainMissConfirmedTooEarly),
                    BUG_OF_GROWTH(kDirectoryBeforeCopy), BUG_OF_GROWTH(kOldLinesNotPoisoned),
                    BUG_OF_GROWTH(kGenerationKeptOnReuse), BUG_OF_GROWTH(kWriteDuringSplit),
                    BUG_OF_GROWTH(kGenerationUnchecked), BUG_OF_TIME(kExpiryIgnored),
                    BUG_OF_TIME(kNoSecondLook), BUG_OF_TIME(kAbsentByLatestTime),
                    BUG_OF_TIME(kPresentByEarliestTime)),
    [](const testing::TestParamInfo<Bug>& bug) { return std::string(bug.param.name); });

}  // namespace
}  // namespace osprey::index
