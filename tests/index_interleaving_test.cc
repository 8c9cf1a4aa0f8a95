// The proof by trying: readers between any two stores of the writer see only what was there.

#include <iostream>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "index/test_hooks.h"
#include "tests/interleaving.h"

namespace osprey::index {
namespace {

TEST(InterleavingTest, EveryGetIsLinearizableBetweenAnyTwoStores) {
  InterleavingCounts all;
  Table::Stats moves;
  for (uint64_t seed = 1; seed <= 100; ++seed) {
    Interleaving interleaving(seed);
    ASSERT_EQ(interleaving.Run(400), "") << "seed " << seed;
    const InterleavingCounts& counts = interleaving.counts();
    all.gets += counts.gets;
    all.hits += counts.hits;
    all.misses += counts.misses;
    all.asked_server += counts.asked_server;
    all.reads += counts.reads;
    all.torn += counts.torn;
    all.restarts += counts.restarts;
    all.stale_hints += counts.stale_hints;
    const Table::Stats stats = interleaving.table_stats();
    moves.demotions += stats.demotions;
    moves.promotions += stats.promotions;
    moves.pull_backs += stats.pull_backs;
    moves.chained_inserts += stats.chained_inserts;
    moves.in_place_updates += stats.in_place_updates;
  }
  std::cout << "gets " << all.gets << " hits " << all.hits << " misses " << all.misses << " asked "
            << all.asked_server << " reads " << all.reads << " torn " << all.torn << " restarts "
            << all.restarts << " stale hints " << all.stale_hints << "\ndemotions "
            << moves.demotions << " promotions " << moves.promotions << " pull-backs "
            << moves.pull_backs << " chained " << moves.chained_inserts << " in place "
            << moves.in_place_updates << "\n";
  // The test is void unless readers were in the way and all kinds of moves happened.
  EXPECT_GT(all.hits, 10000u);
  EXPECT_GT(all.misses, 10000u);
  EXPECT_GT(all.torn, 10000u);
  EXPECT_GT(all.restarts, 1000u);
  EXPECT_GT(all.stale_hints, 1000u);
  EXPECT_LT(all.asked_server, all.gets / 20);
  EXPECT_GT(moves.demotions, 100u);
  EXPECT_GT(moves.promotions, 100u);
  EXPECT_GT(moves.pull_backs, 100u);
  EXPECT_GT(moves.chained_inserts, 100u);
  EXPECT_GT(moves.in_place_updates, 100u);
}

struct Bug {
  SeededBug bug;
  const char* name;
};

class SeededBugTest : public testing::TestWithParam<Bug> {
 protected:
  void SetUp() override { seeded_bug = GetParam().bug; }
  void TearDown() override { seeded_bug = SeededBug::kNone; }
};

// Each of these mistakes is noticed by the test above: the first seed that shows it is printed. The
// others (checksums, generations, a chain's middle) have tests of their own: index_record_test,
// index_lookup_test.
TEST_P(SeededBugTest, IsNoticed) {
  constexpr uint64_t kSeedsMax = 400;
  for (uint64_t seed = 1; seed <= kSeedsMax; ++seed) {
    Interleaving interleaving(seed);
    const std::string wrong = interleaving.Run(400);
    if (wrong.empty()) continue;
    std::cout << "seed " << seed << ": " << wrong << "\n";
    return;
  }
  FAIL() << "nothing wrong was seen in " << kSeedsMax << " runs";
}

#define BUG(name) \
  Bug { SeededBug::name, #name }

INSTANTIATE_TEST_SUITE_P(Bugs, SeededBugTest,
                         testing::Values(BUG(kNewItemLiveBeforeOldIsDead), BUG(kNoDeadMarkOnUpdate),
                                         BUG(kNoDeadMarkOnDelete), BUG(kNoDeadMarkOnPromotion),
                                         BUG(kSlotClearedBeforeDeadMark), BUG(kMoveInsideWindow),
                                         BUG(kMoveFromWindowToChain), BUG(kPullBackIntoSecondLine),
                                         BUG(kChainSourceClearedFirst), BUG(kNoItemChecksum),
                                         BUG(kDeadIsMiss), BUG(kKeyNotCompared),
                                         BUG(kStateNotCompared), BUG(kFingerprintNotConfirmed),
                                         BUG(kConfirmedBySlot), BUG(kChainMissNotConfirmed),
                                         BUG(kChainMissConfirmedTooEarly)),
                         [](const testing::TestParamInfo<Bug>& bug) {
                           return std::string(bug.param.name);
                         });

}  // namespace
}  // namespace osprey::index
