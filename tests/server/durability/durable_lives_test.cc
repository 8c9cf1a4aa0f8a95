// What a server acknowledged is there in its next lives.

#include "tests/server/durability/durable_lives.h"

#include <cstdint>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/volume.h"

namespace osprey::server {
namespace {

TEST(DurableLivesTest, EachLifeBeginsAsTheOneBeforeEnded) {
  for (uint64_t seed = 1; seed <= 40 / kLongVolumeParts; ++seed)
    ASSERT_EQ(RunLives(seed, {}), "") << "seed " << seed;
}

TEST(DurableLivesTest, EachLifeOfOnePartitionBeginsAsTheOneBeforeEnded) {
  LivesOptions options;
  options.server.partitions = 1;
  options.server.memory_bytes = 12 << 20;
  for (uint64_t seed = 100; seed <= 100 + 10 / kLongVolumeParts; ++seed)
    ASSERT_EQ(RunLives(seed, options), "") << "seed " << seed;
}

// These are full tables whose long values leave gaps in any order but the longest first.
TEST(DurableLivesTest, LongValuesLoadIntoTheSameMemory) {
  for (const uint64_t seed : {93, 174, 325}) ASSERT_EQ(RunLives(seed, {}), "") << "seed " << seed;
}

// What memory has no room for is evicted, also while it is loaded.
TEST(DurableLivesTest, EachLifeOfACacheBeginsAsTheOneBeforeEnded) {
  LivesOptions options;
  options.server.evict = true;
  options.server.partitions = 2;
  options.server.memory_bytes = 1 << 20;
  options.keys = 20000;
  for (uint64_t seed = 200; seed <= 200 + 20 / kLongVolumeParts; ++seed)
    ASSERT_EQ(RunLives(seed, options), "") << "seed " << seed;
}

TEST(DurableLivesTest, LostRedoRecordLosesAWrite) {
  if (!kSearchesMistakes) GTEST_SKIP() << "searched in the build that ships";
  LivesOptions options;
  options.redo_shift = 1;
  std::string difference;
  for (uint64_t seed = 1; seed <= 400 && difference.empty(); ++seed)
    difference = RunLives(seed, options);
  EXPECT_THAT(difference, testing::HasSubstr("life"));
}

}  // namespace
}  // namespace osprey::server
