// What the data directory of a running server tells of itself, on a real disk.

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/durability/durability.h"
#include "tests/server/durability/durable_life.h"

namespace osprey::server {
namespace {

class DurabilityStatsTest : public testing::Test {
 protected:
  DurabilityStatsTest() {
    static int number = 0;
    directory_ = absl::StrCat(testing::TempDir(), "/stats", ++number);
    std::filesystem::create_directories(directory_);
  }

  std::string directory_;
};

TEST_F(DurabilityStatsTest, ChangesAreLoggedAndThenSynced) {
  DurabilityOptions options;
  options.lag = absl::Seconds(4);
  Life life(directory_, options);
  const DurabilityStats before = life.stats();
  EXPECT_EQ(before.mode, "async");
  EXPECT_EQ(before.log_entries, 0u);
  EXPECT_EQ(before.log_unsynced_bytes, 0u);
  EXPECT_EQ(before.log_lag, absl::ZeroDuration());
  EXPECT_GT(before.log_bytes, 0u) << "of the first segments";

  for (int i = 0; i < 100; ++i) life.Put(absl::StrCat("key", i), "value");
  ASSERT_TRUE(life.durability().Commit().ok());
  const DurabilityStats written = life.stats();
  EXPECT_EQ(written.log_entries, 100u);
  EXPECT_GE(written.log_written_bytes, before.log_written_bytes + 100 * 64);
  // A sync begins after half of the lag.
  EXPECT_GE(written.log_unsynced_bytes, 100 * 64u);
  EXPECT_GT(written.log_lag, absl::ZeroDuration());
  EXPECT_LT(written.log_lag, absl::Seconds(30));

  EXPECT_TRUE(life.Await([](const DurabilityStats& now) { return now.log_unsynced_bytes == 0; }));
  const DurabilityStats synced = life.stats();
  EXPECT_GT(synced.log_syncs, before.log_syncs);
  EXPECT_EQ(synced.log_lag, absl::ZeroDuration());
  EXPECT_EQ(synced.log_late_commits, 0u);
  EXPECT_TRUE(life.Await(
      [&](const DurabilityStats& now) { return now.log_bytes >= synced.log_written_bytes; }));
}

TEST_F(DurabilityStatsTest, ACommitThatWaitsForTheDiskIsLate) {
  DurabilityOptions options;
  options.lag = absl::Nanoseconds(2);
  Life life(directory_, options);
  for (int i = 0; i < 100 && life.stats().log_late_commits == 0; ++i) {
    life.Put("key", "value");
    ASSERT_TRUE(life.durability().Commit().ok());
  }
  EXPECT_GT(life.stats().log_late_commits, 0u);
}

TEST_F(DurabilityStatsTest, ACheckpointCountsAndShortensTheLog) {
  DurabilityOptions options;
  options.checkpoint_log_bytes = 1 << 20;
  options.segment_bytes = 256 << 10;
  Life life(directory_, options);
  const absl::Time begun = absl::Now();
  const std::string value(1000, 'v');
  uint64_t log_bytes = 0;
  for (int i = 0; i < 20000 && life.stats().checkpoints == 0; ++i) {
    life.Put(absl::StrCat("key", i % 100), value);
    ASSERT_TRUE(life.durability().Commit().ok());
    log_bytes = std::max(log_bytes, life.stats().log_bytes);
    if (life.stats().log_written_bytes > 4 << 20) break;
  }
  ASSERT_TRUE(life.Await([](const DurabilityStats& now) { return now.checkpoints > 0; }));
  const DurabilityStats stats = life.stats();
  EXPECT_EQ(stats.checkpoint_failures, 0u);
  EXPECT_GE(stats.checkpoint_bytes, 100 * 1000u);
  EXPECT_LE(stats.checkpoint_bytes, 100 * 1010u);
  EXPECT_GT(stats.checkpoint_took, absl::ZeroDuration());
  EXPECT_GE(stats.checkpoint_at, begun);
  EXPECT_LE(stats.checkpoint_at, absl::Now());
  EXPECT_TRUE(life.Await([](const DurabilityStats& now) {
    return now.log_bytes + (256 << 10) < now.log_written_bytes;
  }));
  EXPECT_THAT(
      life.durability().DescribeLoad(),
      testing::ContainsRegex("^checkpoint [0-9]+ and the log from record [0-9]+, [0-9.]+ MB$"));
}

TEST_F(DurabilityStatsTest, ALogOfEarlierLivesIsDueForACheckpoint) {
  DurabilityOptions options;
  // What a checkpoint leaves of its segment is replayed, and counts, too.
  options.segment_bytes = 128 << 10;
  {
    Life life(directory_, options);
    const std::string value(1000, 'v');
    for (int i = 0; i < 2000; ++i) life.Put(absl::StrCat("key", i % 100), value);
    ASSERT_TRUE(life.durability().Commit().ok());
    EXPECT_EQ(life.stats().checkpoints, 0u);
  }
  options.checkpoint_log_bytes = 1 << 20;
  {
    const Life life(directory_, options);
    EXPECT_TRUE(life.Await([](const DurabilityStats& now) { return now.checkpoints > 0; }));
  }
  const Life life(directory_, options);
  EXPECT_FALSE(life.Await([](const DurabilityStats& now) { return now.checkpoints > 0; },
                          absl::Milliseconds(500)));
}

TEST_F(DurabilityStatsTest, ACheckpointThatFailsCounts) {
  DurabilityOptions options;
  options.checkpoint_log_bytes = 1 << 20;
  Life life(directory_, options);
  std::filesystem::remove_all(directory_);  // no file can be created any more
  const std::string value(1000, 'v');
  for (int i = 0; i < 2000; ++i) life.Put("key", value);
  ASSERT_TRUE(life.durability().Commit().ok()) << "the log writes to the file that it has open";
  EXPECT_TRUE(life.Await([](const DurabilityStats& now) { return now.checkpoint_failures > 0; }));
  EXPECT_EQ(life.stats().checkpoints, 0u);
  EXPECT_EQ(life.stats().checkpoint_at, absl::UnixEpoch());
}

TEST_F(DurabilityStatsTest, AFullDiskRefusesWritesBeforeTheServerIsReady) {
  DurabilityOptions options;
  options.segment_bytes = uint64_t{1} << 60;
  Life life(directory_, options);
  const DurabilityStats stats = life.stats();
  EXPECT_TRUE(stats.disk_full);
  EXPECT_GT(stats.disk_free_bytes, 0u);
  EXPECT_GE(stats.disk_needed_bytes, uint64_t{1} << 61);
  EXPECT_EQ(life.durability().MayWrite().code(), absl::StatusCode::kResourceExhausted);
}

TEST_F(DurabilityStatsTest, TheNextLifeReportsWhatItLoaded) {
  uint64_t versions_left = 0;
  {
    Life life(directory_, {});
    EXPECT_FALSE(life.stats().disk_full);
    EXPECT_EQ(life.stats().loaded_keys, 0u);
    for (int i = 0; i < 10; ++i) life.Put(absl::StrCat("key", i), "value");
    ASSERT_TRUE(life.durability().Commit().ok());
    versions_left = life.stats().versions_left;
    EXPECT_GT(versions_left, 0u);
    EXPECT_LT(versions_left, index::kCasVersionMax);
    ASSERT_TRUE(life.durability().End().ok());
  }
  Life life(directory_, {});
  const DurabilityStats stats = life.stats();
  EXPECT_EQ(stats.loaded_keys, 10u);
  EXPECT_EQ(stats.loaded_bytes, 10 * (4 + 5u));
  EXPECT_GT(stats.load_took, absl::ZeroDuration());
  EXPECT_EQ(stats.log_entries, 0u) << "of this life";
  EXPECT_LT(stats.versions_left, versions_left);
}

}  // namespace
}  // namespace osprey::server
