// The index gives back space: segments merge, units move, and what was stored before does not limit
// what can be stored next.

#include <memory>
#include <random>
#include <string>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "index/layout/test_hooks.h"
#include "index/reader/lookup.h"
#include "index/writer/table.h"
#include "tests/index/index_test_util.h"
#include "tests/support/volume.h"

namespace osprey::index {
namespace {

constexpr uint64_t kShrinkRegionBytes = (16 << 20) / kVolumeParts;

struct ShrinkFixture {
  explicit ShrinkFixture(uint64_t region_bytes = kShrinkRegionBytes, TableOptions options = {})
      : memory(region_bytes) {
    options.incarnation = kTestIncarnation;
    options.hash_seed = kTestSeed;
    table = *Table::Create(memory.span(), options);
  }
  static std::string Key(uint64_t i) { return absl::StrCat("key-", 100000000 + i); }
  absl::Status Put(uint64_t i, uint64_t value_bytes) {
    return table->Put(Key(i), BytesOf(std::string(value_bytes, 'a' + i % 26)), {}, Now()).status;
  }
  void Delete(uint64_t i) { EXPECT_TRUE(table->Delete(Key(i), {}, Now()).status.ok()); }
  absl::Time Now() { return TestTime(now += 10); }

  // Steps of growth and compaction, as the server makes them between writes.
  void StepAll() {
    for (int i = 0; i < 1'000'000; ++i) {
      const bool grows = table->GrowStep(Now());
      if (!table->CompactStep(Now()) && !grows) return;
    }
    FAIL() << "steps without an end";
  }
  // Stores values until one is refused. Returns the bytes of keys and values.
  uint64_t Fill(uint64_t value_bytes) {
    uint64_t bytes = 0;
    for (int refused = 0; refused < 3;) {
      if (Put(next, value_bytes).ok()) {
        bytes += Key(next).size() + value_bytes;
        ++next;
        table->GrowStep(Now());
        table->CompactStep(Now());
      } else {
        ++refused;
        now += 1000;
        StepAll();
      }
    }
    return bytes;
  }
  void FlushAll() {
    uint64_t cursor = 0;
    do {
      const auto result = table->FlushStep(cursor, kCasVersionMax, kFlushKeysMax, Now());
      ASSERT_TRUE(result.ok());
      cursor = result->cursor;
      table->GrowStep(Now());
    } while (cursor != 0);
    StepAll();
  }
  // A GET of each key by a map that may be old.
  void CheckAll(DirectoryCache& map, uint64_t from, uint64_t to, uint64_t value_bytes) {
    for (uint64_t i = from; i < to; ++i) {
      const std::string key = Key(i);
      const GetResult result = Get(map, memory.data(), key);
      ASSERT_EQ(result.kind, Lookup::Kind::kHit) << key;
      ASSERT_EQ(result.value.size(), value_bytes);
    }
  }
  DirectoryCache Map() const { return MapOf(memory); }

  RegionMemory memory;
  std::unique_ptr<Table> table;
  uint64_t next = 0;
  int64_t now = 0;
};

TEST(ShrinkTest, FlushedTableHoldsWhatAFreshOneHolds) {
  for (const uint64_t first : {10, 100, 1024}) {
    for (const uint64_t second : {10, 1024, 40'000}) {
      if (kVolumeParts > 1 && (first != 10 || second != 1024)) continue;
      ShrinkFixture fresh;
      const uint64_t bytes_fresh = fresh.Fill(second);
      ShrinkFixture f;
      f.Fill(first);
      f.FlushAll();
      EXPECT_EQ(f.table->stats().keys, 0u);
      EXPECT_LE(f.table->stats().index_bytes, 4 * kUnitBytes);
      EXPECT_GE(f.Fill(second), bytes_fresh * 97 / 100) << first << " then " << second;
    }
  }
}

TEST(ShrinkTest, TableAfterDeletesHoldsWhatAFreshOneHolds) {
  for (const uint64_t first : {10, 100, 1024}) {
    for (const uint64_t second : {10, 1024, 40'000}) {
      if (kVolumeParts > 1 && (first != 10 || second != 1024)) continue;
      const auto kept = [](uint64_t i) { return i % 10 == 0; };
      ShrinkFixture f;
      f.Fill(first);
      const uint64_t filled = f.next;
      for (uint64_t i = 0; i < filled; ++i) {
        if (!kept(i)) f.Delete(i);
        if (i % 16 == 0) f.table->GrowStep(f.Now());
      }
      f.StepAll();
      ShrinkFixture fresh;
      for (uint64_t i = 0; i < filled; ++i) {
        if (kept(i)) {
          ASSERT_TRUE(fresh.Put(i, first).ok());
        }
        fresh.StepAll();
      }
      fresh.next = filled;
      const uint64_t bytes_fresh = fresh.Fill(second);
      EXPECT_GE(f.Fill(second), bytes_fresh * 95 / 100) << first << " then " << second;
      DirectoryCache map = f.Map();
      for (uint64_t i = 0; i < filled; i += 10) f.CheckAll(map, i, i + 1, first);
    }
  }
}

// With eviction freed units stay the index's until segments merge.
TEST(ShrinkTest, FlushedCacheHoldsWhatAFreshOneHolds) {
  TableOptions options;
  options.evict = true;
  const auto put = [](ShrinkFixture& f, uint64_t count, uint64_t value_bytes) {
    for (uint64_t i = 0; i < count; ++i) {
      ASSERT_TRUE(f.Put(f.next++, value_bytes).ok());
      f.table->GrowStep(f.Now());
      f.table->EvictStep(f.Now());
      f.table->CompactStep(f.Now());
    }
  };
  ShrinkFixture fresh(kShrinkRegionBytes, options);
  put(fresh, 20'000 / kVolumeParts, 1024);
  ShrinkFixture f(kShrinkRegionBytes, options);
  put(f, 500'000 / kVolumeParts, 10);
  EXPECT_GT(f.table->stats().index_bytes, kShrinkRegionBytes * 8 / 10);
  f.FlushAll();
  put(f, 20'000 / kVolumeParts, 1024);
  EXPECT_GE(f.table->stats().keys, fresh.table->stats().keys * 97 / 100);
}

// Long values lie next to each other. Between them there are no gaps that are too short for the next.
TEST(ShrinkTest, LongValuesUseWhatScatteredShortOnesLeave) {
  ShrinkFixture f(32 << 20);
  f.Fill(100);
  const uint64_t filled = f.next;
  for (uint64_t i = 0; i < filled; ++i) {
    if (i % 10 != 0) f.Delete(i);
  }
  f.StepAll();
  const Table::Stats stats = f.table->stats();
  const uint64_t free_bytes = stats.region_bytes * 15 / 16 - stats.item_bytes;
  uint64_t bytes = 0;
  for (int refused = 0; refused < 3;) {
    if (f.Put(f.next, 1 << 20).ok()) {
      ++f.next;
      bytes += 1 << 20;
      refused = 0;
    } else {
      ++refused;
      f.now += 5000;
    }
    f.StepAll();
  }
  EXPECT_GE(bytes, free_bytes * 95 / 100);
}

TEST(ShrinkTest, OldMapLeadsToKeysOfMergedSegments) {
  ShrinkFixture f;
  f.Fill(10);
  const uint64_t filled = f.next;
  DirectoryCache old = f.Map();
  for (uint64_t i = 0; i < filled; ++i) {
    if (i % 50 != 0) f.Delete(i);
  }
  f.StepAll();
  EXPECT_GT(f.table->stats().merges, 100u);
  EXPECT_LT(f.table->stats().directory_depth, old.depth());
  // Items now use the space of former segments.
  f.Fill(1024);
  for (uint64_t i = 0; i < filled; i += 50) f.CheckAll(old, i, i + 1, 10);
}

// A flush in small steps, between which segments split and merge. "": each key from before it is gone.
std::string FlushWhileSegmentsMerge(uint64_t seed) {
  std::mt19937_64 random(seed);
  TableOptions options;
  options.split_percent = 2;
  ShrinkFixture f(2 << 20, options);
  while (f.next < 600) f.Put(f.next++, random() % 3 * 20).IgnoreError();
  f.StepAll();
  const uint64_t bound = f.table->stats().cas_version;
  uint64_t cursor = 0;
  do {
    const auto result = f.table->FlushStep(cursor, bound, 1 + random() % 5, f.Now());
    if (!result.ok()) return result.status().ToString();
    cursor = result->cursor;
    merging_forced = random() % 2 == 0;
    for (uint64_t i = random() % 4; i > 0; --i) f.table->GrowStep(f.Now());
    if (random() % 4 == 0) f.Put(f.next++, 20).IgnoreError();
  } while (cursor != 0);
  merging_forced = false;
  for (uint64_t i = 0; i < 600; ++i) {
    if (f.table->Find(f.Key(i)).ok()) return f.Key(i) + " is still there";
  }
  for (uint64_t i = 600; i < f.next; ++i) {
    if (!f.table->Find(f.Key(i)).ok()) return f.Key(i) + " came after the flush and is gone";
  }
  return f.table->stats().merges > 10 ? "" : "too few segments merged";
}

TEST(ShrinkTest, FlushDeletesAllKeysWhileSegmentsMerge) {
  for (uint64_t seed = 1; seed <= 200 / kVolumeParts; ++seed) {
    ASSERT_EQ(FlushWhileSegmentsMerge(seed), "") << "seed " << seed;
  }
}

TEST(ShrinkTest, FlushWhoseCursorHasNoDepthWouldMissKeys) {
  active_mutant = Mutant::kMergeMissedByCursor;
  std::string wrong;
  for (uint64_t seed = 1; seed <= 200 && wrong.empty(); ++seed)
    wrong = FlushWhileSegmentsMerge(seed);
  active_mutant = Mutant::kNone;
  EXPECT_THAT(wrong, testing::HasSubstr("is still there"));
}

// Every other segment goes, so free space is in pieces of a unit or two. A long value needs the space
// where the others are.
TEST(ShrinkTest, SegmentsMoveOutOfTheWayOfALongValue) {
  constexpr uint64_t kLong = 2 << 20;
  constexpr uint64_t kWide = 16 << 20;
  ShrinkFixture f(kWide);
  f.Fill(10);
  const auto stays = [&](uint64_t i) { return (HashKey(f.Key(i), kTestSeed).bits & 1) == 0; };
  const uint64_t filled = f.next;
  for (uint64_t i = 0; i < filled; ++i) {
    if (!stays(i)) f.Delete(i);
  }
  f.StepAll();
  EXPECT_LT(f.table->stats().index_bytes, kWide * 6 / 10);
  DirectoryCache map = f.Map();
  ASSERT_FALSE(f.Put(filled, kLong).ok());
  bool stored = false;
  for (int tries = 0; tries < 20 && !stored; ++tries) {
    f.now += 1000;
    f.StepAll();
    stored = f.Put(filled, kLong).ok();
  }
  EXPECT_TRUE(stored);
  EXPECT_GT(f.table->stats().segment_moves, 10u);
  for (uint64_t i = 0; i < filled; ++i) {
    if (stays(i)) f.CheckAll(map, i, i + 1, 10);
  }
}

}  // namespace
}  // namespace osprey::index
