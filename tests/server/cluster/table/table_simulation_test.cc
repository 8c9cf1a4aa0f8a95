// Replicas of one primary's tables end with the same keys, values, versions, expiries and results,
// whatever the order in which groups and copies come. Each mistake of test_hooks.h about them is found.

#include <string>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "server/cluster/replication/test_hooks.h"
#include "tests/server/cluster/table/table_world.h"
#include "tests/support/volume.h"

namespace osprey::server {
namespace {

constexpr uint64_t kSeeds = 12 / kVolumeParts;

TableWorldOptions OptionsOf(uint64_t seed) {
  TableWorldOptions options;
  options.seed = seed;
  return options;
}

TableWorldOptions EvictingOf(uint64_t seed) {
  TableWorldOptions options = OptionsOf(seed);
  options.memory_bytes = 1 << 20;
  options.evict = true;
  options.keys = 600;
  options.long_value_bytes = 60 << 10;
  options.long_values = 15;
  // A promoted backup has memory enough.
  options.failovers = seed % 3 == 0 ? 3 : 0;
  options.drops = 5;
  return options;
}

// Primaries evict, and go on as backups, and as primaries again.
TableWorldOptions DemotingOf(uint64_t seed) {
  TableWorldOptions options = OptionsOf(seed);
  options.memory_bytes = options.backup_memory_bytes;
  options.failovers = 10;
  options.demotions = 80;
  options.removals = 50;
  return options;
}

// Values go in parts, while members are lost and join.
TableWorldOptions PartingOf(uint64_t seed) {
  TableWorldOptions options = OptionsOf(seed);
  options.memory_bytes = options.backup_memory_bytes;
  options.keys = 20;
  options.long_values = 0;
  options.parted_values = 40;
  options.failovers = 8;
  options.demotions = 50;
  options.drops = 10;
  return options;
}

struct Sums {
  int parted = 0, survived = 0, parts_dropped = 0, joined_amid = 0, demoted_amid = 0;
  int refusals = 0, joined = 0, failovers = 0, replaced = 0;
  uint64_t evictions = 0, expiries = 0, during_copies = 0, lost_removals = 0;
  uint64_t expired_seen = 0, looks_refused = 0, clock_jumps = 0;

  void Add(const TableWorld& world) {
    refusals += world.refusals();
    parted += world.parted();
    survived += world.survived();
    parts_dropped += world.parts_dropped();
    joined_amid += world.joined_amid();
    demoted_amid += world.demoted_amid();
    joined += world.joined();
    failovers += world.failovers();
    replaced += world.replaced();
    lost_removals += world.lost_removals();
    evictions += world.evictions();
    expiries += world.expiries();
    during_copies += world.during_copies();
    expired_seen += world.expired_seen();
    looks_refused += world.looks_refused();
    clock_jumps += world.clock_jumps();
  }
};

TEST(TableSimulationTest, ReplicasHaveTheSame) {
  Sums sums;
  for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
    TableWorld world(OptionsOf(seed));
    ASSERT_EQ(world.Run(), "") << "seed " << seed;
    sums.Add(world);
  }
  EXPECT_EQ(sums.refusals, 0);
  EXPECT_GT(sums.joined, 20 / kVolumeParts);
  EXPECT_GT(sums.failovers, 20 / kVolumeParts);
  EXPECT_GT(sums.replaced, 20 / kVolumeParts);
  EXPECT_GT(sums.expiries, 200u / kVolumeParts);
  EXPECT_GT(sums.during_copies, 100u / kVolumeParts);
  EXPECT_GT(sums.expired_seen, 200u / kVolumeParts);
  EXPECT_GT(sums.looks_refused, 20u / kVolumeParts);
  EXPECT_GT(sums.clock_jumps, 10u / kVolumeParts);
}

TEST(TableSimulationTest, ReplicasOfAnEvictingPrimaryHaveTheSame) {
  Sums sums;
  for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
    TableWorld world(EvictingOf(seed));
    ASSERT_EQ(world.Run(), "") << "seed " << seed;
    sums.Add(world);
  }
  EXPECT_GT(sums.evictions, 1000u / kVolumeParts);
  EXPECT_GT(sums.failovers, 3 / kVolumeParts);
  EXPECT_GT(sums.joined, 40 / kVolumeParts);
}

TEST(TableSimulationTest, WhatABackupHadEvictedAloneGoesWhenItIsThePrimary) {
  Sums sums;
  for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
    TableWorld world(DemotingOf(seed));
    ASSERT_EQ(world.Run(), "") << "seed " << seed;
    sums.Add(world);
  }
  EXPECT_GT(sums.failovers, 100 / kVolumeParts);
  EXPECT_GT(sums.replaced, 20 / kVolumeParts);
  EXPECT_GT(sums.lost_removals, 20u / kVolumeParts);
}

TEST(TableSimulationTest, ReplicasHaveTheSameValuesThatWentInParts) {
  Sums sums;
  for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
    TableWorld world(PartingOf(seed));
    ASSERT_EQ(world.Run(), "") << "seed " << seed;
    sums.Add(world);
  }
  EXPECT_GT(sums.parted, 100 / kVolumeParts);
  EXPECT_GT(sums.survived, 4 / kVolumeParts);
  EXPECT_GT(sums.parts_dropped, 10 / kVolumeParts);
  EXPECT_GT(sums.joined, 40 / kVolumeParts);
  EXPECT_GT(sums.joined_amid, 20 / kVolumeParts);
  EXPECT_GT(sums.demoted_amid, 8 / kVolumeParts);
}

TEST(TableSimulationTest, FullReplicasRefuseGroupsAndApplyWhatTheyTook) {
  for (const bool evict : {false, true}) {
    Sums sums;
    // Few joiners have room until the end of their copy.
    for (uint64_t seed = 1; seed <= 3 * kSeeds; ++seed) {
      TableWorldOptions options = OptionsOf(seed);
      options.memory_bytes = 8 << 20;
      options.backup_memory_bytes = 2 << 20;
      options.evict = evict;
      options.keys = 2000;
      options.long_values = 10;
      options.long_value_bytes = 100 << 10;
      options.failovers = 0;
      TableWorld world(options);
      ASSERT_EQ(world.Run(), "") << "seed " << seed;
      sums.Add(world);
    }
    EXPECT_GT(sums.refusals, 10 / kVolumeParts) << evict;
    EXPECT_GT(sums.joined, 3 / kVolumeParts) << evict;
  }
}

struct Mistaken {
  explicit Mistaken(ReplicationMistake mistake) { active_mistake = mistake; }
  ~Mistaken() { active_mistake = ReplicationMistake::kNone; }
};

class TableMistakesTest : public ::testing::TestWithParam<ReplicationMistake> {};

TEST_P(TableMistakesTest, IsFound) {
  if (!kSearchesMistakes) GTEST_SKIP() << "searched in the build that ships";
  const Mistaken mistaken(GetParam());
  std::string found;
  for (uint64_t seed = 1; seed <= 90 && found.empty(); ++seed) {
    const TableWorldOptions options[] = {OptionsOf(seed), EvictingOf(seed), DemotingOf(seed)};
    found = TableWorld(options[seed % 3]).Run();
  }
  EXPECT_NE(found, "");
}

INSTANTIATE_TEST_SUITE_P(
    All, TableMistakesTest,
    ::testing::Values(
        ReplicationMistake::kCopyOverAppends, ReplicationMistake::kCopyForgetsExpiry,
        ReplicationMistake::kCopyWithoutExpired, ReplicationMistake::kCopyLeavesOutExpired,
        ReplicationMistake::kCopyOverResults, ReplicationMistake::kExpiryNotReported,
        ReplicationMistake::kForgetsReleased, ReplicationMistake::kForgetsLostRemovals,
        ReplicationMistake::kFloorOfAppliedKeys, ReplicationMistake::kJudgesBeyondMark,
        ReplicationMistake::kForgetsMarks, ReplicationMistake::kCopyWithoutMark),
    [](const auto& mistake) { return absl::StrCat(static_cast<int>(mistake.param)); });

}  // namespace
}  // namespace osprey::server
