// Writes in two steps that are decided and never made: the table is as before.

#include <cstdint>
#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "index/writer/table.h"
#include "tests/index/index_test_util.h"
#include "tests/index/prepared_fixture.h"
#include "tests/support/volume.h"

namespace osprey::index {
namespace {

using Kind = Table::Intent::Kind;

// By key: value, version and expiry. With expired keys that were not removed yet.
using Contents = std::map<std::string, std::tuple<std::string, uint64_t, uint64_t>>;

Contents ContentsOf(const Table& table) {
  Contents contents;
  uint64_t cursor = 0;
  do {
    cursor = table.Walk(
        cursor, 1 << 20,
        [&](const WalkedKey& key) {
          contents[std::string(key.key)] = {TextOf(key.value), key.version, key.expiry_ns};
        },
        ExpiredKeys::kPresent);
  } while (cursor != 0);
  return contents;
}

// The keys, and the space of these.
void ExpectSameStats(const TableStats& before, const TableStats& after) {
  EXPECT_EQ(after.keys, before.keys);
  EXPECT_EQ(after.inline_keys, before.inline_keys);
  EXPECT_EQ(after.key_bytes, before.key_bytes);
  EXPECT_EQ(after.value_bytes, before.value_bytes);
  EXPECT_EQ(after.item_bytes, before.item_bytes);
  EXPECT_EQ(after.item_space_bytes, before.item_space_bytes);
  EXPECT_EQ(after.quarantine_bytes, before.quarantine_bytes);
  EXPECT_EQ(after.index_bytes, before.index_bytes);
  EXPECT_EQ(after.overflow_lines, before.overflow_lines);
  EXPECT_EQ(after.expiring_keys, before.expiring_keys);
}

void Drop(PreparedFixture& f) {
  f.table->DropPrepared();
  f.decided.clear();  // with the reservations
}

class DroppedWritesTest : public ::testing::TestWithParam<bool> {};
INSTANTIATE_TEST_SUITE_P(Evict, DroppedWritesTest, ::testing::Values(false, true),
                         [](const auto& evict) { return evict.param ? "Evicts" : "Refuses"; });

TEST_P(DroppedWritesTest, EachKindLeavesTheTableAsBefore) {
  const Lifetime ten_seconds = Lifetime::For(absl::Seconds(10));
  const Lifetime a_minute = Lifetime::For(absl::Seconds(60));
  PreparedFixture f(GetParam());
  f.Put("inline", "1");
  f.Put("inline-longer", "1");
  f.Put("inline-expired", "1");
  f.Put("item", std::string(100, 'a'));
  f.Put("item-longer", std::string(100, 'b'));
  f.Put("long", std::string(20000, 'c'));
  f.Put("mortal", std::string(100, 'd'), ten_seconds);
  f.Put("mortal-long", std::string(20000, 'e'), ten_seconds);
  const uint64_t version = f.Put("mortal-put", std::string(100, 'f'), ten_seconds).version;
  // A line is kept from now on, as the first such write leaves it.
  ASSERT_TRUE(f.Decide(Kind::kPut, "first", "1", {}).ok());
  ExpectApplied(f, f.decided[0]);
  f.decided.clear();
  const TableStats before = f.table->stats();
  const Contents contents = ContentsOf(*f.table);
  const auto decide_all = [&] {
    EXPECT_TRUE(f.Decide(Kind::kPut, "inline", "2", {}).ok());
    EXPECT_TRUE(f.Decide(Kind::kPut, "inline-longer", std::string(300, 'x'), {}).ok());
    EXPECT_TRUE(f.Decide(Kind::kExpire, "inline-expired", "", a_minute).ok());
    EXPECT_TRUE(f.Decide(Kind::kPut, "item", std::string(100, 'x'), {}).ok());
    EXPECT_TRUE(f.Decide(Kind::kPut, "item-longer", std::string(300, 'x'), {}).ok());
    EXPECT_TRUE(f.Decide(Kind::kPublish, "long", std::string(30000, 'x'), {}).ok());
    EXPECT_TRUE(f.Decide(Kind::kExpire, "mortal", "", a_minute).ok());
    EXPECT_TRUE(f.Decide(Kind::kExpire, "mortal-long", "", Lifetime::Forever()).ok());
    EXPECT_TRUE(f.Decide(Kind::kPut, "mortal-put", std::string(100, 'x'), a_minute,
                         {Condition::Kind::kVersionIs, version})
                    .ok());
    EXPECT_TRUE(f.Decide(Kind::kPut, "new", "1", {}).ok());
    EXPECT_TRUE(f.Decide(Kind::kPut, "new-item", std::string(300, 'x'), a_minute).ok());
    EXPECT_TRUE(f.Decide(Kind::kPublish, "new-long", std::string(30000, 'x'), {}).ok());
  };
  decide_all();
  EXPECT_GT(f.table->stats().item_bytes, before.item_bytes);
  EXPECT_EQ(f.Read("mortal").kind, Lookup::Kind::kAskServer);
  Drop(f);
  ExpectSameStats(before, f.table->stats());
  EXPECT_EQ(ContentsOf(*f.table), contents);
  for (const auto& [key, content] : contents) {
    const GetResult result = f.Read(key);
    EXPECT_EQ(result.kind, Lookup::Kind::kHit) << key;
    EXPECT_EQ(std::tuple(result.value, result.version, result.expiry_ns), content) << key;
  }
  EXPECT_EQ(f.Read("new-item").kind, Lookup::Kind::kMiss);
  // The table is one like others.
  decide_all();
  for (Decided& one : f.decided) ExpectApplied(f, one);
}

// Neither items nor overflow lines are lost: far more than the memory has are decided in all.
TEST_P(DroppedWritesTest, MemoryIsFreeAgain) {
  PreparedFixture f(GetParam());
  f.Put("present", std::string(100, 'p'));
  for (int round = 0; round < 100; ++round) {
    for (int i = 0; i < 100; ++i) {
      const std::string key = absl::StrCat("new", i);
      ASSERT_TRUE(f.Decide(Kind::kPut, key, "v", {}).ok()) << round;
    }
    Drop(f);
  }
  EXPECT_EQ(f.table->evictions(), 0u);
  f.Fill("key", 5);
  EXPECT_GT(f.table->stats().keys, 1000u);
}

TEST(DroppedHomeTest, AHomeHasAllItsPlacesAgain) {
  PreparedFixture f;
  const std::vector<std::string> keys = KeysOfHome(7, 200, /*same_fingerprint=*/false);
  for (int round = 0; round < 2; ++round) {
    absl::Status refusal;
    for (size_t i = 0; i < keys.size() && refusal.ok(); ++i)
      refusal = f.Decide(Kind::kPut, keys[i], std::string(100, 'v'), {});
    EXPECT_TRUE(IsChainFull(refusal)) << refusal;
    EXPECT_EQ(f.decided.size(), kChainLinesMax * kLineWordsUsable);
    Drop(f);
  }
}

// --- Hidden keys ---------------------------------------------------------------------------------

TEST(DroppedHiddenTest, AHiddenKeyIsReadAgainUntilItsOldExpiry) {
  HiddenKey f;
  EXPECT_EQ(f.Read("key").kind, Lookup::Kind::kAskServer);
  Drop(f);
  EXPECT_EQ(f.Read("key").kind, Lookup::Kind::kHit);
  EXPECT_EQ(f.Read("key").value, std::string(100, 'v'));
  f.now += absl::Seconds(11);
  EXPECT_FALSE(f.AnswersLater()) << "it waits for no write";
  EXPECT_EQ(f.Read("key").kind, Lookup::Kind::kMiss);
  EXPECT_FALSE(f.table->Find("key").ok());
}

TEST(DroppedHiddenTest, ASweepThatPassedOverTheKeyComesAgain) {
  HiddenKey f;
  f.Put("swept", "1", Lifetime::For(absl::Seconds(10)));
  f.now += absl::Seconds(11);
  f.Sweep();
  ASSERT_EQ(f.table->stats().keys, 1u);
  Drop(f);
  f.Sweep();
  EXPECT_EQ(f.table->stats().keys, 0u);
  EXPECT_EQ(f.table->stats().item_bytes, 0u);
}

// All keys of a home have pending writes, and a new one takes the place of one of them.
TEST(DroppedHiddenTest, AnEvictedKeyStaysAway) {
  PreparedFixture f(/*evict=*/true);
  constexpr size_t kPlaces = (2 + kChainLinesMax) * kLineWordsUsable;
  const std::vector<std::string> keys = KeysOfHome(7, kPlaces + 1, /*same_fingerprint=*/false);
  ASSERT_TRUE(f.Decide(Kind::kPut, keys.back(), std::string(100, 'w'), {}).ok());
  for (size_t i = 0; i < kPlaces; ++i) {
    f.Put(keys[i], std::string(100, 'v'), Lifetime::For(absl::Seconds(10)));
    ASSERT_TRUE(f.Decide(Kind::kExpire, keys[i], "", Lifetime::For(absl::Seconds(60))).ok());
  }
  ExpectApplied(f, f.decided[0]);
  ASSERT_EQ(f.table->evictions(), 1u);
  const TableStats before = f.table->stats();
  Drop(f);
  ExpectSameStats(before, f.table->stats());
  size_t missing = 0;
  for (size_t i = 0; i < kPlaces; ++i) {
    const GetResult result = f.Read(keys[i]);
    missing += result.kind == Lookup::Kind::kMiss;
    EXPECT_TRUE(result.kind == Lookup::Kind::kMiss || result.kind == Lookup::Kind::kHit) << i;
  }
  EXPECT_EQ(missing, 1u);
}

// --- Random writes ---------------------------------------------------------------------------------

uint64_t RunDropped(uint64_t seed, bool evict) {
  PreparedFixture f(evict, seed % 2 == 0 ? 512 << 10 : 1 << 20);
  RandomDecisions load(f, seed);
  for (int i = 0; i < 60; ++i)
    (void)f.Put(absl::StrCat("old", i), load.Value(), load.SomeLifetime());
  f.Fill("first", 20 + load.random.Below(2000));
  uint64_t dropped = 0;
  for (int round = 0; round < 8; ++round) {
    const Contents before = ContentsOf(*f.table);
    const uint64_t ended = f.table->evictions() + f.table->stats().expiries;
    for (uint64_t i = load.random.Below(50); i-- > 0;) load.Decide();
    if (load.random.Chance(70)) {
      dropped += f.decided.size();
      Drop(f);
      const Contents after = ContentsOf(*f.table);
      EXPECT_EQ(before.size() - after.size(),
                f.table->evictions() + f.table->stats().expiries - ended);
      for (const auto& [key, content] : after) {
        const auto found = before.find(key);
        EXPECT_TRUE(found != before.end() && found->second == content) << key;
        const auto now_ns = static_cast<uint64_t>(absl::ToUnixNanos(f.now));
        const uint64_t expiry_ns = std::get<2>(content);
        const bool is_alive = expiry_ns == 0 || expiry_ns > now_ns;
        EXPECT_EQ(f.Read(key).kind, is_alive ? Lookup::Kind::kHit : Lookup::Kind::kMiss) << key;
      }
      EXPECT_EQ(f.table->stats().keys, after.size());
    } else {
      for (Decided& one : f.decided) ExpectApplied(f, one);
      f.decided.clear();
    }
    load.keys.clear();
    f.now += absl::Milliseconds(load.random.Below(1500));
    f.Step();
    if (testing::Test::HasFailure()) break;
  }
  return dropped;
}

TEST_P(DroppedWritesTest, OtherKeysStayAsTheyAre) {
  uint64_t dropped = 0;
  for (uint64_t seed = 1; seed <= 30 / kVolumeParts; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    dropped += RunDropped(seed, GetParam());
    if (HasFailure()) return;
  }
  EXPECT_GT(dropped, 500u / kVolumeParts);
}

}  // namespace
}  // namespace osprey::index
