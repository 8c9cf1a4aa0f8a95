// Eviction: new keys, keys that return, keys that are read; and how much memory stays in use.

#include <algorithm>
#include <cstdint>
#include <memory>
#include <random>
#include <string>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "index/writer/table.h"
#include "tests/index/index_test_util.h"
#include "tests/support/volume.h"

namespace osprey::index {
namespace {

class Cache {
 public:
  Cache(uint64_t region_bytes, uint64_t value_bytes, bool evict = true)
      : memory_(region_bytes), value_(value_bytes, 'v') {
    TableOptions options;
    options.incarnation = kTestIncarnation;
    options.hash_seed = kTestSeed;
    options.evict = evict;
    table_ = *Table::Create(memory_.span(), options);
  }

  Table& table() { return *table_; }
  bool Put(const std::string& key) {
    now_ += absl::Microseconds(10);
    return table_->Put(key, BytesOf(value_), {}, now_).status.ok();
  }
  // And a turn of the server.
  bool PutInTurn(const std::string& key) {
    const bool taken = Put(key);
    Turn();
    return taken;
  }
  bool PutAndReadInTurn(const std::string& key) {
    const bool taken = Put(key) && table_->Touch(key);
    Turn();
    return taken;
  }
  bool EvictStep() { return table_->EvictStep(now_); }
  bool Has(const std::string& key) { return table_->Find(key).ok(); }
  uint64_t CountOf(const std::string& prefix, uint64_t count) {
    uint64_t found = 0;
    for (uint64_t i = 0; i < count; ++i) found += Has(absl::StrCat(prefix, i));
    return found;
  }

 private:
  void Turn() {
    table_->GrowStep(now_);
    table_->EvictStep(now_);
    table_->CompactStep(now_);
  }

  RegionMemory memory_;
  std::string value_;
  std::unique_ptr<Table> table_;
  absl::Time now_ = TestTime(0);
};

constexpr uint64_t kRegionBytes = 2 << 20;
constexpr uint64_t kValueBytes = 100;  // some 11,000 keys fit

// New keys that are not read make room for each other, however many come.
TEST(EvictionOrderTest, AKeyThatWasReadOnceOutlivesAnyNumberThatWereNot) {
  constexpr uint64_t kRead = 5000, kCold = 300000 / kVolumeParts;
  Cache cache(kRegionBytes, kValueBytes);
  for (uint64_t i = 0; i < kRead; ++i) {
    ASSERT_TRUE(cache.PutAndReadInTurn(absl::StrCat("read", i)));
  }
  for (uint64_t i = 0; i < kCold; ++i) ASSERT_TRUE(cache.PutInTurn(absl::StrCat("cold", i)));
  EXPECT_GT(cache.table().evictions(), kCold - 20000);
  EXPECT_GE(cache.CountOf("read", kRead), kRead * 99 / 100);
}

// Others were read since: counters age for lack of keys that were not.
TEST(EvictionOrderTest, KeysThatAreNoLongerReadMakeRoomForThoseThatAre) {
  Cache cache(kRegionBytes, kValueBytes);
  constexpr uint64_t kBefore = 10000;
  for (uint64_t i = 0; i < kBefore; ++i) {
    ASSERT_TRUE(cache.PutAndReadInTurn(absl::StrCat("before", i)));
  }
  for (uint64_t i = 0; i < 200000 / kVolumeParts; ++i) {
    ASSERT_TRUE(cache.PutAndReadInTurn(absl::StrCat("now", i)));
  }
  EXPECT_LT(cache.CountOf("before", kBefore), 10u);
  EXPECT_GT(cache.table().stats().keys, 9000u);
}

// A ghost says that the key came before. None of these keys is read.
TEST(EvictionOrderTest, AKeyThatReturnsSoonOutlivesNewOnes) {
  Cache cache(kRegionBytes, kValueBytes);
  // Most were read, so that new keys have the few places of those that were not.
  for (uint64_t i = 0; i < 30000; ++i) ASSERT_TRUE(cache.PutAndReadInTurn(absl::StrCat("read", i)));
  constexpr uint64_t kKeys = 200;
  uint64_t cold = 0;
  const auto put = [&](const std::string& prefix) {
    for (uint64_t i = 0; i < kKeys; ++i) {
      ASSERT_TRUE(cache.PutInTurn(absl::StrCat(prefix, i)));
      ASSERT_TRUE(cache.PutInTurn(absl::StrCat("cold", cold++)));
    }
  };
  put("returns");
  for (int i = 0; i < 1500; ++i) ASSERT_TRUE(cache.PutInTurn(absl::StrCat("cold", cold++)));
  const uint64_t left = cache.CountOf("returns", kKeys);
  ASSERT_LT(left, kKeys / 2);
  put("returns");
  put("new");
  for (int i = 0; i < 20000; ++i) ASSERT_TRUE(cache.PutInTurn(absl::StrCat("cold", cold++)));
  EXPECT_LT(cache.CountOf("new", kKeys), kKeys / 20);
  EXPECT_GT(cache.CountOf("returns", kKeys), kKeys / 2);
}

// --- Memory in use -------------------------------------------------------------

// As many keys as without eviction, but for a reserve.
TEST(EvictionMemoryTest, ACacheHoldsAboutAsManyKeysAsATableThatRefuses) {
  for (const uint64_t value_bytes : {8, 100}) {
    Cache refusing(kRegionBytes, value_bytes, /*evict=*/false);
    uint64_t stored = 0;
    while (refusing.PutInTurn(absl::StrCat("a key of 16 B ", 10 + stored))) ++stored;
    Cache cache(kRegionBytes, value_bytes);
    uint64_t fewest = UINT64_MAX;
    for (uint64_t i = 0; i < 6 * stored; ++i) {
      ASSERT_TRUE(cache.PutInTurn(absl::StrCat("a key of 16 B ", 10 + i)));
      if (i > 2 * stored && i % 100 == 0) fewest = std::min(fewest, cache.table().stats().keys);
    }
    EXPECT_GE(fewest, stored * 90 / 100) << value_bytes << ": " << stored;
  }
}

// What an inline key's eviction frees counts, so that a step does not go on to its bound.
TEST(EvictionMemoryTest, AStepEvictsNoMoreInlineKeysThanItsReserveTakes) {
  Cache cache(kRegionBytes, 8);
  for (uint64_t i = 0; i < 100000; ++i) {
    ASSERT_TRUE(cache.PutInTurn(absl::StrCat("a key of 16 B ", 10 + i)));
  }
  uint64_t most = 0;
  for (uint64_t i = 0; i < 20000; ++i) {
    ASSERT_TRUE(cache.Put(absl::StrCat("another of 16 B ", 10 + i)));
    const uint64_t before = cache.table().evictions();
    cache.EvictStep();
    most = std::max(most, cache.table().evictions() - before);
  }
  EXPECT_LE(most, 64u);
}

// A home whose window and chain are full evicts where the place that becomes free is its own.
TEST(EvictionMemoryTest, AnInsertionIsNotRefusedBesideAHomeWithAChain) {
  Cache cache(4 << 20, 40);
  std::mt19937_64 random(1);
  uint64_t refused = 0;
  for (uint64_t i = 0; i < 200000; ++i) {
    refused += !cache.Put(absl::StrCat("a key of 16 B ", 10 + i));
    for (int k = 0; k < 2 && i > 0; ++k) {
      (void)cache.table().Touch(
          absl::StrCat("a key of 16 B ", 10 + i - random() % std::min<uint64_t>(i, 30000)));
    }
  }
  EXPECT_EQ(refused, 0u);
  EXPECT_GT(cache.table().evictions(), 100000u);
}

}  // namespace
}  // namespace osprey::index
