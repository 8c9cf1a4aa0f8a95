// Which shard a key has: golden values, as the data of clusters lies by them.

#include "rdma/wire/shard.h"

#include <string>

#include "gtest/gtest.h"

namespace osprey::rdma {
namespace {

TEST(ShardTest, KeysHaveTheirGoldenShards) {
  const struct {
    std::string key;
    uint32_t of_64;
  } cases[] = {
      {"a", 57},
      {"key", 46},
      {"planet", 49},
      {"session/u17", 37},
      {"0123456789abcdef0123456789abcdef", 0},
      {std::string(300, 'x'), 41},
  };
  for (const auto& c : cases) {
    // The top bits: the shard of fewer shards is the beginning of the shard of more.
    for (uint32_t shards = 64, shard = c.of_64; shards > 0; shards /= 2, shard /= 2)
      EXPECT_EQ(ShardOf(c.key, shards), shard) << c.key << " of " << shards;
  }
}

TEST(ShardTest, EveryShardHasItsPartOfTheKeys) {
  constexpr uint32_t kKeys = 64 * 1000;
  uint32_t counts[kShardsMax] = {};
  for (uint32_t i = 0; i < kKeys; ++i) ++counts[ShardOf("key " + std::to_string(i), kShardsMax)];
  // Six standard deviations are 190.
  for (const uint32_t count : counts) EXPECT_NEAR(count, 1000, 190);
}

TEST(ShardTest, TheNumberOfShardsIsAPowerOfTwo) {
  for (const uint32_t good : {1, 2, 4, 8, 16, 32, 64}) EXPECT_TRUE(IsShardCount(good)) << good;
  for (const uint32_t bad : {0, 3, 6, 63, 65, 128}) EXPECT_FALSE(IsShardCount(bad)) << bad;
}

}  // namespace
}  // namespace osprey::rdma
