// Writes that another server has decided: what is held when they come is enough when they are made.

#include <cstdint>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "index/layout/test_hooks.h"
#include "index/writer/table.h"
#include "tests/index/index_test_util.h"
#include "tests/support/split_mix64.h"
#include "tests/support/volume.h"

namespace osprey::index {
namespace {

struct HeldPut {
  std::string key;
  std::string value;
  uint64_t version = 0;
  HeldWrite write;
};

struct HeldFixture {
  explicit HeldFixture(uint64_t region_bytes, uint32_t split_percent = kSplitPercent)
      : memory(region_bytes) {
    TableOptions options;
    options.incarnation = kTestIncarnation;
    options.hash_seed = kTestSeed;
    options.split_percent = split_percent;
    table = *Table::Create(memory.span(), options);
    table->SetDecides(false);
  }
  HashedKey Hashed(absl::string_view key) const { return {key, HashKey(key, kTestSeed)}; }

  absl::Status Hold(absl::string_view key, absl::string_view value) {
    const bool is_new = table->HeldVersion(Hashed(key)) == 0;
    absl::StatusOr<HeldWrite> write = table->HoldPut(Hashed(key), value.size(), is_new, now);
    if (write.ok())
      held.push_back({std::string(key), std::string(value), ++version, *std::move(write)});
    return write.status();
  }
  void MakeFirst() {
    const HeldPut& put = held.front();
    table->MakePut(put.write, Hashed(put.key), BytesOf(put.value), put.version, 0, now);
    made[put.key] = put.value;
    held.pop_front();
  }
  void ExpectMade() {
    for (const auto& [key, value] : made) {
      const absl::StatusOr<Table::View> view = table->Find(key);
      ASSERT_TRUE(view.ok()) << key;
      EXPECT_EQ(TextOf(view->value), value) << key;
    }
    EXPECT_EQ(table->stats().keys, made.size());
  }

  RegionMemory memory;
  absl::Time now = TestTime(0);
  std::unique_ptr<Table> table;
  uint64_t version = 0;
  std::deque<HeldPut> held;
  std::map<std::string, std::string> made;
};

TEST(HeldWritesTest, KeysOfOneHomeAreHeldWhileTheChainHasRoom) {
  HeldFixture fixture(4 << 20, /*split_percent=*/100);
  constexpr size_t kRoom = kChainLinesMax * kLineWordsUsable;
  absl::Status status;
  for (const std::string& key : KeysOfHome(7, 3 * kRoom, false)) {
    status = fixture.Hold(key, "value");
    if (!status.ok()) break;
  }
  EXPECT_TRUE(IsChainFull(status)) << status;
  EXPECT_EQ(fixture.held.size(), kRoom);
  // Another put of a key that waits needs no room of its own.
  EXPECT_TRUE(fixture.Hold(fixture.held.front().key, "other").ok());
  while (!fixture.held.empty()) fixture.MakeFirst();
  fixture.ExpectMade();
}

TEST(HeldWritesTest, WhatIsDroppedIsFree) {
  HeldFixture fixture(512 << 10);
  const auto fill = [&] {
    for (int i = 0; fixture.Hold(absl::StrCat("key", i), std::string(1000, 'v')).ok(); ++i) {
    }
    return fixture.held.size();
  };
  const size_t first = fill();
  EXPECT_GT(first, 100u);
  for (; !fixture.held.empty(); fixture.held.pop_back())
    fixture.table->DropHeld(fixture.held.back().write);
  EXPECT_EQ(fill(), first);
  while (!fixture.held.empty()) fixture.MakeFirst();
  fixture.ExpectMade();
}

// Segments split and merge whenever they may, and items move.
TEST(HeldWritesTest, GrowthMergesAndCompactionLeaveWhatIsHeld) {
  merging_forced = compaction_forced = true;
  uint64_t refused = 0, merges = 0, compacted = 0;
  for (uint64_t seed = 1; seed <= 20 / kVolumeParts; ++seed) {
    HeldFixture fixture(1 << 20);
    SplitMix64 random(seed);
    const std::vector<std::string> neighbours = KeysOfHome(9, 200, false);
    for (int step = 0; step < 3000; ++step) {
      const std::string key = random.Chance(20) ? neighbours[random.Below(neighbours.size())]
                                                : absl::StrCat("key", random.Below(4000));
      const uint64_t length = random.Below(random.Chance(10) ? 3000 : 60);
      const std::string value(length, static_cast<char>('a' + random.Below(26)));
      if (random.Chance(40) && !fixture.made.empty() && fixture.held.empty()) {
        const auto one = fixture.made.begin();
        EXPECT_TRUE(
            fixture.table->MakeDelete(fixture.Hashed(one->first), ++fixture.version, fixture.now));
        fixture.made.erase(one);
      } else if (!fixture.Hold(key, value).ok()) {
        ++refused;
        for (uint64_t i = random.Below(30); i > 0 && !fixture.held.empty(); --i)
          fixture.MakeFirst();
      }
      while (fixture.held.size() > 300) fixture.MakeFirst();
      if (random.Chance(3)) {
        while (!fixture.held.empty()) fixture.MakeFirst();
      }
      (void)fixture.table->GrowStep(fixture.now);
      (void)fixture.table->CompactStep(fixture.now);
      fixture.now += absl::Milliseconds(20);
    }
    while (!fixture.held.empty()) fixture.MakeFirst();
    fixture.ExpectMade();
    merges += fixture.table->stats().merges;
    compacted += fixture.table->stats().compaction_items;
  }
  merging_forced = compaction_forced = false;
  EXPECT_GT(refused, 100u / kVolumeParts);
  EXPECT_GT(merges, 10u / kVolumeParts);
  EXPECT_GT(compacted, 1000u / kVolumeParts);
}

// The value of a put that comes in parts: its item is held, and filled, before it is known what the key has
// when the put is made.
class HeldValueTest : public ::testing::Test {
 protected:
  HeldValue Hold(absl::string_view key, absl::string_view value) {
    absl::StatusOr<HeldValue> held =
        fixture_.table->HoldValue(fixture_.Hashed(key), value.size(), fixture_.now);
    EXPECT_TRUE(held.ok()) << held.status();
    for (size_t at = 0; at < value.size(); at += kPart) {
      const absl::string_view part = value.substr(at, kPart);
      std::memcpy(held->reservation.value().data() + at, part.data(), part.size());
      held->reservation.Hash(part.size());
    }
    return *std::move(held);
  }
  void Make(HeldValue held, absl::string_view key, const std::string& value) {
    fixture_.table->MakeValuePut(std::move(held), fixture_.Hashed(key), ++fixture_.version, 0,
                                 fixture_.now);
    fixture_.made[std::string(key)] = value;
  }
  static constexpr size_t kPart = 100'000;
  HeldFixture fixture_{8 << 20};
  const std::string value_ = std::string(1'234'567, 'v');
};

TEST_F(HeldValueTest, IsMadeOverWhateverTheKeyHas) {
  HeldValue absent = Hold("absent", value_);
  HeldValue present = Hold("present", value_);
  HeldValue inline_key = Hold("i", value_);
  ASSERT_TRUE(fixture_.Hold("present", std::string(5000, 'p')).ok());
  fixture_.MakeFirst();
  ASSERT_TRUE(fixture_.Hold("i", "1").ok());
  fixture_.MakeFirst();
  Make(std::move(absent), "absent", value_);
  Make(std::move(present), "present", value_);
  Make(std::move(inline_key), "i", value_);
  fixture_.ExpectMade();
  // A later value of the key, and a deletion.
  ASSERT_TRUE(fixture_.Hold("present", "short").ok());
  fixture_.MakeFirst();
  EXPECT_TRUE(
      fixture_.table->MakeDelete(fixture_.Hashed("absent"), fixture_.version, fixture_.now));
  fixture_.made.erase("absent");
  fixture_.ExpectMade();
}

TEST_F(HeldValueTest, LeavesNothingWhenItIsDropped) {
  ASSERT_TRUE(fixture_.Hold("other", "value").ok());
  fixture_.MakeFirst();
  const Table::Stats before = fixture_.table->stats();
  // More than fit at once.
  for (int i = 0; i < 50; ++i) fixture_.table->DropHeldValue(Hold("key", value_));
  const Table::Stats after = fixture_.table->stats();
  EXPECT_EQ(after.item_bytes, before.item_bytes);
  EXPECT_EQ(after.overflow_lines, before.overflow_lines);
  EXPECT_EQ(after.keys, 1u);
}

TEST_F(HeldValueTest, IsRefusedWithoutRoomForIt) {
  std::vector<HeldValue> held;
  for (;;) {
    absl::StatusOr<HeldValue> one = fixture_.table->HoldValue(
        fixture_.Hashed(absl::StrCat("key", held.size())), value_.size(), fixture_.now);
    if (!one.ok()) {
      EXPECT_EQ(one.status().code(), absl::StatusCode::kResourceExhausted);
      break;
    }
    held.push_back(*std::move(one));
  }
  EXPECT_GE(held.size(), 3u);
  for (HeldValue& one : held) fixture_.table->DropHeldValue(std::move(one));
}

}  // namespace
}  // namespace osprey::index
