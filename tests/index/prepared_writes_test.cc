// Writes in two steps: what is reserved when they are decided is enough when they are made.

#include <cstdint>
#include <string>
#include <utility>
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

// --- Room ----------------------------------------------------------------------------------------

uint64_t RunDecisions(uint64_t seed, bool evict) {
  PreparedFixture f(evict, seed % 2 == 0 ? 512 << 10 : 1 << 20);
  RandomDecisions load(f, seed);
  for (int i = 0; i < 60; ++i)
    (void)f.Put(absl::StrCat("old", i), load.Value(), load.SomeLifetime());
  f.Fill("first", 20 + load.random.Below(2000));
  for (int round = 0; round < 8; ++round) {
    for (uint64_t i = load.random.Below(50); i-- > 0;) load.Decide();
    f.evictions = f.table->evictions();
    f.Fill(absl::StrCat("between", round, "_"), load.random.Below(300));
    f.now += absl::Milliseconds(load.random.Below(1500));
    f.Step();
    load.random.Shuffle(f.decided);
    for (Decided& one : f.decided) {
      ExpectApplied(f, one);
      if (testing::Test::HasFailure()) return 0;
      if (load.random.Chance(20)) f.Step();
    }
    f.decided.clear();
    load.keys.clear();
    for (int i = 0; i < 2000; ++i) {
      if (load.random.Chance(30))
        (void)f.table->Delete(absl::StrCat("between", round, "_", i), {}, f.now);
    }
  }
  return load.refused;
}

TEST(PreparedWritesTest, WhatIsDecidedFitsIntoAFullTable) {
  uint64_t refused = 0;
  for (uint64_t seed = 1; seed <= 60 / kVolumeParts; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    refused += RunDecisions(seed, /*evict=*/false);
    if (HasFailure()) return;
  }
  EXPECT_GT(refused, 0u) << "it was never full";
}

TEST(PreparedWritesTest, WhatIsDecidedFitsIntoACache) {
  for (uint64_t seed = 1; seed <= 30 / kVolumeParts; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    (void)RunDecisions(seed, /*evict=*/true);
    if (HasFailure()) return;
  }
}

// Values that are all inline: the index takes all memory, and lines are what lacks.
TEST(PreparedWritesTest, ANewKeyHasALineInAFullIndex) {
  for (const bool evict : {false, true}) {
    PreparedFixture f(evict);
    for (int i = 0; i < 40; ++i)
      ASSERT_TRUE(f.Decide(Kind::kPut, absl::StrCat("new", i), "value", {}).ok());
    f.Fill("between", 5);
    for (Decided& one : f.decided) ExpectApplied(f, one);
  }
}

TEST(PreparedWritesTest, KeysOfOneHomeAreDecidedWhileTheChainHasSpace) {
  PreparedFixture f;
  const std::vector<std::string> keys = KeysOfHome(7, 200, /*same_fingerprint=*/false);
  absl::Status refusal;
  for (const std::string& key : keys) {
    refusal = f.Decide(Kind::kPut, key, std::string(100, 'v'), {});
    if (!refusal.ok()) break;
  }
  EXPECT_TRUE(IsChainFull(refusal)) << refusal;
  EXPECT_EQ(f.decided.size(), kChainLinesMax * kLineWordsUsable);
  // Others fill the window meanwhile.
  for (int home : {6, 8}) {
    for (const std::string& key : KeysOfHome(static_cast<uint32_t>(home), 30, false))
      ASSERT_TRUE(f.Put(key, std::string(100, 'w')).status.ok());
  }
  for (Decided& one : f.decided) ExpectApplied(f, one);
}

// The keys of two halves of one home fit into one segment. With those that are decided they do not.
TEST(PreparedWritesTest, SegmentsStayApartWhileTheirDecidedKeysNeedTheSpace) {
  constexpr size_t kPresent = 40, kDecided = 30;  // of each half
  constexpr size_t kPlaces = (2 + kChainLinesMax) * kLineWordsUsable;
  static_assert(2 * kPresent < kPlaces && 2 * (kPresent + kDecided) > kPlaces);
  std::vector<std::string> halves[2];
  for (std::string& key : KeysOfHome(7, 6 * (kPresent + kDecided), /*same_fingerprint=*/false))
    halves[HashKey(key, kTestSeed).bits & 1].push_back(std::move(key));
  for (const bool decides : {false, true}) {
    SCOPED_TRACE(decides);
    PreparedFixture f(/*evict=*/false, 4 << 20);
    int fill = 0;
    for (; f.table->stats().segments < 2; f.Step())
      ASSERT_TRUE(f.Put(absl::StrCat("fill", fill++), "v").status.ok());
    ASSERT_EQ(f.table->stats().segments, 2u);
    for (const std::vector<std::string>& half : halves) {
      ASSERT_GE(half.size(), kPresent + kDecided);
      for (size_t i = 0; i < kPresent; ++i)
        ASSERT_TRUE(f.Put(half[i], std::string(100, 'v')).status.ok());
      for (size_t i = kPresent; decides && i < kPresent + kDecided; ++i)
        ASSERT_TRUE(f.Decide(Kind::kPut, half[i], std::string(100, 'w'), {}).ok());
    }
    while (fill > 0)
      ASSERT_TRUE(f.table->Delete(absl::StrCat("fill", --fill), {}, f.now).status.ok());
    for (int i = 0; i < 10; ++i) {
      f.now += absl::Seconds(2);
      f.Step();
    }
    EXPECT_EQ(f.table->stats().merges, decides ? 0u : 1u);
    for (Decided& one : f.decided) ExpectApplied(f, one);
    for (const std::vector<std::string>& half : halves) {
      for (size_t i = 0; i < kPresent; ++i)
        EXPECT_EQ(f.Read(half[i]).kind, Lookup::Kind::kHit) << half[i];
    }
  }
}

// Leased keys are not evicted otherwise.
TEST(PreparedWritesTest, InACacheANewKeyReplacesALeasedOne) {
  PreparedFixture f(/*evict=*/true);
  constexpr size_t kPlaces = (2 + kChainLinesMax) * kLineWordsUsable;
  const std::vector<std::string> keys = KeysOfHome(7, kPlaces + 1, /*same_fingerprint=*/false);
  for (size_t i = 0; i < kPlaces; ++i)
    f.table->Lease(f.Put(keys[i], std::string(100, 'v')).slot, f.now + absl::Hours(1));
  ASSERT_EQ(f.table->stats().keys, kPlaces);
  ASSERT_TRUE(f.Decide(Kind::kPut, keys.back(), std::string(100, 'w'), {}).ok());
  ExpectApplied(f, f.decided[0]);
  EXPECT_EQ(f.table->evictions(), 1u);
}

// Else a reader would miss a key between two values of which the second one needs the first.
TEST(PreparedWritesTest, AKeyWithAPendingWriteIsNotEvicted) {
  PreparedFixture f(/*evict=*/true);
  const uint64_t version = f.Put("pending", "1").version;
  const uint64_t long_version = f.Put("pending-long", std::string(300, 'v')).version;
  ASSERT_TRUE(
      f.Decide(Kind::kPut, "pending", "2", {}, {Condition::Kind::kVersionIs, version}).ok());
  ASSERT_TRUE(f.Decide(Kind::kPut, "pending-long", std::string(300, 'w'), {},
                       {Condition::Kind::kVersionIs, long_version})
                  .ok());
  f.Fill("between", 300);
  f.evictions = f.table->evictions();
  f.Fill("small", 5);
  ASSERT_GT(f.table->evictions(), 2000u);
  EXPECT_TRUE(f.table->Find("pending").ok());
  EXPECT_TRUE(f.table->Find("pending-long").ok());
  for (Decided& one : f.decided) ExpectApplied(f, one);
}

struct ListedEvictions : Changes {
  void OnPut(absl::string_view, ByteSpan, uint64_t, uint64_t) override {}
  void OnExpire(absl::string_view, uint64_t, uint64_t) override {}
  void OnDelete(absl::string_view, uint64_t, uint64_t) override {}
  void OnEvict(absl::string_view key, uint64_t version) override {
    evicted.push_back({std::string(key), version});
  }
  std::vector<std::pair<std::string, uint64_t>> evicted;
};

// All keys that could give way have pending writes: one of them is evicted, and its write with it.
TEST(PreparedWritesTest, AWriteOfAnEvictedKeyIsEvictedToo) {
  ListedEvictions changes;
  PreparedFixture f(/*evict=*/true, 512 << 10, &changes);
  constexpr size_t kPlaces = (2 + kChainLinesMax) * kLineWordsUsable;
  const std::vector<std::string> keys = KeysOfHome(7, kPlaces + 1, /*same_fingerprint=*/false);
  ASSERT_TRUE(f.Decide(Kind::kPut, keys.back(), std::string(100, 'w'), {}).ok());
  for (size_t i = 0; i < kPlaces; ++i) {
    const uint64_t version = f.Put(keys[i], std::string(100, 'v')).version;
    ASSERT_TRUE(f.Decide(i % 2 == 0 ? Kind::kPut : Kind::kPublish, keys[i], std::string(100, 'x'),
                         {}, {Condition::Kind::kVersionIs, version})
                    .ok());
  }
  ExpectApplied(f, f.decided[0]);
  ASSERT_EQ(changes.evicted.size(), 1u);
  const std::string evicted = changes.evicted[0].first;
  EXPECT_TRUE(absl::IsNotFound(f.table->Find(evicted).status()));
  for (size_t i = 1; i < f.decided.size(); ++i) {
    if (f.decided[i].key != evicted) {
      ExpectApplied(f, f.decided[i]);
      continue;
    }
    const WriteResult result = f.Apply(f.decided[i]);
    EXPECT_TRUE(result.status.ok()) << result.status;
    EXPECT_EQ(result.version, f.decided[i].version);
    EXPECT_TRUE(absl::IsNotFound(f.table->Find(evicted).status()));
    // The log's last word about the key.
    EXPECT_EQ(changes.evicted.back(), std::make_pair(evicted, f.decided[i].version));
  }
  EXPECT_EQ(changes.evicted.size(), 2u);
}

// The longer value has room in the present item, but would have none in the line.
TEST(PreparedWritesTest, AnItemThatIsCountedOnStaysAnItem) {
  PreparedFixture f;
  const std::vector<std::string> keys = KeysOfHome(7, 60, /*same_fingerprint=*/false);
  for (const std::string& key : keys)
    ASSERT_TRUE(f.Put(key, std::string(key == keys.back() ? 12 : 1, 'v')).status.ok());
  ASSERT_GT(f.table->stats().keys, f.table->stats().inline_keys);
  const uint64_t item_bytes = f.table->stats().item_bytes;
  ASSERT_TRUE(f.Decide(Kind::kPut, keys.back(), std::string(24, 'w'), {}).ok());
  EXPECT_EQ(f.table->stats().item_bytes, item_bytes) << "it needs no other item";
  const uint64_t promotions = f.table->stats().promotions;
  for (size_t i = 0; i + 1 < keys.size(); ++i) {
    (void)f.table->Delete(keys[i], {}, f.now);
    ASSERT_TRUE(f.table->Find(keys.back()).ok());
    EXPECT_NE(f.table->Find(keys.back())->slot, 0u) << "it is inline";
  }
  EXPECT_GT(f.table->stats().promotions, promotions);
  ExpectApplied(f, f.decided[0]);
}

TEST(PreparedWritesTest, WhatIsNotUsedGoesBack) {
  PreparedFixture f;
  f.Put("inline", "1");
  f.Put("item", std::string(100, 'v'));
  const uint64_t item_bytes = f.table->stats().item_bytes;
  ASSERT_TRUE(f.Decide(Kind::kPut, "small", "v", {}).ok());
  ASSERT_TRUE(f.Decide(Kind::kPut, "inline", "a longer value", {}).ok());
  ASSERT_TRUE(f.Decide(Kind::kPut, "item", std::string(101, 'v'), {}).ok());
  EXPECT_GT(f.table->stats().item_bytes, item_bytes);
  for (Decided& one : f.decided) ExpectApplied(f, one);
  EXPECT_EQ(f.table->stats().item_bytes, item_bytes);
  EXPECT_EQ(f.table->stats().overflow_lines, 0u);
}

// --- Hidden keys ---------------------------------------------------------------------------------

TEST(PreparedWritesTest, AReaderOfAHiddenKeyAsksTheServer) {
  HiddenKey f;
  const GetResult result = f.Read("key");
  EXPECT_EQ(result.kind, Lookup::Kind::kAskServer);
  EXPECT_EQ(result.counters.torn, uint64_t{kReadAttemptsMax});
  EXPECT_TRUE(f.table->Find("key").ok());
  EXPECT_FALSE(f.AnswersLater());
  EXPECT_TRUE(f.AnswersLater(/*bytes_max=*/99)) << "it would be READ";
  f.now += absl::Seconds(11);
  EXPECT_EQ(f.Read("key").kind, Lookup::Kind::kAskServer);
  EXPECT_TRUE(f.AnswersLater());
  ExpectApplied(f, f.decided[0]);
  EXPECT_EQ(f.Read("key").kind, Lookup::Kind::kHit);
  EXPECT_FALSE(f.AnswersLater());
}

TEST(PreparedWritesTest, AHiddenKeyIsNotSweptButWalked) {
  HiddenKey f;
  f.Put("swept", "1", Lifetime::For(absl::Seconds(10)));
  f.now += absl::Seconds(11);
  f.Sweep();
  EXPECT_EQ(f.table->stats().keys, 1u);
  int walked = 0;
  (void)f.table->Walk(0, 1 << 20, [&](const WalkedKey& key) { walked += key.key == "key"; });
  EXPECT_EQ(walked, 1) << "a checkpoint needs it";
  EXPECT_TRUE(f.table->Find("key").ok()) << "likewise, for long values";
  ExpectApplied(f, f.decided[0]);
  EXPECT_TRUE(f.table->Find("key").ok());
  f.now += absl::Seconds(60);
  f.Sweep();
  EXPECT_EQ(f.table->stats().keys, 0u) << "its new expiry is known to sweeps";
}

TEST(PreparedWritesTest, AKeyThatIsDecidedTooLateIsNotFound) {
  PreparedFixture f;
  TableOptions options;
  options.incarnation = kTestIncarnation;
  options.hash_seed = kTestSeed;
  int looks = 0;
  absl::Time now = f.now;
  options.clock = [&] { return ++looks > 2 ? now + absl::Seconds(20) : now; };
  f.memory = RegionMemory(512 << 10);
  f.table = *Table::Create(f.memory.span(), options);
  f.Put("key", std::string(100, 'v'), Lifetime::For(absl::Seconds(10)));
  looks = 0;
  // The clock passes after the forecast, which looks twice.
  EXPECT_TRUE(
      absl::IsNotFound(f.Decide(Kind::kExpire, "key", "", Lifetime::For(absl::Seconds(60)))));
  EXPECT_GT(looks, 2);
  EXPECT_EQ(f.table->stats().keys, 0u);
  EXPECT_EQ(f.table->stats().item_bytes, 0u);
}

}  // namespace
}  // namespace osprey::index
