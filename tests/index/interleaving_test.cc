// Exhaustive trials: readers between any two stores of the writer return only states that existed.

#include "tests/index/interleaving.h"

#include <algorithm>
#include <iostream>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "index/layout/test_hooks.h"
#include "tests/support/volume.h"

namespace osprey::index {
namespace {

TEST(InterleavingTest, EveryGetIsLinearizableBetweenAnyTwoStores) {
  InterleavingCounts all;
  Table::Stats moves;
  for (uint64_t seed = 1; seed <= 100 / kVolumeParts; ++seed) {
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
    all.in_pieces += counts.in_pieces;
    all.torn_in_pieces += counts.torn_in_pieces;
    const Table::Stats stats = interleaving.table_stats();
    moves.demotions += stats.demotions;
    moves.promotions += stats.promotions;
    moves.pull_backs += stats.pull_backs;
    moves.chained_inserts += stats.chained_inserts;
    moves.in_place_updates += stats.in_place_updates;
    moves.compaction_items += stats.compaction_items;
    moves.evictions += stats.evictions;
  }
  std::cout << "gets " << all.gets << " hits " << all.hits << " misses " << all.misses << " asked "
            << all.asked_server << " reads " << all.reads << " torn " << all.torn << " restarts "
            << all.restarts << " stale hints " << all.stale_hints << " in pieces " << all.in_pieces
            << " of which torn " << all.torn_in_pieces << "\ndemotions " << moves.demotions
            << " promotions " << moves.promotions << " pull-backs " << moves.pull_backs
            << " chained " << moves.chained_inserts << " in place " << moves.in_place_updates
            << " compacted " << moves.compaction_items << " evicted " << moves.evictions << "\n";
  // The test is void unless readers collided with writes and all kinds of moves occurred.
  EXPECT_GT(all.hits, 10000u / kVolumeParts);
  EXPECT_GT(all.misses, 10000u / kVolumeParts);
  EXPECT_GT(all.torn, 10000u / kVolumeParts);
  EXPECT_GT(all.restarts, 1000u / kVolumeParts);
  EXPECT_GT(all.stale_hints, 1000u / kVolumeParts);
  EXPECT_GT(all.in_pieces, 10000u / kVolumeParts);
  EXPECT_GT(all.torn_in_pieces, 100u / kVolumeParts);
  EXPECT_LT(all.asked_server, all.gets / 20);
  EXPECT_GT(moves.demotions, 100u / kVolumeParts);
  EXPECT_GT(moves.promotions, 100u / kVolumeParts);
  EXPECT_GT(moves.pull_backs, 100u / kVolumeParts);
  EXPECT_GT(moves.chained_inserts, 100u / kVolumeParts);
  EXPECT_GT(moves.in_place_updates, 100u / kVolumeParts);
  EXPECT_GT(moves.compaction_items, 1000u / kVolumeParts);
  EXPECT_GT(moves.evictions, 300u / kVolumeParts);
}

TEST(InterleavingTest, EveryGetIsLinearizableWhileSegmentsSplitMergeAndMove) {
  InterleavingCounts all;
  uint64_t splits = 0;
  uint64_t merges = 0;
  uint64_t moves = 0;
  uint64_t depth = 0;
  for (uint64_t seed = 1; seed <= 28 / kVolumeParts; ++seed) {
    Interleaving interleaving(seed, Scene::kGrowing);
    ASSERT_EQ(interleaving.Run(400), "") << "seed " << seed;
    const InterleavingCounts& counts = interleaving.counts();
    all.gets += counts.gets;
    all.hits += counts.hits;
    all.misses += counts.misses;
    all.asked_server += counts.asked_server;
    all.torn += counts.torn;
    all.restarts += counts.restarts;
    all.refreshes += counts.refreshes;
    splits += interleaving.table_stats().splits;
    merges += interleaving.table_stats().merges;
    moves += interleaving.table_stats().segment_moves;
    depth = std::max(depth, interleaving.table_stats().directory_depth);
  }
  std::cout << "gets " << all.gets << " hits " << all.hits << " misses " << all.misses << " asked "
            << all.asked_server << " torn " << all.torn << " restarts " << all.restarts
            << " refreshes " << all.refreshes << " splits " << splits << " merges " << merges
            << " moves " << moves << " deepest " << depth << "\n";
  EXPECT_GT(all.hits, 10000u / kVolumeParts);
  EXPECT_GT(all.misses, 10000u / kVolumeParts);
  EXPECT_GT(all.torn, 10000u / kVolumeParts);
  EXPECT_GT(all.refreshes, 1000u / kVolumeParts);
  EXPECT_LT(all.asked_server, all.gets / 20);
  EXPECT_GT(splits, 500u / kVolumeParts);
  EXPECT_GT(merges, 100u / kVolumeParts);
  EXPECT_GT(moves, 100u / kVolumeParts);
  EXPECT_GE(depth, 4u);
}

TEST(InterleavingTest, EveryGetIsLinearizableWhileKeysExpire) {
  InterleavingCounts all;
  uint64_t expiries = 0;
  for (uint64_t seed = 1; seed <= 40 / kVolumeParts; ++seed) {
    Interleaving interleaving(seed, Scene::kExpiring);
    ASSERT_EQ(interleaving.Run(400), "") << "seed " << seed;
    const InterleavingCounts& counts = interleaving.counts();
    all.gets += counts.gets;
    all.hits += counts.hits;
    all.misses += counts.misses;
    all.asked_server += counts.asked_server;
    all.torn += counts.torn;
    all.found_expired += counts.found_expired;
    all.expired_in_write += counts.expired_in_write;
    expiries += interleaving.table_stats().expiries;
  }
  std::cout << "gets " << all.gets << " hits " << all.hits << " misses " << all.misses << " asked "
            << all.asked_server << " torn " << all.torn << " found expired " << all.found_expired
            << " expired in a write " << all.expired_in_write << " ended " << expiries << "\n";
  EXPECT_GT(all.hits, 10000u / kVolumeParts);
  EXPECT_GT(all.misses, 10000u / kVolumeParts);
  EXPECT_GT(all.torn, 1000u / kVolumeParts);
  EXPECT_GT(all.found_expired, 1000u / kVolumeParts);
  EXPECT_GT(all.expired_in_write, 100u / kVolumeParts);
  EXPECT_GT(expiries, 1000u / kVolumeParts);
}

}  // namespace
}  // namespace osprey::index
