// Growth: readers with maps of any age find all stored keys, whatever has split since.

#include <algorithm>
#include <bit>
#include <cstring>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "index/layout/test_hooks.h"
#include "index/reader/lookup.h"
#include "index/segments/directory.h"
#include "index/space/region_writer.h"
#include "index/writer/table.h"
#include "tests/index/index_test_util.h"
#include "tests/support/volume.h"

namespace osprey::index {
namespace {

constexpr uint64_t kSegmentKeysMax = kLinesPerUnit * kLineWordsUsable;  // out of line

struct GrowthFixture {
  explicit GrowthFixture(uint64_t region_bytes, TableOptions options = {}) : memory(region_bytes) {
    options.incarnation = kTestIncarnation;
    options.hash_seed = kTestSeed;
    table = *Table::Create(memory.span(), options);
  }
  absl::Status Put(absl::string_view key, absl::string_view value) {
    return table->Put(key, BytesOf(value), {}, TestTime(++now)).status;
  }
  absl::Status Delete(absl::string_view key) {
    return table->Delete(key, {}, TestTime(++now)).status;
  }
  int GrowAll() {
    int steps = 1;
    while (table->GrowStep(TestTime(++now))) ++steps;
    return steps;
  }
  DirectoryCache Map() const { return MapOf(memory); }

  RegionMemory memory;
  std::unique_ptr<Table> table;
  int64_t now = 0;
};

std::string KeyOf(uint64_t i) { return absl::StrCat("key", i); }
std::string ValueOf(uint64_t i) { return std::string(i % 3 == 0 ? 40 + i % 100 : i % 20, 'v'); }

// --- Splits ----------------------------------------------------------------

TEST(GrowthTest, KeysAreFoundWithMapsOfEveryAge) {
  GrowthFixture f(64 << 20);
  constexpr uint64_t kKeys = 100000;
  std::vector<DirectoryCache> maps;
  std::vector<uint64_t> hints(kKeys);
  for (uint64_t i = 0; i < kKeys; ++i) {
    if (std::has_single_bit(i + 1)) maps.push_back(f.Map());
    const WriteResult result = f.table->Put(KeyOf(i), BytesOf(ValueOf(i)), {}, TestTime(++f.now));
    ASSERT_TRUE(result.status.ok()) << i;
    hints[i] = result.slot;
    f.table->GrowStep(TestTime(f.now));
  }
  f.GrowAll();
  const Table::Stats stats = f.table->stats();
  EXPECT_GT(stats.segments, 16u);
  EXPECT_EQ(stats.splits, stats.segments - 1);
  EXPECT_EQ(stats.keys, kKeys);
  for (DirectoryCache& map : maps) {
    const uint32_t age = map.depth();
    uint64_t refreshed = 0;
    for (uint64_t i = 0; i < kKeys; i += 7) {
      const GetResult got = Get(map, f.memory.data(), KeyOf(i), i % 2 == 0 ? hints[i] : 0);
      ASSERT_EQ(got.kind, Lookup::Kind::kHit) << KeyOf(i) << " with a map of depth " << age;
      ASSERT_EQ(got.value, ValueOf(i));
      const GetResult miss = Get(map, f.memory.data(), KeyOf(i) + "?");
      ASSERT_EQ(miss.kind, Lookup::Kind::kMiss);
      refreshed += got.counters.restarts;
    }
    // One page has all entries: it is fetched once.
    EXPECT_LE(refreshed, 2u);
    EXPECT_EQ(map.depth(), stats.directory_depth);
  }
}

// The page was READ after the directory had been doubled, and the header before. So the map has
// segments that serve half of the keys that it sends there. When the map gets the new depth, these
// segments do not serve the other half.
TEST(GrowthTest, KeysAreFoundWithAMapThatIsDeepenedWhileItsPagesAreNewer) {
  GrowthFixture f(16 << 20);
  DirectoryCache map(kTestIncarnation, f.memory.size());
  const ReadSpan header = map.NextRead();
  ASSERT_TRUE(map.Apply(ReadRegion(f.memory.data(), header.offset, header.length)).ok());
  constexpr uint64_t kKeys = 10000;
  for (uint64_t i = 0; i < kKeys; ++i) {
    ASSERT_TRUE(f.Put(KeyOf(i), "v").ok());
    f.GrowAll();
  }
  ASSERT_GE(f.table->stats().directory_depth, 2u);
  FillMap(map, f.memory.data());
  ASSERT_EQ(map.depth(), 0u);
  // Fetches the header, and not yet the page.
  Lookup refreshing(map, KeyOf(0));
  const Lookup::Step step = refreshing.Start();
  ASSERT_EQ(step.offset, 0u);
  (void)refreshing.Resume(ReadRegion(f.memory.data(), step.offset, step.length));
  ASSERT_EQ(map.depth(), f.table->stats().directory_depth);
  for (uint64_t i = 0; i < kKeys; ++i) {
    DirectoryCache as_it_is = map;
    ASSERT_EQ(Get(as_it_is, f.memory.data(), KeyOf(i)).kind, Lookup::Kind::kHit) << KeyOf(i);
  }
}

// Lookups that share a map and may wait long between two READs. So the map has headers and pages of
// any age.
TEST(GrowthTest, LookupsThatShareAMapMissNothingWhileTheDirectoryDoubles) {
  for (const uint64_t seed : {1, 2, 3}) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    std::mt19937_64 random(seed);
    TableOptions options;
    options.split_percent = 1;  // many small segments, so that the directory has many pages
    GrowthFixture f(128 << 20, options);
    struct InFlight {
      std::string key;
      std::unique_ptr<Lookup> lookup;
      Lookup::Step step;
      std::vector<std::byte> bytes;  // copied when the READ was posted; empty: not yet
    };
    std::unique_ptr<DirectoryCache> map;
    std::vector<InFlight> flights;
    uint64_t hits = 0, others = 0, refreshed = 0;
    const auto copy = [&](uint64_t offset, uint64_t length) {
      return ReadRegion(f.memory.data(), offset, length);
    };
    uint64_t keys = 0;
    for (; f.table->stats().directory_depth < 11; ++keys) {
      ASSERT_TRUE(f.Put(KeyOf(keys), "v").ok());
      f.table->GrowStep(TestTime(++f.now));
      if (random() % 2000 == 0 || map == nullptr) {
        flights.clear();
        map = std::make_unique<DirectoryCache>(kTestIncarnation, f.memory.size());
        flights.resize(8);
      }
      if (!map->ready()) {
        if (random() % 8 != 0) continue;
        const ReadSpan span = map->NextRead();
        ASSERT_TRUE(map->Apply(copy(span.offset, span.length)).ok());
        continue;
      }
      for (int i = 0; i < 4; ++i) {
        InFlight& flight = flights[random() % flights.size()];
        if (flight.lookup == nullptr) {
          flight.key = KeyOf(random() % (keys + 1));
          flight.lookup = std::make_unique<Lookup>(*map, flight.key);
          flight.step = flight.lookup->Start();
        } else {
          if (flight.bytes.empty()) flight.bytes = copy(flight.step.offset, flight.step.length);
          flight.step = flight.lookup->Resume(flight.bytes);
        }
        flight.bytes.clear();
        if (flight.step.kind == Lookup::Kind::kRead) {
          if (random() % 2 == 0) flight.bytes = copy(flight.step.offset, flight.step.length);
          continue;
        }
        ASSERT_NE(flight.step.kind, Lookup::Kind::kMiss) << flight.key << " of " << keys;
        ++(flight.step.kind == Lookup::Kind::kHit ? hits : others);
        refreshed += flight.lookup->counters().reads > 1;
        flight.lookup.reset();
      }
    }
    EXPECT_GT(hits, keys / 2);
    EXPECT_GT(refreshed, keys / 100);
    EXPECT_LT(others, hits / 10);
  }
}

class StoreCounter : public StoreObserver {
 public:
  StoreCounter() { store_observer = this; }
  ~StoreCounter() override { store_observer = nullptr; }
  void BeforeStore() override { ++stores; }
  uint64_t stores = 0;
};

// The longest wait of a write, in words stored rather than in time.
TEST(GrowthTest, NoStepIsLongerThanItsBound) {
  GrowthFixture f(256 << 20);
  StoreCounter counter;
  constexpr uint64_t kLineStores = 3 + kLineWords;  // version, contents, checksum, version
  constexpr uint64_t kSplitStores = 3 * kLinesPerUnit * kLineStores;
  constexpr uint64_t kPagesStores = kDirectoryPagesPerStep * (3 + kDirectoryEntriesPerPage);
  constexpr uint64_t kPromotionStores = 700 * (5 + kLineStores);  // a tenth of the keys, and more
  uint64_t longest = 0;
  for (uint64_t i = 0; i < 400000; ++i) {
    ASSERT_TRUE(f.Put(KeyOf(i), ValueOf(i)).ok());
    counter.stores = 0;
    f.table->GrowStep(TestTime(f.now));
    longest = std::max(longest, counter.stores);
  }
  EXPECT_GT(f.table->stats().segments, 200u);
  EXPECT_GT(longest, kSplitStores);
  // The split's own directory pages and overflow lines are few.
  EXPECT_LT(longest, kSplitStores + kPagesStores + kPromotionStores);
}

TEST(GrowthTest, SplitLeavesItemsWhereTheyAre) {
  GrowthFixture f(8 << 20);
  const std::string value(100, 'v');
  std::vector<uint64_t> hints;
  for (uint64_t i = 0; i < 3300; ++i) {
    hints.push_back(f.table->Put(KeyOf(i), BytesOf(value), {}, TestTime(0)).slot);
  }
  DirectoryCache map = f.Map();
  ASSERT_GT(f.GrowAll(), 1);
  ASSERT_EQ(f.table->stats().segments, 2u);
  for (uint64_t i = 0; i < hints.size(); ++i) {
    ASSERT_EQ(f.table->Find(KeyOf(i))->slot, hints[i]);
    ASSERT_EQ(Get(map, f.memory.data(), KeyOf(i), hints[i]).counters.reads, 1u);
  }
}

TEST(GrowthTest, SplitCarriesChainsAlong) {
  GrowthFixture f(8 << 20);
  // One home with far more keys than its window holds, in a segment that is full otherwise.
  const std::vector<std::string> crowd = KeysOfHome(77, 120, false);
  for (const std::string& key : crowd) ASSERT_TRUE(f.Put(key, std::string(60, 'c')).ok());
  ASSERT_GT(f.table->stats().overflow_lines, 6u);
  for (uint64_t i = 0; i < 3250; ++i) ASSERT_TRUE(f.Put(KeyOf(i), std::string(60, 'v')).ok());
  DirectoryCache old_map = f.Map();
  f.GrowAll();
  const Table::Stats stats = f.table->stats();
  EXPECT_GE(stats.segments, 2u);
  EXPECT_GT(stats.overflow_lines, 0u);  // 60 of them still share a home
  EXPECT_LT(stats.overflow_lines, 8u);
  DirectoryCache new_map = f.Map();
  for (DirectoryCache* map : {&old_map, &new_map}) {
    for (const std::string& key : crowd) {
      ASSERT_EQ(Get(*map, f.memory.data(), key).value, std::string(60, 'c'));
    }
  }
  for (const std::string& key : crowd) ASSERT_TRUE(f.Delete(key).ok());
  EXPECT_LT(f.table->stats().overflow_lines, stats.overflow_lines);
}

TEST(GrowthTest, WritesBetweenStepsOfADoublingAreFound) {
  GrowthFixture f(512 << 20);
  // Many small segments, so that one step does not double the directory.
  TableOptions options;
  options.split_percent = 1;
  f.table.reset();
  options.incarnation = kTestIncarnation;
  options.hash_seed = kTestSeed;
  f.table = *Table::Create(f.memory.span(), options);
  uint64_t key = 0;
  int between = 0;
  DirectoryCache map = f.Map();
  while (f.table->stats().directory_depth < 13) {
    const uint64_t depth = f.table->stats().directory_depth;
    ASSERT_TRUE(f.Put(KeyOf(key), "v").ok());
    const bool more = f.table->GrowStep(TestTime(++f.now));
    ASSERT_EQ(Get(map, f.memory.data(), KeyOf(key)).kind, Lookup::Kind::kHit);
    ASSERT_EQ(Get(map, f.memory.data(), KeyOf(key + 1)).kind, Lookup::Kind::kMiss);
    between += more && depth == 12 && f.table->stats().directory_depth == 12;
    ++key;
  }
  EXPECT_GT(between, 0);
}

// --- Against a model -------------------------------------------------------

class GrowthModelTest : public testing::TestWithParam<uint64_t> {};

TEST_P(GrowthModelTest, RandomWritesAndStepsLeaveWhatTheyWould) {
  const uint64_t seed = GetParam();
  SCOPED_TRACE(absl::StrCat("seed ", seed));
  std::mt19937_64 random(seed);
  TableOptions options;
  options.reuse_grace = absl::Milliseconds(random() % 2 * 50);
  // Small numbers make many segments of few keys.
  options.split_percent = static_cast<uint32_t>(30 + random() % 70);
  GrowthFixture f(24 << 20, options);
  std::vector<std::string> keys = KeysOfHome(10, 150, false);
  for (uint64_t i = 0; i < 40000; ++i) keys.push_back(KeyOf(i));
  std::unordered_map<std::string, std::pair<std::string, uint64_t>> model;
  std::unordered_map<std::string, uint64_t> hints;
  std::vector<DirectoryCache> maps;
  maps.push_back(f.Map());
  uint64_t last_version = 0;
  const uint64_t lazy = random() % 100;
  for (uint64_t i = 0; i < 150000; ++i) {
    // Few keys at first, then increasingly more of them.
    const std::string& key = keys[random() % std::min<uint64_t>(keys.size(), 200 + i / 2)];
    const auto known = model.find(key);
    const uint64_t rng = random() % 100;
    if (rng < 45) {
      const std::string value(random() % 3 == 0 ? random() % 300 : random() % 20,
                              static_cast<char>(random()));
      const WriteResult result = f.table->Put(key, BytesOf(value), {}, TestTime(++f.now));
      ASSERT_TRUE(result.status.ok()) << result.status;
      ASSERT_GT(result.version, last_version);
      last_version = result.version;
      model[key] = {value, result.version};
      hints[key] = result.slot;
    } else if (rng < 55) {
      ASSERT_EQ(f.Delete(key).ok(), known != model.end());
      model.erase(key);
    } else {
      DirectoryCache& map = maps[random() % maps.size()];
      const GetResult got = Get(map, f.memory.data(), key, random() % 2 == 0 ? hints[key] : 0);
      ASSERT_EQ(got.kind, known == model.end() ? Lookup::Kind::kMiss : Lookup::Kind::kHit) << key;
      if (known != model.end()) {
        ASSERT_EQ(got.value, known->second.first);
        ASSERT_EQ(got.version, known->second.second);
      }
    }
    if (random() % 100 >= lazy) f.table->GrowStep(TestTime(f.now));
    if (random() % 5000 == 0) maps.push_back(f.Map());
  }
  f.GrowAll();
  DirectoryCache map = f.Map();
  uint64_t key_bytes = 0;
  for (const auto& [key, value] : model) {
    ASSERT_EQ(Get(map, f.memory.data(), key).value, value.first);
    ASSERT_EQ(f.table->Find(key)->version, value.second);
    key_bytes += key.size();
  }
  Table::Stats stats = f.table->stats();
  EXPECT_EQ(stats.keys, model.size());
  EXPECT_EQ(stats.key_bytes, key_bytes);
  EXPECT_GT(stats.splits, 5u);
  for (const auto& [key, value] : model) ASSERT_TRUE(f.Delete(key).ok());
  stats = f.table->stats();
  EXPECT_EQ(stats.keys, 0u);
  EXPECT_EQ(stats.inline_keys, 0u);
  EXPECT_EQ(stats.item_bytes, 0u);
  EXPECT_EQ(stats.overflow_lines, 0u);
  EXPECT_EQ(stats.load_factor, 0);
}

INSTANTIATE_TEST_SUITE_P(Seeds, GrowthModelTest,
                         testing::Range(uint64_t{1}, uint64_t{1 + 8 / kVolumeParts}));

// --- Space -----------------------------------------------------------------

TEST(GrowthTest, ItemsLeaveSpaceForTheIndexToGrow) {
  constexpr uint64_t kBytes = 32 << 20;
  GrowthFixture f(kBytes);
  uint64_t large = 0;
  while (f.Put(absl::StrCat("large", large), std::string(50000, 'L')).ok()) ++large;
  for (uint64_t i = 0; i < large; ++i) ASSERT_TRUE(f.Delete(absl::StrCat("large", i)).ok());
  // A sixteenth of the region is reserved for the index: 64 units. Keys of 220 B need less.
  uint64_t small = 0;
  while (f.Put(absl::StrCat("small", small), std::string(212, 's')).ok()) {
    ++small;
    f.GrowAll();
  }
  const Table::Stats stats = f.table->stats();
  EXPECT_GT(stats.segments, 20u);
  EXPECT_GT(stats.item_bytes * 10, stats.item_space_bytes * 9);  // items, not the index, are full
  EXPECT_LT(stats.overflow_lines, small / 100);
  DirectoryCache map = f.Map();
  for (uint64_t i = 0; i < small; ++i) {
    ASSERT_EQ(Get(map, f.memory.data(), absl::StrCat("small", i)).kind, Lookup::Kind::kHit);
  }
}

TEST(GrowthTest, KeysOverflowToChainsThenFailIfNoSplitIsPossible) {
  constexpr uint64_t kBytes = 2 << 20;
  GrowthFixture f(kBytes);
  // Items take all space that they may; then tiny keys, all inline, fill the index.
  uint64_t large = 0;
  while (f.Put(absl::StrCat("large", large), std::string(60000, 'L')).ok()) ++large;
  std::vector<uint64_t> stored;
  uint64_t refused = 0;
  for (uint64_t i = 0; i < 60000; ++i) {
    const absl::Status status = f.Put(KeyOf(i), "tiny");
    f.GrowAll();
    if (status.ok()) {
      stored.push_back(i);
    } else {
      ASSERT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
      ++refused;
    }
  }
  EXPECT_GT(refused, 0u);
  EXPECT_GT(stored.size(), kSegmentKeysMax);
  EXPECT_EQ(f.table->stats().keys, large + stored.size());
  DirectoryCache map = f.Map();
  for (const uint64_t i : stored) {
    ASSERT_EQ(Get(map, f.memory.data(), KeyOf(i)).value, "tiny");
  }
  for (uint64_t i = 0; i < large; ++i) {
    ASSERT_EQ(Get(map, f.memory.data(), absl::StrCat("large", i)).value.size(), 60000u);
  }
  // Deleted keys free space.
  for (const uint64_t i : stored) ASSERT_TRUE(f.Delete(KeyOf(i)).ok());
  uint64_t again = 0;
  for (const uint64_t i : stored) again += f.Put(KeyOf(i), "tiny").ok();
  EXPECT_GT(again, stored.size() * 9 / 10);
}

// Keys whose hashes agree in many low bits would double the directory without end.
TEST(GrowthTest, KeysMadeToMeetDoNotDoubleTheDirectoryWithoutEnd) {
  GrowthFixture f(64 << 20);
  uint64_t stored = 0;
  for (uint64_t i = 0; stored < 12000; ++i) {
    const std::string key = KeyOf(i);
    if (HashKey(key, kTestSeed).directory_index(8) != 3) continue;
    ASSERT_TRUE(f.Put(key, "v").ok());
    ++stored;
    f.GrowAll();
  }
  const Table::Stats stats = f.table->stats();
  EXPECT_LE(stats.directory_depth, 5u);
  DirectoryCache map = f.Map();
  EXPECT_LE(stats.index_bytes, 2 << 20);
}

TEST(GrowthTest, GrowthEndsWithTheVersions) {
  for (const size_t value_bytes : {8, 20, 50}) {
    TableOptions options;
    options.cas_version = kCasVersionMax - 20000;
    GrowthFixture f(8 << 20, options);
    for (uint64_t i = 0; f.Put(KeyOf(i), std::string(value_bytes, 'v')).ok(); ++i) f.GrowAll();
    EXPECT_FALSE(f.table->GrowStep(TestTime(f.now)));
    EXPECT_EQ(f.table->FlushStep(0, kCasVersionMax, 10, TestTime(f.now)).status().code(),
              absl::StatusCode::kResourceExhausted);
    EXPECT_GT(f.table->stats().keys, 8000u);
    EXPECT_GT(f.table->stats().splits, 0u);
  }
}

// --- Flush -----------------------------------------------------------------

TEST(FlushTest, DeletesWhatWasThereAndNothingNewer) {
  GrowthFixture f(64 << 20);
  std::mt19937_64 random(1);
  uint64_t key = 0;
  const auto put = [&] {
    ASSERT_TRUE(f.Put(KeyOf(key), ValueOf(key)).ok());
    ++key;
    f.table->GrowStep(TestTime(f.now));
  };
  while (key < 20000) put();
  const uint64_t bound = f.table->stats().cas_version;
  const uint64_t segments = f.table->stats().segments;
  // While it is under way, old keys are overwritten, and new ones double the table.
  uint64_t cursor = 0;
  uint64_t deleted = 0;
  uint64_t steps = 0;
  std::set<std::string> kept;
  do {
    const absl::StatusOr<Table::FlushResult> result =
        f.table->FlushStep(cursor, bound, 100, TestTime(++f.now));
    ASSERT_TRUE(result.ok());
    ASSERT_LE(result->deleted, 100u);
    deleted += result->deleted;
    cursor = result->cursor;
    for (int i = 0; i < 300; ++i) put();
    const std::string overwritten = KeyOf(random() % 20000);
    ASSERT_TRUE(f.Put(overwritten, "newer").ok());
    kept.insert(overwritten);
    ASSERT_LT(++steps, 10000u);
  } while (cursor != 0);
  EXPECT_GE(f.table->stats().segments, 2 * segments);
  EXPECT_LE(deleted, 20000u);
  EXPECT_GE(deleted + kept.size(), 20000u);
  DirectoryCache map = f.Map();
  for (const std::string& name : kept) {
    ASSERT_EQ(Get(map, f.memory.data(), name).value, "newer");
  }
  for (const std::string& name : kept) ASSERT_TRUE(f.Delete(name).ok());
  for (uint64_t i = 0; i < key; ++i) {
    const Lookup::Kind expected = i < 20000 ? Lookup::Kind::kMiss : Lookup::Kind::kHit;
    ASSERT_EQ(Get(map, f.memory.data(), KeyOf(i)).kind, expected) << i;
  }
}

TEST(FlushTest, StepIsBoundedWhereNothingIsToBeDeleted) {
  GrowthFixture f(64 << 20);
  for (uint64_t i = 0; i < 60000; ++i) {
    ASSERT_TRUE(f.Put(KeyOf(i), "v").ok());
    f.table->GrowStep(TestTime(0));
  }
  uint64_t steps = 0;
  uint64_t cursor = 0;
  do {
    cursor = f.table->FlushStep(cursor, 0, 1000, TestTime(0))->cursor;
    ++steps;
  } while (cursor != 0);
  const uint64_t lines = f.table->stats().segments * kLinesPerUnit;
  EXPECT_EQ(steps, (lines + kFlushLinesMax - 1) / kFlushLinesMax);
  EXPECT_EQ(f.table->stats().keys, 60000u);
}

TEST(FlushTest, AnyCursorIsSafe) {
  GrowthFixture f(8 << 20);
  for (uint64_t i = 0; i < 8000; ++i) {
    ASSERT_TRUE(f.Put(KeyOf(i), "v").ok());
    f.table->GrowStep(TestTime(0));
  }
  std::mt19937_64 random(3);
  for (int i = 0; i < 1000; ++i) {
    const uint64_t cursor = random() >> random() % 64;
    ASSERT_TRUE(f.table->FlushStep(cursor, 0, random(), TestTime(0)).ok());
  }
  EXPECT_EQ(f.table->FlushStep(~uint64_t{0}, 1, 1, TestTime(0))->cursor, 0u);
  EXPECT_EQ(f.table->stats().keys, 8000u);
}

TEST(PrefetchTest, ChangesNothing) {
  GrowthFixture f(1 << 20);
  ASSERT_TRUE(f.Put("inline", "value").ok());
  ASSERT_TRUE(f.Put("item", std::string(100, 'v')).ok());
  const std::string before(reinterpret_cast<const char*>(f.memory.data()), f.memory.size());
  for (const absl::string_view key : {"inline", "item", "absent"}) {
    SlotHint hint = f.table->Prefetch(HashKey(key, kTestSeed));
    f.table->PrefetchItem(HashKey(key, kTestSeed), hint);
  }
  EXPECT_EQ(std::memcmp(before.data(), f.memory.data(), before.size()), 0);
}

// Hints of each age, while keys come and go, change their form, and segments split and merge.
TEST(PrefetchTest, WritesByOldHintsFindTheKeysPresentPlace) {
  GrowthFixture f(8 << 20);
  std::mt19937_64 random(7);
  std::map<std::string, std::string> model;
  std::map<std::string, SlotHint> hints;
  int by_hint = 0;
  for (int i = 0; i < 80'000; ++i) {
    const int keys = i / 20'000 % 2 == 0 ? 12'000 : 500;
    const std::string key = KeyOf(random() % 12'000);
    const KeyHash hash = HashKey(key, kTestSeed);
    if (const auto old = hints.find(key); old == hints.end() || random() % 4 == 0) {
      SlotHint& hint = hints[key] = f.table->Prefetch(hash);
      f.table->PrefetchItem(hash, hint);
    }
    if (random() % 12'000 >= static_cast<uint64_t>(keys)) {
      ASSERT_EQ(f.table->Delete(key, {}, TestTime(i)).status.ok(), model.erase(key) > 0);
    } else {
      const std::string value(random() % 4 == 0 ? 5 : 60, static_cast<char>('a' + i % 26));
      by_hint += hints[key].line_version != SlotHint().line_version;
      ASSERT_TRUE(
          f.table->Put({key, hash}, BytesOf(value), {}, TestTime(i), {}, hints[key]).status.ok());
      model[key] = value;
    }
    f.table->GrowStep(TestTime(i));
  }
  EXPECT_GT(by_hint, 5'000);
  EXPECT_GT(f.table->stats().splits, 0u);
  EXPECT_GT(f.table->stats().merges, 0u);
  EXPECT_EQ(f.table->stats().keys, model.size());
  for (const auto& [key, value] : model) {
    const auto found = f.table->Find(key);
    ASSERT_TRUE(found.ok()) << key;
    EXPECT_EQ(std::string(reinterpret_cast<const char*>(found->value.data()), found->value.size()),
              value);
  }
}

}  // namespace
}  // namespace osprey::index
