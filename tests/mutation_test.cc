// The test of the simulation: mistakes of index/test_hooks.h, each made on purpose, show as a wrong
// answer within some seeds. (The others need more than chance brings here:
// index_seeded_bugs_test and the tests that tests/README.md names have them.)

#include <iostream>
#include <ostream>
#include <string>

#include "gtest/gtest.h"
#include "index/test_hooks.h"
#include "tests/simulation.h"

namespace osprey {
namespace {

using index::SeededBug;

struct Bug {
  SeededBug bug;
  const char* name;
};

void PrintTo(const Bug& bug, std::ostream* out) { *out << bug.name; }

class MutationTest : public testing::TestWithParam<Bug> {
 protected:
  void SetUp() override { index::seeded_bug = GetParam().bug; }
  void TearDown() override { index::seeded_bug = SeededBug::kNone; }
};

TEST_P(MutationTest, IsNoticed) {
  constexpr uint64_t kSeedsMax = 3000;
  for (uint64_t seed = 1; seed <= kSeedsMax; ++seed) {
    const SimulationReport report = Simulate({seed, 400});
    if (report.wrong.empty()) continue;
    std::cout << "seed " << seed << ": " << report.wrong.substr(0, 300) << "\n";
    return;
  }
  FAIL() << "nothing wrong was seen in " << kSeedsMax << " seeds";
}

#define BUG(name) \
  Bug { SeededBug::name, #name }

INSTANTIATE_TEST_SUITE_P(
    Bugs, MutationTest,
    testing::Values(BUG(kNoDeadMarkOnUpdate), BUG(kNoDeadMarkOnDelete), BUG(kNoDeadMarkOnPromotion),
                    BUG(kNoDeadMarkOnMove), BUG(kPullBackIntoSecondLine), BUG(kOldLinesNotPoisoned),
                    BUG(kGenerationKeptOnReuse), BUG(kNoItemChecksum), BUG(kDeadIsMiss),
                    BUG(kKeyNotCompared), BUG(kStateNotCompared), BUG(kFingerprintNotConfirmed),
                    BUG(kChainMissNotConfirmed), BUG(kChainMissConfirmedTooEarly),
                    BUG(kGenerationUnchecked), BUG(kExpiryIgnored), BUG(kAbsentByLatestTime)));

}  // namespace
}  // namespace osprey
