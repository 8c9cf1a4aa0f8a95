// The ghosts: which evicted keys are remembered, and for how long.

#include "index/segments/ghosts.h"

#include <cstdint>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "index/layout/hash.h"

namespace osprey::index {
namespace {

KeyHash HashOf(uint64_t number) { return HashKey(absl::StrCat("key", number), 7); }

uint64_t Taken(Ghosts& ghosts, uint64_t from, uint64_t to) {
  uint64_t taken = 0;
  for (uint64_t i = from; i < to; ++i) taken += ghosts.Take(HashOf(i));
  return taken;
}

TEST(GhostsTest, AKeyIsForgottenWhenItIsTaken) {
  Ghosts ghosts;
  EXPECT_FALSE(ghosts.Take(HashOf(1)));
  ghosts.Add(HashOf(1), 8);
  ghosts.Add(HashOf(2), 8);
  EXPECT_TRUE(ghosts.Take(HashOf(1)));
  EXPECT_FALSE(ghosts.Take(HashOf(1)));
  EXPECT_TRUE(ghosts.Take(HashOf(2)));
}

TEST(GhostsTest, TheOldestOfABucketIsForgottenFirst) {
  Ghosts ghosts;
  for (uint64_t i = 0; i < 10; ++i) ghosts.Add(HashOf(i), 8);
  EXPECT_EQ(ghosts.capacity(), 8u);
  EXPECT_EQ(Taken(ghosts, 0, 2), 0u);
  EXPECT_EQ(Taken(ghosts, 2, 10), 8u);
}

TEST(GhostsTest, ATableWithoutKeysHasNone) {
  Ghosts ghosts;
  ghosts.Add(HashOf(1), 0);
  EXPECT_FALSE(ghosts.Take(HashOf(1)));
  EXPECT_EQ(ghosts.bytes(), 0u);
}

// Buckets hold eight, and some are chosen by more keys than others.
TEST(GhostsTest, AboutAsManyAreRememberedAsThereIsRoomFor) {
  constexpr uint64_t kTarget = 100000;
  Ghosts ghosts;
  for (uint64_t i = 0; i < 3 * kTarget; ++i) ghosts.Add(HashOf(i), kTarget);
  EXPECT_EQ(ghosts.capacity(), kTarget);
  EXPECT_LE(ghosts.bytes(), 2 * kTarget + (64 << 10));
  EXPECT_GT(Taken(ghosts, 2 * kTarget + kTarget / 2, 3 * kTarget), kTarget * 45 / 100);
  // A bucket that few have chosen since remembers older ones.
  EXPECT_LT(Taken(ghosts, 0, kTarget), kTarget / 50);
}

// The capacity follows its target by a bucket at a time. Ghosts in the buckets that stay are found.
TEST(GhostsTest, CapacityGrowsAndShrinksByABucket) {
  constexpr uint64_t kBuckets = 10000;
  Ghosts ghosts;
  for (uint64_t i = 1; i <= kBuckets; ++i) {
    ghosts.Add(HashOf(i), 8 * kBuckets);
    ASSERT_EQ(ghosts.capacity(), 8 * i);
  }
  const uint64_t bytes_most = ghosts.bytes();
  for (uint64_t i = kBuckets; i-- > 10;) {
    ghosts.Add(HashOf(i), 8 * 10);
    ASSERT_EQ(ghosts.capacity(), 8 * i);
    ASSERT_TRUE(ghosts.Take(HashOf(i)));
  }
  EXPECT_LT(ghosts.bytes(), bytes_most);
  EXPECT_LE(ghosts.bytes(), uint64_t{2} * 64 << 10);
  // It does not shrink below its target, and grows again with empty buckets.
  ghosts.Add(HashOf(0), 8 * 10);
  EXPECT_EQ(ghosts.capacity(), 8u * 10);
  for (uint64_t i = 0; i < kBuckets; ++i) ghosts.Add(HashOf(kBuckets + 1), 8 * kBuckets);
  EXPECT_LT(Taken(ghosts, 1, kBuckets), 200u);
}

}  // namespace
}  // namespace osprey::index
