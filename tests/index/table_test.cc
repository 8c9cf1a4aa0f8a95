// The writer and the reader together, against a model. A client finds what was written by READs
// alone, and so does the server itself.

#include "index/writer/table.h"

#include <cstring>
#include <random>
#include <string>
#include <unordered_map>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "index/reader/lookup.h"
#include "tests/index/index_test_util.h"
#include "tests/index/table_fixture.h"

namespace osprey::index {
namespace {

TEST(TableTest, SmallValueIsReadInOneReadAndALargeOneInTwo) {
  TableFixture f;
  ASSERT_TRUE(f.Put("small", "value").status.ok());
  const WriteResult large = f.Put("large", std::string(500, 'x'));
  ASSERT_TRUE(large.status.ok());

  const GetResult small_get = f.Read("small");
  EXPECT_EQ(small_get.kind, Lookup::Kind::kHit);
  EXPECT_EQ(small_get.value, "value");
  EXPECT_EQ(small_get.counters.reads, 1u);
  EXPECT_EQ(small_get.slot, 0u);

  const GetResult cold = f.Read("large");
  EXPECT_EQ(cold.kind, Lookup::Kind::kHit);
  EXPECT_EQ(cold.value, std::string(500, 'x'));
  EXPECT_EQ(cold.version, large.version);
  EXPECT_EQ(cold.counters.reads, 2u);
  EXPECT_EQ(cold.slot, large.slot);

  const GetResult hinted = f.Read("large", cold.slot);
  EXPECT_EQ(hinted.value, std::string(500, 'x'));
  EXPECT_EQ(hinted.counters.reads, 1u);

  const GetResult miss = f.Read("absent");
  EXPECT_EQ(miss.kind, Lookup::Kind::kMiss);
  EXPECT_EQ(miss.counters.reads, 1u);
}

// The rest of its words is zeros (layout.h).
TEST(TableTest, AShorterValueInTheSameWordsLeavesNothingOfTheLongerOne) {
  TableFixture f;
  ASSERT_TRUE(f.Put("k", "12345678-secret").status.ok());
  const auto held = [&] {
    const absl::Span<const std::byte> region = f.memory.span();
    const absl::string_view text(reinterpret_cast<const char*>(region.data()), region.size());
    return absl::StrContains(text, "secret");
  };
  ASSERT_TRUE(held());
  ASSERT_TRUE(f.Put("k", "87654321").status.ok());
  EXPECT_EQ(f.Read("k").value, "87654321");
  EXPECT_FALSE(held());
}

// The search compares all words of a line at once, and only some of them are heads.
TEST(TableTest, AnInlineValueThatLooksLikeASlotIsNone) {
  TableFixture f;
  // Keys of 8 B with one home, so that their values begin at a word.
  std::vector<std::string> keys;
  for (uint64_t i = 10'000'000; keys.size() < 4; ++i) {
    const std::string key = absl::StrCat(i);
    if (keys.empty() || HashKey(key, kTestSeed).home() == HashKey(keys[0], kTestSeed).home())
      keys.push_back(key);
  }
  const std::string large(500, 'x');
  // A slot in each line of the window; then the inline item behind the first one.
  ASSERT_TRUE(f.Put(keys[0], large).status.ok());
  ASSERT_TRUE(f.Put(keys[1], large).status.ok());
  const KeyHash absent = HashKey(keys[3], kTestSeed);
  const uint64_t slot = Slot{kRegionBytesMax / 2, 3, absent.fingerprint()}.Pack();
  std::string value(3 * kWordBytes, '\0');
  for (size_t i = 0; i < 3; ++i) std::memcpy(&value[i * kWordBytes], &slot, kWordBytes);
  ASSERT_TRUE(f.Put(keys[2], value).status.ok());
  ASSERT_EQ(f.table->stats().inline_keys, 1u);

  SlotHint hint = f.table->Prefetch(absent);
  f.table->PrefetchItem(absent, hint);
  EXPECT_EQ(hint.line_version, SlotHint().line_version);
  EXPECT_FALSE(f.table->Find(keys[3]).ok());
  ASSERT_TRUE(f.Put(keys[3], large).status.ok());
  EXPECT_EQ(f.Read(keys[3]).value, large);
  EXPECT_EQ(f.Read(keys[2]).value, value);
}

TEST(TableTest, HintsThatWentStaleCostReadsAndNothingElse) {
  TableFixture f;
  const uint64_t first = f.Put("key", std::string(200, 'a')).slot;
  ASSERT_NE(f.Put("key", std::string(900, 'b')).slot, first);
  GetResult got = f.Read("key", first);
  EXPECT_EQ(got.value, std::string(900, 'b'));
  EXPECT_EQ(got.counters.stale_hints, 1u);

  ASSERT_TRUE(f.Delete("key").status.ok());
  got = f.Read("key", first);
  EXPECT_EQ(got.kind, Lookup::Kind::kMiss);

  // A hint of another key, or to no item.
  const uint64_t other = f.Put("other", std::string(200, 'c')).slot;
  EXPECT_EQ(f.Read("key", other).kind, Lookup::Kind::kMiss);
  const uint32_t fingerprint = HashKey("key", kTestSeed).fingerprint();
  for (const uint64_t offset :
       {uint64_t{0}, uint64_t{8}, kTinyRegionBytes - 8, kTinyRegionBytes, kRegionBytesMax - 8}) {
    for (const uint32_t length_class : {0u, 100u, 255u}) {
      EXPECT_EQ(f.Read("key", Slot{offset, length_class, fingerprint}.Pack()).kind,
                Lookup::Kind::kMiss);
    }
  }
}

TEST(TableTest, ConditionsAreJudgedByTheVersionThatIsThere) {
  TableFixture f;
  EXPECT_EQ(f.Put("key", "1", IfVersion(7)).status.code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(f.Delete("key").status.code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(f.Delete("key", IfVersion(7)).status.code(), absl::StatusCode::kNotFound);
  const WriteResult first = f.Put("key", "1", kIfAbsent);
  ASSERT_TRUE(first.status.ok());
  const WriteResult refused = f.Put("key", "2", kIfAbsent);
  EXPECT_EQ(refused.status.code(), absl::StatusCode::kAlreadyExists);
  EXPECT_EQ(refused.version, first.version);
  const WriteResult second = f.Put("key", "2", IfVersion(first.version));
  ASSERT_TRUE(second.status.ok());
  EXPECT_GT(second.version, first.version);
  const WriteResult stale = f.Put("key", "3", IfVersion(first.version));
  EXPECT_EQ(stale.status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(stale.version, second.version);
  EXPECT_EQ(f.Delete("key", IfVersion(first.version)).status.code(),
            absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(f.Read("key").value, "2");
  ASSERT_TRUE(f.Delete("key", IfVersion(second.version)).status.ok());
  // Versions never repeat for a key, even across its deletion.
  EXPECT_GT(f.Put("key", "4").version, second.version);
}

TEST(TableTest, ImpossibleLengthsAreRefusedWithTheirBound) {
  TableFixture f;
  EXPECT_EQ(f.Put("", "v").status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(f.Put(std::string(4097, 'k'), "v").status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_TRUE(f.Put(std::string(4096, 'k'), "v").status.ok());
  EXPECT_EQ(f.Read(std::string(4096, 'k')).value, "v");
  EXPECT_EQ(f.table->Reserve("k", kValueBytesMax + 1, TestTime(0)).status().code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(f.table->Reserve("k", kValueBytesMax, TestTime(0)).status().code(),
            absl::StatusCode::kResourceExhausted);
}

TEST(TableTest, WritesAreRefusedWhenTheVersionsAreUsedUp) {
  TableOptions options;
  options.cas_version = kCasVersionMax - 500;
  TableFixture f(kTinyRegionBytes, options);
  absl::Status status;
  uint64_t last = 0;
  int written = 0;
  for (; written < 1000 && status.ok(); ++written) {
    const WriteResult result = f.Put(absl::StrCat("key", written % 7), absl::StrCat(written));
    status = result.status;
    if (!status.ok()) break;
    ASSERT_GT(result.version, last);
    last = result.version;
  }
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_TRUE(IsVersionsUsedUp(status));
  EXPECT_GT(written, 10);
  EXPECT_EQ(f.Delete("key0").status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(f.table->Reserve("key0", 1, TestTime(0)).status().code(),
            absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(f.Read("key0").kind, Lookup::Kind::kHit);
}

TEST(TableTest, ValuesOfEverySizeComeBackWhole) {
  TableFixture f(64 << 20);
  std::mt19937_64 random(1);
  for (uint64_t size = 0; size <= (uint64_t{8} << 20);
       size = size < 300 ? size + 1 : size * 5 / 4) {
    std::string value(size, '\0');
    for (char& c : value) c = static_cast<char>(random());
    const std::string key = absl::StrCat("key", size);
    ASSERT_TRUE(f.Put(key, value).status.ok()) << size;
    const GetResult got = f.Read(key);
    ASSERT_EQ(got.kind, Lookup::Kind::kHit) << size;
    ASSERT_EQ(got.value, value) << size;
    ASSERT_LE(got.counters.reads, 2u);
    ASSERT_EQ(TextOf(f.table->Find(key)->value), value);
    f.Delete(key);
  }
}

TEST(TableTest, TableIsLaidOutInAnyRegionOfSensibleSize) {
  for (uint64_t bytes : {Table::RegionBytesMin(), uint64_t{4} << 20, (uint64_t{4} << 20) + 4096,
                         uint64_t{64} << 20}) {
    TableFixture f(bytes);
    const Table::Stats stats = f.table->stats();
    EXPECT_EQ(stats.region_bytes, bytes);
    EXPECT_EQ(stats.index_bytes, kUnitBytes);  // one segment
    EXPECT_EQ(stats.segments, 1u);
    ASSERT_TRUE(f.Put("key", "value").status.ok());
    EXPECT_EQ(f.Read("key").value, "value");
  }
  RegionMemory small(Table::RegionBytesMin() - 4096);
  TableOptions options;
  options.incarnation = 1;
  EXPECT_EQ(Table::Create(small.span(), options).status().code(),
            absl::StatusCode::kInvalidArgument);
}

// Keys of one home overfill its window and chain, and use all ways to find space, one after the
// other.
TEST(TableTest, WindowDemotesBeforeItChainsAndRecoversWhenKeysGo) {
  TableFixture f;
  const std::vector<std::string> keys = KeysOfHome(100, 60, false);
  for (const std::string& key : keys) ASSERT_TRUE(f.Put(key, "12345678").status.ok());
  Table::Stats stats = f.table->stats();
  EXPECT_GT(stats.demotions, 0u);
  EXPECT_EQ(stats.inline_keys, 0u);  // all demoted before the first overflow line
  EXPECT_EQ(stats.chained_inserts, keys.size() - 2 * kLineWordsUsable);
  EXPECT_EQ(stats.overflow_lines, 3u);
  for (const std::string& key : keys) ASSERT_EQ(f.Read(key).value, "12345678");
  // The last key of the chain: window, three lines, item.
  EXPECT_EQ(f.Read(keys.back()).counters.reads, 5u);

  for (size_t i = 0; i < 50; ++i) {
    ASSERT_TRUE(f.Delete(keys[i]).status.ok());
    for (size_t j = 0; j < keys.size(); ++j) {
      ASSERT_EQ(f.Read(keys[j]).kind, j <= i ? Lookup::Kind::kMiss : Lookup::Kind::kHit)
          << i << " " << j;
    }
  }
  stats = f.table->stats();
  EXPECT_EQ(stats.overflow_lines, 0u);
  EXPECT_GT(stats.pull_backs, 0u);
  EXPECT_GT(stats.promotions, 0u);
  EXPECT_EQ(stats.keys, 10u);
  for (size_t i = 50; i < keys.size(); ++i) EXPECT_LE(f.Read(keys[i]).counters.reads, 2u);
}

// --- Against a model -------------------------------------------------------

struct ModelValue {
  std::string value;
  uint64_t version;
};

class ModelTest : public testing::TestWithParam<uint64_t> {};

TEST_P(ModelTest, RandomWritesLeaveWhatTheyWould) {
  const uint64_t seed = GetParam();
  SCOPED_TRACE(absl::StrCat("seed ", seed));
  std::mt19937_64 random(seed);
  TableOptions options;
  options.reuse_grace = absl::Milliseconds(random() % 3 * 50);
  TableFixture f(kTinyRegionBytes, options);
  // Some keys overfill three neighbouring windows, the others are anywhere.
  std::vector<std::string> keys;
  for (uint32_t home : {10u, 11u, 12u}) {
    for (std::string& key : KeysOfHome(home, 60, false)) keys.push_back(std::move(key));
  }
  for (int i = 0; i < 400; ++i) keys.push_back(absl::StrCat("free", i));
  std::unordered_map<std::string, ModelValue> model;
  std::unordered_map<std::string, uint64_t> hints;
  uint64_t last_version = 0;
  uint64_t full = 0;
  bool growing = true;
  for (int i = 0; i < 30000; ++i) {
    if (i % 3000 == 0) growing = !growing;
    const std::string& key = keys[random() % keys.size()];
    const auto known = model.find(key);
    // Small values at first, so that overflow lines get their unit; then the region runs full.
    const uint64_t long_bytes = i < 6000 ? 200 : key[0] == 'k' ? 1500 : 6000;
    const uint64_t rng = random() % 100;
    if (rng < (growing ? 50 : 20)) {
      std::string value(random() % 4 == 0 ? random() % long_bytes : random() % 40,
                        static_cast<char>(random()));
      Condition condition;
      if (rng % 10 == 0) condition = kIfAbsent;
      if (rng % 10 == 1) condition = IfVersion(known == model.end() ? 1 : known->second.version);
      WriteResult result;
      if (rng % 10 == 2) {
        absl::StatusOr<Reservation> reservation =
            f.table->Reserve(key, value.size(), TestTime(++f.now));
        if (reservation.ok()) {
          std::memcpy(reservation->value().data(), value.data(), value.size());
          result = f.table->Publish(*std::move(reservation), condition, TestTime(++f.now));
        } else {
          result.status = reservation.status();
        }
      } else {
        result = f.Put(key, value, condition);
      }
      if (result.status.ok()) {
        ASSERT_GT(result.version, last_version);
        last_version = result.version;
        model[key] = {value, result.version};
        hints[key] = result.slot;
      } else if (result.status.code() == absl::StatusCode::kResourceExhausted) {
        ++full;
      } else if (condition.kind == Condition::Kind::kAbsent) {
        ASSERT_EQ(result.status.code(), absl::StatusCode::kAlreadyExists);
        ASSERT_EQ(result.version, known->second.version);
      } else {
        ASSERT_EQ(result.status.code(), absl::StatusCode::kNotFound);
      }
    } else if (rng < 60) {
      const WriteResult result = f.Delete(key);
      ASSERT_EQ(result.status.ok(), known != model.end());
      if (result.status.ok()) last_version = result.version;
      model.erase(key);
    } else {
      const uint64_t hint = random() % 2 == 0 ? hints[key] : 0;
      const GetResult got = f.Read(key, hint);
      ASSERT_EQ(got.kind, known == model.end() ? Lookup::Kind::kMiss : Lookup::Kind::kHit) << key;
      ASSERT_TRUE(got.counters.torn == 0 || got.counters.stale_hints == 1);
      if (known == model.end()) continue;
      ASSERT_EQ(got.value, known->second.value);
      ASSERT_EQ(got.version, known->second.version);
      const absl::StatusOr<Table::View> view = f.table->Find(key);
      ASSERT_TRUE(view.ok());
      ASSERT_EQ(TextOf(view->value), known->second.value);
      ASSERT_EQ(view->slot, got.slot);
    }
  }
  const Table::Stats stats = f.table->stats();
  uint64_t key_bytes = 0;
  uint64_t value_bytes = 0;
  for (const auto& [key, value] : model) {
    ASSERT_EQ(f.Read(key).value, value.value);
    key_bytes += key.size();
    value_bytes += value.value.size();
  }
  EXPECT_EQ(stats.keys, model.size());
  EXPECT_EQ(stats.key_bytes, key_bytes);
  EXPECT_EQ(stats.value_bytes, value_bytes);
  // The test is void unless all of these have occurred.
  EXPECT_GT(stats.demotions, 10u);
  EXPECT_GT(stats.promotions, 10u);
  EXPECT_GT(stats.pull_backs, 10u);
  EXPECT_GT(stats.chained_inserts, 10u);
  EXPECT_GT(stats.in_place_updates, 10u);
  EXPECT_GT(full, 0u);
  // Emptied, it holds nothing.
  for (const auto& [key, value] : model) ASSERT_TRUE(f.Delete(key).status.ok());
  const Table::Stats empty = f.table->stats();
  EXPECT_EQ(empty.keys, 0u);
  EXPECT_EQ(empty.inline_keys, 0u);
  EXPECT_EQ(empty.key_bytes, 0u);
  EXPECT_EQ(empty.value_bytes, 0u);
  EXPECT_EQ(empty.item_bytes, 0u);
  EXPECT_EQ(empty.overflow_lines, 0u);
  EXPECT_EQ(empty.load_factor, 0);
}

INSTANTIATE_TEST_SUITE_P(Seeds, ModelTest, testing::Range(uint64_t{1}, uint64_t{7}));

}  // namespace
}  // namespace osprey::index
