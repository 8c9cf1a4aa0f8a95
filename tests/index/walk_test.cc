// A walk finds each key that stays, whatever happens between its steps.

#include <cstdint>
#include <map>
#include <random>
#include <set>
#include <string>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "index/layout/test_hooks.h"
#include "index/writer/line_walk.h"
#include "index/writer/table.h"
#include "tests/index/expiry_fixture.h"
#include "tests/index/index_test_util.h"
#include "tests/support/volume.h"

namespace osprey::index {
namespace {

constexpr uint64_t kStaying = 6000;

std::string WalkKey(uint64_t i) { return absl::StrCat("key-", i); }

struct WalkFixture {
  explicit WalkFixture(uint64_t region_bytes = 16 << 20, bool evict = false)
      : memory(region_bytes) {
    TableOptions options;
    options.evict = evict;
    options.incarnation = kTestIncarnation;
    options.hash_seed = kTestSeed;
    options.clock = [this] { return TestTime(now); };
    table = *Table::Create(memory.span(), options);
  }
  WriteResult Put(absl::string_view key, uint64_t value_bytes, Lifetime lifetime = {}) {
    const std::string value(value_bytes, 'v');
    WriteResult result = table->Put(key, BytesOf(value), {}, TestTime(++now), lifetime);
    EXPECT_TRUE(result.status.ok()) << result.status;
    return result;
  }
  void Grow() {
    while (table->GrowStep(TestTime(++now))) {
    }
  }

  int64_t now = 0;
  RegionMemory memory;
  std::unique_ptr<Table> table;
};

// Why a walk with writes, splits and merges between its steps is wrong; empty if it is right.
std::string WalkWhileTheTableChanges(uint64_t seed) {
  WalkFixture f;
  std::mt19937_64 random(seed);
  std::map<std::string, uint64_t> versions;
  // Most keys go during the walk, and others come.
  for (uint64_t i = 0; i < 5 * kStaying; ++i) {
    versions[WalkKey(i)] = f.Put(WalkKey(i), random() % 8).version;
    if (i % 64 == 0) f.Grow();
  }
  f.Grow();
  std::set<std::string> found;
  std::string wrong;
  uint64_t cursor = 0;
  uint64_t next = 5 * kStaying;
  uint64_t gone = kStaying;
  const bool grows = seed % 2 == 0;
  do {
    uint64_t bytes = 0;
    cursor = f.table->Walk(cursor, 1 + random() % 20000, [&](const WalkedKey& key) {
      bytes += key.key.size() + key.value.size();
      const auto known = versions.find(std::string(key.key));
      if (known == versions.end() || known->second != key.version)
        wrong = absl::StrCat(key.key, " has an old version, or is gone");
      if (key.depths.own < key.depths.shallowest) wrong = "a segment is shallower than all";
      found.insert(std::string(key.key));
    });
    if (bytes > 60000) wrong = absl::StrCat("a step of ", bytes, " bytes");
    for (uint64_t writes = random() % 200; writes > 0; --writes) {
      const std::string key = WalkKey(grows ? next++ : gone < 5 * kStaying ? gone++ : 0);
      if (grows || key == WalkKey(0)) {
        versions[key] = f.Put(key, random() % 40).version;
      } else {
        EXPECT_TRUE(f.table->Delete(key, {}, TestTime(++f.now)).status.ok());
        versions.erase(key);
      }
    }
    merging_forced = !grows && random() % 2 == 0;
    for (uint64_t steps = random() % 4; steps > 0; --steps) f.table->GrowStep(TestTime(++f.now));
    if (next > 20 * kStaying) return "the walk does not end";
  } while (cursor != 0);
  merging_forced = false;
  if (!wrong.empty()) return wrong;
  for (uint64_t i = 0; i < kStaying; ++i) {
    if (!found.contains(WalkKey(i))) return WalkKey(i) + " was missed";
  }
  return "";
}

TEST(WalkTest, FindsAllThatStaysWhileSegmentsSplitAndMerge) {
  for (uint64_t seed = 1; seed <= 12 / kVolumeParts; ++seed)
    ASSERT_EQ(WalkWhileTheTableChanges(seed), "") << "seed " << seed;
}

TEST(WalkTest, CursorWithoutDepthWouldMissKeys) {
  active_mutant = Mutant::kMergeMissedByCursor;
  std::string wrong;
  for (uint64_t seed = 1; seed <= 100 && wrong.empty(); ++seed)
    wrong = WalkWhileTheTableChanges(seed);
  active_mutant = Mutant::kNone;
  EXPECT_THAT(wrong, testing::HasSubstr("was missed"));
}

TEST(WalkTest, GivesKeysWithTheirValuesAndExpiries) {
  WalkFixture f;
  f.Put("inline", 3);
  f.Put("empty", 0);
  f.Put("item", 300);
  f.Put("long", 200000);
  const WriteResult mortal = f.Put("mortal", 3, Lifetime::For(absl::Seconds(5)));
  f.Put("expired", 3, Lifetime::For(absl::Milliseconds(5)));
  f.now += 1000;
  std::map<std::string, WalkedKey> found;
  const uint64_t cursor = f.table->Walk(0, UINT64_MAX, [&](const WalkedKey& key) {
    EXPECT_TRUE(found.emplace(std::string(key.key), key).second);
  });
  EXPECT_EQ(cursor, 0u);
  ASSERT_EQ(found.size(), 5u);
  EXPECT_EQ(TextOf(found["inline"].value), "vvv");
  EXPECT_EQ(found["empty"].value.size(), 0u);
  EXPECT_EQ(found["item"].value.size(), 300u);
  EXPECT_EQ(found["long"].value.size(), 200000u);
  EXPECT_EQ(found["mortal"].expiry_ns, mortal.expiry_ns);
  EXPECT_EQ(found["mortal"].version, mortal.version);
}

// Else a cache evicts keys in use first after a restart.
TEST(WalkTest, GivesClockCounters) {
  WalkFixture f(16 << 20, /*evict=*/true);
  f.Put("cold", 300);
  f.Put("hot", 300);
  for (int i = 0; i < 10; ++i) f.table->Touch("hot");
  std::map<std::string, uint8_t> clocks;
  (void)f.table->Walk(0, UINT64_MAX,
                      [&](const WalkedKey& key) { clocks[std::string(key.key)] = key.clock; });
  EXPECT_GT(clocks["hot"], clocks["cold"]);
}

// Of values with one word in the index each, so that no key takes more.
TEST(WalkTest, KeysMakeSegmentsAsDeepAsForeseen) {
  WalkFixture f(64 << 20);
  uint32_t foreseen = 0;
  for (uint64_t i = 0; i < 120000; ++i) {
    f.Put(WalkKey(i), 100);
    f.Grow();
    if (Table::DepthOf(i) == foreseen) continue;
    foreseen = Table::DepthOf(i);
    uint32_t shallowest = 0;
    (void)f.table->Walk(0, 1, [&](const WalkedKey& key) { shallowest = key.depths.shallowest; });
    EXPECT_GE(shallowest, foreseen) << i;
  }
  EXPECT_EQ(foreseen, 6);
}

// Segments differ in depth by a few levels at most, so without the depths keys in this order meet
// segments that may not split yet.
TEST(WalkTest, RestoredDepthsMakeTheSameSegments) {
  constexpr uint64_t kMany = 100000;
  WalkFixture f;
  for (uint64_t i = 0; i < kMany; ++i) {
    f.Put(WalkKey(i), 8);
    if (i % 64 == 0) f.Grow();
  }
  f.Grow();
  WalkFixture after;
  uint64_t cursor = 0;
  do {
    cursor = f.table->Walk(cursor, 10000, [&](const WalkedKey& key) {
      after.table->RestoreDepths(HashKey(key.key, kTestSeed), key.depths, absl::UnixEpoch());
      const WriteResult result =
          after.table->Restore(key.key, key.value, key.version, 0, absl::UnixEpoch());
      EXPECT_TRUE(result.status.ok()) << result.status;
    });
  } while (cursor != 0);
  EXPECT_EQ(after.table->stats().segments, f.table->stats().segments);
  EXPECT_EQ(after.table->stats().directory_depth, f.table->stats().directory_depth);
  EXPECT_EQ(after.table->stats().keys, kMany);
  EXPECT_FALSE(after.table->GrowthWanted());
}

}  // namespace
}  // namespace osprey::index
