#include "server/durability/restorer.h"

#include <cstdint>
#include <memory>
#include <string>

#include "gtest/gtest.h"
#include "server/requests/tables.h"
#include "tests/index/index_test_util.h"

namespace osprey::server {
namespace {

constexpr uint64_t kMemoryBytes = 32 << 20;
constexpr uint64_t kKeys = 100'000;

class RestorerTest : public testing::Test {
 protected:
  static index::TableOptions Options() {
    index::TableOptions options;
    options.incarnation = 7;
    return options;
  }

  index::RegionMemory memory_{kMemoryBytes};
  const std::unique_ptr<Tables> tables_ =
      Tables::Create(memory_.span(), /*partitions=*/2, Options()).value();
  const RecoveryOptions options_{};
  Restorer restorer_{*tables_, options_};
};

TEST_F(RestorerTest, TheIndexGrowsToItsSizeBeforeTheKeys) {
  restorer_.GrowFor(kKeys, kMemoryBytes / 8);
  const uint64_t grown = tables_->stats().index_bytes;
  EXPECT_GE(grown, kKeys * 8) << "a word for each key";
  for (uint64_t i = 0; i < kKeys; ++i) {
    const std::string key = std::to_string(i);
    ASSERT_TRUE(restorer_.Put({{key, tables_->HashOf(key)}, {}, i + 1, 0, 0, {}}).ok());
  }
  EXPECT_LE(tables_->stats().index_bytes, grown * 5 / 4);
}

// *Else* it takes memory that values need, and a directory that fitted is refused.
TEST_F(RestorerTest, TheIndexStaysSmallIfTheFilesMayFillTheMemory) {
  const uint64_t before = tables_->stats().index_bytes;
  restorer_.GrowFor(kKeys, kMemoryBytes / 2);
  EXPECT_EQ(tables_->stats().index_bytes, before);
}

}  // namespace
}  // namespace osprey::server
