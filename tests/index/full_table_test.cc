// A table whose memory, or whose chains, are full: what it refuses, and what it still accepts.

#include <memory>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "index/reader/lookup.h"
#include "index/writer/table.h"
#include "tests/index/index_test_util.h"
#include "tests/index/table_fixture.h"
#include "tests/support/split_mix64.h"

namespace osprey::index {
namespace {

TEST(TableTest, FullIsRefusedAndChangesNothing) {
  TableFixture f;
  std::unordered_map<std::string, std::string> stored;
  int refused = 0;
  for (int i = 0; i < 4000 && refused < 100; ++i) {
    const std::string key = absl::StrCat("key", i);
    const std::string value(300, static_cast<char>('a' + i % 26));
    const WriteResult result = f.Put(key, value);
    if (result.status.ok()) {
      stored[key] = value;
    } else {
      ASSERT_EQ(result.status.code(), absl::StatusCode::kResourceExhausted);
      ++refused;
    }
  }
  ASSERT_EQ(refused, 100);
  // The rest of 512 KiB without the index's space is full of items of 352 B.
  EXPECT_GT(stored.size() * 352, (kTinyRegionBytes - 4 * kUnitBytes) * 9 / 10);
  EXPECT_EQ(f.table->stats().keys, stored.size());
  for (const auto& [key, value] : stored) ASSERT_EQ(f.Read(key).value, value);
  // Deleting and rewriting works at once, before any grace period has passed.
  for (const auto& [key, value] : stored) {
    ASSERT_TRUE(f.Delete(key).status.ok());
    ASSERT_TRUE(f.Put(key, value).status.ok()) << key;
  }
}

// Fills with values of `bytes` until one is refused, without a server's steps.
std::vector<std::string> FillWith(TableFixture& f, uint64_t bytes) {
  std::vector<std::string> keys;
  for (int i = 0; i < 100000; ++i) {
    const std::string key = absl::StrCat("key", i);
    if (!f.Put(key, std::string(bytes, 'o')).status.ok()) break;
    keys.push_back(key);
  }
  return keys;
}

TEST(TableTest, AFullTableTakesAsLongAValueForAKeyThatItHas) {
  for (const uint64_t bytes : {900u, 1100u, 2000u, 4095u, 8000u, 9000u, 70000u, 400001u}) {
    SCOPED_TRACE(bytes);
    int64_t server_time = 0;
    TableOptions options;
    options.clock = [&] { return TestTime(server_time); };
    TableFixture f(2 << 20, options);
    const std::vector<std::string> keys = FillWith(f, bytes);
    ASSERT_GT(keys.size(), 2u);
    const auto put_all = [&](uint64_t length, char fill) {
      const std::string value(length, fill);
      uint64_t version = 0;
      for (const std::string& key : keys) {
        const WriteResult put = f.Put(key, value);
        ASSERT_TRUE(put.status.ok()) << key << ": " << put.status;
        ASSERT_GT(put.version, version);
        version = put.version;
        const GetResult read = f.Read(key);
        ASSERT_EQ(read.value, value) << key;
        ASSERT_EQ(read.version, version);
        ASSERT_EQ(f.Read(key, put.slot).value, value);
      }
    };
    put_all(bytes, 'a');
    put_all(bytes - 1, 'b');
    put_all(bytes, 'c');
    // With a time to live, with a new one, and without.
    for (const int64_t ttl : {1000, 2000, 0}) {
      for (const std::string& key : keys) {
        const uint64_t version = f.table->Find(key)->version;
        const Lifetime lifetime =
            ttl == 0 ? Lifetime::Forever() : Lifetime::For(absl::Milliseconds(ttl));
        const WriteResult put = f.table->Put(key, BytesOf(std::string(bytes, 't')),
                                             IfVersion(version), TestTime(f.now), lifetime);
        ASSERT_TRUE(put.status.ok()) << key << ": " << put.status;
        ASSERT_EQ(put.expiry_ns != 0, ttl != 0);
        ASSERT_EQ(Slot::Unpack(f.table->Find(key)->slot).has_expiry, ttl != 0);
        ASSERT_EQ(f.table->Find(key)->expiry_ns, put.expiry_ns);
      }
    }
    EXPECT_EQ(f.table->stats().expiring_keys, 0u);
    EXPECT_EQ(f.table->stats().value_bytes, keys.size() * bytes);
    put_all(bytes / 3, 'd');
    put_all(33, 'e');
    EXPECT_EQ(f.table->stats().value_bytes, keys.size() * 33);
    for (const std::string& key : keys) ASSERT_TRUE(f.Delete(key).status.ok());
    EXPECT_EQ(f.table->stats().item_bytes, 0u);
  }
}

TEST(TableTest, FullTableReservesSpaceForSlowUpdates) {
  TableOptions options;
  options.update_room_bytes = 80 << 10;
  TableFixture f(2 << 20, options);
  const std::vector<std::string> keys = FillWith(f, 30000);
  ASSERT_GT(keys.size(), 20u);
  for (int round = 0; round < 3; ++round) {
    for (const std::string& key : keys) {
      absl::StatusOr<Reservation> one = f.table->Reserve(key, 30000, TestTime(++f.now));
      ASSERT_TRUE(one.ok()) << key << ": " << one.status();
      absl::StatusOr<Reservation> two = f.table->Reserve(keys[3], 30000, TestTime(f.now));
      ASSERT_TRUE(two.ok()) << two.status();
      // A third must wait. There is no space for other keys, nor for longer values.
      EXPECT_FALSE(f.table->Reserve(keys[4], 30000, TestTime(f.now)).ok());
      EXPECT_TRUE(f.table->MayMakeRoom(keys[4], 30000));
      EXPECT_FALSE(f.table->Reserve("other", 9000, TestTime(f.now)).ok());
      EXPECT_FALSE(f.table->MayMakeRoom("other", 9000));
      EXPECT_FALSE(f.table->MayMakeRoom(keys[4], 40000));
      ASSERT_EQ(f.Read(key).kind, Lookup::Kind::kHit);
      std::memset(one->value().data(), 'a' + round, one->value().size());
      ASSERT_TRUE(f.table->Publish(*std::move(one), {}, TestTime(f.now)).status.ok());
      EXPECT_EQ(f.Read(key).value, std::string(30000, static_cast<char>('a' + round)));
    }
  }
  EXPECT_FALSE(f.Put("other", std::string(9000, 'x')).status.ok());
  for (const std::string& key : keys) ASSERT_TRUE(f.Delete(key).status.ok());
  EXPECT_EQ(f.table->stats().item_bytes, 0u);
}

// A reader of the old value notices: its partial copy is torn.
TEST(TableTest, AValueThatIsWrittenOverInPlaceIsTornForItsReaders) {
  TableFixture f(2 << 20);
  const std::vector<std::string> keys = FillWith(f, 400000);
  Lookup lookup(f.map, keys[0]);
  Lookup::Step step = lookup.Start(f.table->Find(keys[0])->slot);
  step = lookup.Resume(ReadRegion(f.memory.data(), step.offset, step.length));
  ASSERT_EQ(step.kind, Lookup::Kind::kReadValue);
  const std::vector<std::byte> first = ReadRegion(f.memory.data(), step.offset, 200000);
  lookup.TakeValue(first);
  ASSERT_TRUE(f.Put(keys[0], std::string(400000, 'n')).status.ok());
  lookup.TakeValue(ReadRegion(f.memory.data(), step.offset + 200000, 200000));
  step = lookup.FinishValue();
  EXPECT_EQ(step.kind, Lookup::Kind::kRead);
  EXPECT_EQ(lookup.counters().torn, 1u);
}

TEST(TableTest, NoChainIsAtItsLongestWhereMemoryIsFull) {
  TableFixture f;
  uint64_t refused = 0;
  for (int i = 0; i < 200000 && refused < 5000; ++i) {
    const WriteResult result = f.Put(absl::StrCat("key ", i), "v");
    while (f.table->GrowthWanted() && f.table->GrowStep(TestTime(0))) {
    }
    if (result.status.ok()) continue;
    ++refused;
    ASSERT_EQ(result.status.code(), absl::StatusCode::kResourceExhausted);
    ASSERT_FALSE(IsChainFull(result.status)) << i;
  }
  EXPECT_EQ(refused, 5000u);
  EXPECT_EQ(f.table->stats().chains_full, 0u);
}

TEST(TableTest, ChainAtItsLongestRefusesFurtherKeys) {
  TableFixture f;
  const std::vector<std::string> keys = KeysOfHome(7, 200, false);
  size_t stored = 0;
  while (stored < keys.size() && f.Put(keys[stored], "v").status.ok()) ++stored;
  EXPECT_EQ(stored, (2 + kChainLinesMax) * kLineWordsUsable);
  EXPECT_EQ(f.table->stats().chains_full, 1u);
  const WriteResult refused = f.Put(keys[stored], "v");
  EXPECT_EQ(refused.status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_TRUE(IsChainFull(refused.status)) << refused.status;
  EXPECT_EQ(f.table->stats().chains_full, 2u);
  EXPECT_EQ(f.table->stats().overflow_lines, kChainLinesMax);
  for (size_t i = 0; i < keys.size(); ++i) {
    const GetResult got = f.Read(keys[i]);
    ASSERT_EQ(got.kind, i < stored ? Lookup::Kind::kHit : Lookup::Kind::kMiss);
    ASSERT_LE(got.counters.reads, kChainLinesMax + 3u);
  }
}

// A refusal because lines are lacking must not be reported as one for chosen keys.
TEST(ChainsTest, ChainIsFullOnlyAtItsLongest) {
  constexpr uint64_t kRegionBytes = 1 << 20;
  RegionMemory memory(kRegionBytes);
  RegionWriter writer(memory.span(), kTestIncarnation, 0);
  RegionSpace space(UnitsOffset(kRegionBytes), kRegionBytes, kRegionBytes);
  ClockCounters clocks(space.units_offset(), false);
  Chains chains(writer, space, clocks);
  const uint64_t home = *space.TakeUnit();
  LineEditor::Empty(writer, clocks, home, 1).Publish();
  const uint64_t slot = Slot{home, 1, 1}.Pack();
  for (uint32_t i = 0; i < kChainLinesMax * kLineWordsUsable; ++i) {
    ASSERT_FALSE(chains.IsFull(home)) << i;
    ASSERT_TRUE(chains.Add(home, slot)) << i;
  }
  EXPECT_TRUE(chains.IsFull(home));
  EXPECT_FALSE(chains.Add(home, slot));
  EXPECT_EQ(chains.LengthOf(home), kChainLinesMax);
}

TEST(ChainsTest, VacatedUnitIsCountedOnceWhenItIsUsedAgain) {
  constexpr uint64_t kRegionBytes = 1 << 20;
  RegionMemory memory(kRegionBytes);
  RegionWriter writer(memory.span(), kTestIncarnation, 0);
  RegionSpace space(UnitsOffset(kRegionBytes), kRegionBytes);
  ClockCounters clocks(space.units_offset(), false);
  Chains chains(writer, space, clocks);
  const uint64_t home = *space.TakeUnit();
  LineEditor::Empty(writer, clocks, home, 1).Publish();
  const uint64_t slot = Slot{home, 1, 1}.Pack();
  ASSERT_TRUE(chains.Add(home, slot));
  const uint64_t unit = home + kUnitBytes;
  ASSERT_TRUE(chains.IsUnit(unit));
  EXPECT_EQ(chains.Vacate(unit), slot);
  chains.Poison(home);  // the unit's only line
  EXPECT_FALSE(chains.IsUnit(unit));
  // The same unit is taken again, and another one for the lines that it lacks.
  ASSERT_TRUE(chains.Reserve(1));
  ASSERT_TRUE(chains.IsUnit(unit));
  ASSERT_TRUE(chains.Reserve(kLinesPerUnit + 1));
  EXPECT_TRUE(chains.IsUnit(unit + kUnitBytes));
}

TEST(TableTest, LeasedItemKeepsItsSpaceWhileMemoryIsScarce) {
  TableFixture f;
  const std::string value(100000, 'L');
  const uint64_t slot = f.Put("leased", value).slot;
  f.table->Lease(slot, TestTime(1000000));
  const Slot at = Slot::Unpack(slot);
  ASSERT_TRUE(f.Delete("leased").status.ok());
  for (int i = 0; i < 300; ++i) f.Put(absl::StrCat("filler", i), std::string(5000, 'f'));
  const std::string body(reinterpret_cast<const char*>(f.memory.data()) + at.offset + 40, 90000);
  EXPECT_EQ(body, std::string(90000, 'L'));
  // Afterwards it is used.
  f.now = 1000001;
  for (int i = 300; i < 600; ++i) f.Put(absl::StrCat("filler", i), std::string(5000, 'f'));
  const std::string after(reinterpret_cast<const char*>(f.memory.data()) + at.offset + 40, 90000);
  EXPECT_NE(after, std::string(90000, 'L'));
}

// Each class of items leaves a part of a slab unused: slabs are small where the region is.
TEST(TableTest, ASmallRegionHoldsValuesOfAllLengths) {
  for (uint64_t seed = 1; seed <= 10; ++seed) {
    RegionMemory memory(512 << 10);
    TableOptions options;
    options.incarnation = kTestIncarnation;
    options.hash_seed = kTestSeed;
    const std::unique_ptr<Table> table = *Table::Create(memory.span(), options);
    SplitMix64 random(seed);
    for (int refused = 0; refused < 20;) {
      const std::string key = absl::StrCat("key", random.Next());
      refused += !table->Put(key, BytesOf(std::string(random.Below(20000), 'v')), {}, TestTime(0))
                      .status.ok();
    }
    EXPECT_GE(table->stats().value_bytes, memory.span().size() * 9 / 16);
  }
}

}  // namespace
}  // namespace osprey::index
