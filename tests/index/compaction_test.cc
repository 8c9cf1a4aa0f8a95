// Compaction: items move to make space for larger ones, and nothing else about them changes.

#include <algorithm>
#include <cstring>
#include <random>
#include <string>
#include <unordered_map>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "index/layout/test_hooks.h"
#include "index/reader/lookup.h"
#include "index/writer/table.h"
#include "tests/index/index_test_util.h"
#include "tests/support/volume.h"

namespace osprey::index {
namespace {

constexpr uint64_t kMiB = 1 << 20;

// Counts the words stored into the region, to measure work without a clock.
class StoreCount : public StoreObserver {
 public:
  StoreCount() { store_observer = this; }
  ~StoreCount() override { store_observer = nullptr; }
  void BeforeStore() override { ++words_; }
  uint64_t words() const { return words_; }
  uint64_t Take() { return std::exchange(words_, 0); }

 private:
  uint64_t words_ = 0;
};

struct CompactionFixture {
  explicit CompactionFixture(uint64_t region_bytes, absl::Duration grace = absl::ZeroDuration())
      : memory(region_bytes), map(kTestIncarnation, region_bytes) {
    TableOptions options;
    options.incarnation = kTestIncarnation;
    options.hash_seed = kTestSeed;
    options.reuse_grace = grace;
    table = *Table::Create(memory.span(), options);
  }
  WriteResult Put(absl::string_view key, absl::string_view value) {
    while (table->GrowStep(TestTime(now))) {
    }
    return table->Put(key, BytesOf(value), {}, TestTime(now));
  }
  bool Delete(absl::string_view key) { return table->Delete(key, {}, TestTime(now)).status.ok(); }
  GetResult Read(absl::string_view key, uint64_t hint = 0) {
    if (!map.ready()) FillMap(map, memory.data());
    return Get(map, memory.data(), key, hint);
  }
  // Steps until there is nothing more to do.
  void CompactAll() {
    int steps = 0;
    while (steps < 100000 && table->CompactStep(TestTime(now))) ++steps;
    EXPECT_LT(steps, 100000) << "it comes to no end";
  }

  RegionMemory memory;
  std::unique_ptr<Table> table;
  DirectoryCache map;
  int64_t now = 0;
};

std::string ValueOf(absl::string_view key, uint64_t bytes) {
  std::string value = absl::StrCat(key, "/");
  value.resize(bytes, static_cast<char>('a' + bytes % 26));
  return value;
}

// Fills the region with items of `bytes` and then deletes all but one in `keep`: at random, or with
// seed 0 at regular places, so that none are neighbours.
std::vector<std::string> FillAndThin(CompactionFixture& f, uint64_t bytes, uint64_t keep,
                                     uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<std::string> all, kept;
  for (int i = 0;; ++i) {
    const std::string key = absl::StrCat("key", i);
    if (!f.Put(key, ValueOf(key, bytes)).status.ok()) break;
    all.push_back(key);
  }
  uint64_t number = 0;
  for (const std::string& key : all) {
    if ((seed == 0 ? number++ : random()) % keep == 0) {
      kept.push_back(key);
    } else {
      EXPECT_TRUE(f.Delete(key));
    }
  }
  return kept;
}

TEST(CompactionTest, LargeValueFitsAfterCompactingSmallItems) {
  CompactionFixture f(32 * kMiB);
  const std::vector<std::string> kept = FillAndThin(f, 200, 3, 1);
  ASSERT_GT(kept.size(), 20000u);
  // Half of the region is free, in pieces of some hundred bytes.
  ASSERT_TRUE(f.Put("large", std::string(4 * kMiB, 'x')).status.ok());
  EXPECT_EQ(f.table->Find("large")->value.size(), 4 * kMiB);
  EXPECT_GT(f.table->stats().compaction_items, 1000u);
  for (const std::string& key : kept) ASSERT_EQ(f.Read(key).value, ValueOf(key, 200)) << key;
}

TEST(CompactionTest, LargeValueFitsAfterCompactingRuns) {
  CompactionFixture f(32 * kMiB);
  const std::vector<std::string> kept = FillAndThin(f, 50000, 3, 2);
  ASSERT_TRUE(f.Put("large", std::string(6 * kMiB, 'x')).status.ok());
  for (const std::string& key : kept) {
    ASSERT_EQ(TextOf(f.table->Find(key)->value), ValueOf(key, 50000)) << key;
  }
}

TEST(CompactionTest, StepsFreeSpaceBeforeAWriteRequestsIt) {
  CompactionFixture f(32 * kMiB);
  FillAndThin(f, 200, 2, 3);
  f.CompactAll();
  // A 128th of the region is kept free; the write itself moves nothing.
  const uint64_t moved = f.table->stats().compaction_items;
  EXPECT_GT(moved, 100u);
  ASSERT_TRUE(f.Put("large", std::string(kMiB / 8, 'x')).status.ok());
  EXPECT_EQ(f.table->stats().compaction_items, moved);
}

TEST(CompactionTest, EachStepIsBounded) {
  for (const uint64_t bytes : {200u, 5000u, 100000u}) {  // the last are moved in pieces
    CompactionFixture f(32 * kMiB);
    FillAndThin(f, bytes, 2, bytes < 100000 ? 4 : 0);
    StoreCount stores;
    uint64_t longest = 0;
    const CompactionBound bound{16, 8192};
    // The last item begun, and the dead mark, the line and the headers of each.
    const uint64_t words_max = 2 * bound.bytes / kWordBytes + bound.items * 60;
    for (int i = 0; i < 1000000 && f.table->CompactStep(TestTime(0), bound); ++i) {
      longest = std::max(longest, stores.Take());
      ASSERT_LE(longest, words_max) << bytes;
    }
    EXPECT_GT(longest, 300u) << bytes;
    EXPECT_GT(f.table->stats().compaction_windows, 0u) << bytes;
  }
}

TEST(CompactionTest, WriteWithoutSpaceCompactsABoundedAmount) {
  CompactionFixture f(64 * kMiB);
  std::mt19937_64 random(5);
  const std::vector<std::string> kept = FillAndThin(f, 200, 2, 5);
  StoreCount stores;
  // Tens of MiB would have to move.
  const bool fitted = f.Put("huge", std::string(24 * kMiB, 'x')).status.ok();
  EXPECT_FALSE(fitted);
  EXPECT_LE(stores.Take(), (8 * kMiB + kMiB) / kWordBytes + 8192 * 60);
  EXPECT_GT(f.table->stats().compaction_items, 1000u);
  // Later steps continue with it, and then it fits.
  for (int i = 0; i < 100000 && f.table->CompactStep(TestTime(f.now)); ++i) {
  }
  EXPECT_TRUE(f.Put("huge", std::string(24 * kMiB, 'x')).status.ok());
  for (const std::string& key : kept) ASSERT_EQ(f.Read(key).value, ValueOf(key, 200)) << key;
}

TEST(CompactionTest, AWriteThatCanNeverFitDoesNotKeepStepsFromTheirWork) {
  CompactionFixture f(32 * kMiB);
  FillAndThin(f, 500, 2, 3);
  EXPECT_FALSE(f.Put("huge", std::string(28 * kMiB, 'x')).status.ok());
  f.CompactAll();
  const uint64_t moved = f.table->stats().compaction_items;
  EXPECT_GT(moved, 100u);
  ASSERT_TRUE(f.Put("large", std::string(kMiB / 8, 'x')).status.ok());
  EXPECT_EQ(f.table->stats().compaction_items, moved);
}

TEST(CompactionTest, MovedItemKeepsItsVersionAndItsOldPlaceIsDead) {
  CompactionFixture f(8 * kMiB);
  const std::vector<std::string> kept = FillAndThin(f, 300, 3, 6);
  std::unordered_map<std::string, GetResult> before;
  for (const std::string& key : kept) before[key] = f.Read(key);
  ASSERT_TRUE(f.Put("large", std::string(kMiB, 'x')).status.ok());
  int moved = 0;
  for (const std::string& key : kept) {
    const GetResult old = before[key];
    const GetResult hinted = f.Read(key, old.slot);
    ASSERT_EQ(hinted.kind, Lookup::Kind::kHit);
    ASSERT_EQ(hinted.value, old.value);
    ASSERT_EQ(hinted.version, old.version);
    ASSERT_EQ(hinted.counters.stale_hints, hinted.slot == old.slot ? 0u : 1u);
    moved += hinted.slot != old.slot;
  }
  EXPECT_GT(moved, 100);
}

TEST(CompactionTest, LeasedItemsStayWhereTheyAre) {
  CompactionFixture f(8 * kMiB);
  const std::vector<std::string> kept = FillAndThin(f, 5000, 3, 7);
  std::vector<uint64_t> slots;
  for (const std::string& key : kept) {
    slots.push_back(f.Read(key).slot);
    f.table->Lease(slots.back(), TestTime(1000));
  }
  EXPECT_FALSE(f.Put("large", std::string(3 * kMiB, 'x')).status.ok());
  f.CompactAll();
  for (size_t i = 0; i < kept.size(); ++i) ASSERT_EQ(f.Read(kept[i]).slot, slots[i]);
  // After the leases have ended they may move.
  f.now = 1001;
  f.CompactAll();
  EXPECT_TRUE(f.Put("large", std::string(3 * kMiB, 'x')).status.ok());
  for (const std::string& key : kept) ASSERT_EQ(f.Read(key).value, ValueOf(key, 5000)) << key;
}

TEST(CompactionTest, ReservationsUnderWayStayWhereTheyAre) {
  CompactionFixture f(8 * kMiB);
  std::mt19937_64 random(8);
  std::vector<Reservation> reservations;
  std::vector<std::string> others;
  for (int i = 0;; ++i) {
    absl::StatusOr<Reservation> reservation =
        f.table->Reserve(absl::StrCat("reserved", i), 3000, TestTime(0));
    if (!reservation.ok()) break;
    std::memset(reservation->value().data(), i % 256, 3000);
    if (random() % 4 == 0) {
      reservations.push_back(*std::move(reservation));
    } else if (random() % 2 == 0) {
      others.push_back(absl::StrCat("reserved", i));
      ASSERT_TRUE(f.table->Publish(*std::move(reservation), {}, TestTime(0)).status.ok());
    }  // else it is given back
  }
  // Every window has one of them: other items move, these do not.
  f.Put("large", std::string(2 * kMiB, 'x'));
  f.CompactAll();
  for (Reservation& reservation : reservations) {
    const std::byte first = reservation.value()[0];
    for (const std::byte byte : reservation.value()) ASSERT_EQ(byte, first);
    ASSERT_TRUE(f.table->Publish(std::move(reservation), {}, TestTime(0)).status.ok());
  }
  for (const std::string& key : others) ASSERT_EQ(f.Read(key).value.size(), 3000u) << key;
}

TEST(CompactionTest, FullRegionKeepsAllThatIsStoredAndSpaceComesBack) {
  CompactionFixture f(16 * kMiB);
  std::mt19937_64 random(9);
  std::unordered_map<std::string, std::string> stored;
  int refused = 0;
  for (int i = 0; refused < 300; ++i) {
    const uint64_t sizes[] = {100, 3000, 20000, 300000};
    const std::string key = absl::StrCat("key", random() % 4000);
    const std::string value = ValueOf(key, sizes[random() % 4] + random() % 100);
    const WriteResult result = f.Put(key, value);
    if (result.status.ok()) {
      stored[key] = value;
    } else {
      ASSERT_EQ(result.status.code(), absl::StatusCode::kResourceExhausted);
      ++refused;
    }
    if (i % 3 == 0) f.table->CompactStep(TestTime(f.now));
  }
  uint64_t live = 0;
  for (const auto& [key, value] : stored) {
    ASSERT_EQ(TextOf(f.table->Find(key)->value), value);
    live += value.size();
  }
  EXPECT_EQ(f.table->stats().keys, stored.size());
  EXPECT_GT(live, 16 * kMiB * 80 / 100);
  // Half is deleted, and as much is written again, for one size and for another.
  uint64_t freed = 0;
  for (auto it = stored.begin(); it != stored.end();) {
    if (random() % 2 == 0) {
      ++it;
      continue;
    }
    freed += it->second.size();
    ASSERT_TRUE(f.Delete(it->first));
    it = stored.erase(it);
  }
  for (const uint64_t bytes : {700000u, 1500u}) {
    uint64_t again = 0;
    std::vector<std::string> keys;
    for (int i = 0;; ++i) {
      const std::string key = absl::StrCat("again", i);
      if (!f.Put(key, ValueOf(key, bytes)).status.ok()) break;
      keys.push_back(key);
      again += bytes;
    }
    EXPECT_GT(again, freed * 80 / 100) << bytes << " of " << freed;
    for (const std::string& key : keys) ASSERT_TRUE(f.Delete(key));
  }
  for (const auto& [key, value] : stored) {
    ASSERT_EQ(TextOf(f.table->Find(key)->value), value);
  }
}

// Fills with values of up to `bytes_max` (all that long when `alike`), and deletes some at random,
// until their keys and values had `freed` bytes.
void FillAndDelete(CompactionFixture& f, uint64_t bytes_max, bool alike, uint64_t freed,
                   uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<std::string> keys;
  for (int refused = 0; refused < 20;) {
    const std::string key = absl::StrCat("key", keys.size(), "-", refused);
    const uint64_t bytes = alike ? bytes_max : bytes_max / 20 + random() % (bytes_max * 19 / 20);
    if (f.Put(key, ValueOf(key, bytes)).status.ok()) {
      keys.push_back(key);
    } else {
      ++refused;
    }
  }
  for (uint64_t sum = 0; sum < freed;) {
    const size_t which = random() % keys.size();
    sum += keys[which].size() + f.table->Find(keys[which])->value.size();
    ASSERT_TRUE(f.Delete(keys[which]));
    std::swap(keys[which], keys.back());
    keys.pop_back();
  }
}

TEST(CompactionTest, WhatIsDeletedInAFullTableTakesValuesOfOtherLengths) {
  for (const bool alike : {true, false}) {
    for (const uint64_t bytes : {60u, 100u, 300u, 1000u, 1900u, 3000u, 7000u, 10000u}) {
      for (uint64_t seed = 1; seed <= 2; ++seed) {
        CompactionFixture f(4 * kMiB, absl::Seconds(1));
        FillAndDelete(f, bytes, alike, 10000, seed);
        const WriteResult put = f.Put("other", ValueOf("other", 2000));
        EXPECT_TRUE(put.status.ok()) << bytes << (alike ? " alike " : " ") << seed;
        if (!put.status.ok()) continue;
        EXPECT_EQ(f.Read("other").value, ValueOf("other", 2000));
        EXPECT_TRUE(f.Put("other", ValueOf("other", 1999)).status.ok());
      }
    }
  }
}

// Longer ones need whole slabs, that is 64 KiB more.
TEST(CompactionTest, AnEighthMoreThanALongValueAndSomeSlabsAreEnough) {
  for (const uint64_t bytes : {100u, 1000u, 7000u}) {
    CompactionFixture f(8 * kMiB, absl::Seconds(1));
    FillAndDelete(f, bytes, true, 350000, 1);
    EXPECT_TRUE(f.Put("long", std::string(200000, 'l')).status.ok()) << bytes;
  }
}

// An item that takes several chunks is treated as one item: it is found, moved, and freed.
TEST(CompactionTest, ItemsOfSeveralChunksAreItemsLikeOthers) {
  CompactionFixture f(4 * kMiB);
  FillAndDelete(f, 100, true, 40000, 1);
  std::vector<std::string> keys;
  for (int i = 0; i < 100; ++i) {
    const std::string key = absl::StrCat("other", i);
    if (f.Put(key, ValueOf(key, 1500)).status.ok()) keys.push_back(key);
  }
  ASSERT_GT(keys.size(), 10u);
  for (const std::string& key : keys) ASSERT_EQ(f.Read(key).value, ValueOf(key, 1500));
  // The bytes inside it do not look like an item, whatever the value.
  for (const std::string& key : keys) {
    const Slot slot = Slot::Unpack(f.table->Find(key)->slot);
    f.table->Lease(Slot{slot.offset + 144, 10, 1}.Pack(), TestTime(f.now + 1));
  }
  {
    const absl::Time end = TestTime(f.now);
    compaction_forced = true;
    for (int i = 0; i < 2000; ++i) f.table->CompactStep(end);
    compaction_forced = false;
  }
  for (const std::string& key : keys) {
    ASSERT_EQ(f.Read(key).value, ValueOf(key, 1500));
    ASSERT_TRUE(f.Delete(key));
  }
  uint64_t cursor = 0;
  do {
    cursor = f.table->FlushStep(cursor, kCasVersionMax, 256, TestTime(f.now))->cursor;
  } while (cursor != 0);
  EXPECT_EQ(f.table->stats().item_bytes, 0u);
}

// Forces compaction during its lifetime, even if no space is needed.
struct Forced {
  Forced() { compaction_forced = true; }
  ~Forced() { compaction_forced = false; }
};

// Steps until some of the only item has been copied.
void BeginToCopy(CompactionFixture& f, uint64_t item_bytes) {
  StoreCount stores;
  for (int i = 0; i < 100 && stores.words() < item_bytes / kWordBytes / 3; ++i) {
    f.table->CompactStep(TestTime(f.now), {1, item_bytes / 10});
  }
  ASSERT_EQ(f.table->stats().compaction_items, 0u);
}

TEST(CompactionTest, ItemThatIsWrittenWhileItIsCopiedIsLeftAlone) {
  const Forced forced;
  const std::string before(100000, 'b'), after(90000, 'a');
  for (const char* change : {"none", "put", "delete", "both", "lease"}) {
    CompactionFixture f(2 * kMiB);
    ASSERT_TRUE(f.Put("key", before).status.ok());
    const uint64_t slot = f.Read("key").slot;
    BeginToCopy(f, before.size());
    if (change == std::string("put")) f.Put("key", after);
    if (change == std::string("delete")) f.Delete("key");
    if (change == std::string("both")) {
      f.Delete("key");
      f.Put("key", after);
    }
    if (change == std::string("lease")) f.table->Lease(slot, TestTime(1000));
    for (int i = 0; i < 20; ++i) f.table->CompactStep(TestTime(f.now), {1, before.size() / 10});
    const GetResult got = f.Read("key");
    if (change == std::string("none")) {
      EXPECT_GT(f.table->stats().compaction_items, 0u);
      EXPECT_EQ(got.value, before);
    } else if (change == std::string("lease")) {
      EXPECT_EQ(got.slot, slot);
      EXPECT_EQ(got.value, before);
    } else if (change == std::string("delete")) {
      EXPECT_EQ(got.kind, Lookup::Kind::kMiss);
      EXPECT_EQ(f.table->stats().item_bytes, 0u);
    } else {
      EXPECT_EQ(got.value, after) << change;
    }
  }
}

// --- Against a model -------------------------------------------------------

class CompactionModelTest : public testing::TestWithParam<uint64_t> {};

// Writes, deletes, reservations, leases and steps in any order, in a region that is always full and
// whose sizes change. Readers find what was written, by hint or without.
TEST_P(CompactionModelTest, NothingIsLostAndNothingOverlaps) {
  const uint64_t seed = GetParam();
  SCOPED_TRACE(absl::StrCat("seed ", seed));
  std::mt19937_64 random(seed);
  CompactionFixture f(4 * kMiB, absl::Milliseconds(random() % 3 * 20));
  struct Known {
    std::string value;
    uint64_t version = 0;
    uint64_t slot = 0;
  };
  struct Reserved {
    Reservation reservation;
    std::string key, value;
  };
  std::unordered_map<std::string, Known> model;
  std::vector<std::string> keys;
  std::vector<Reserved> reserved;
  std::unordered_map<std::string, int64_t> leased_until;
  int full = 0;
  uint64_t bytes_most = 400;
  for (int i = 0; i < 20000; ++i) {
    f.now += static_cast<int64_t>(random() % 3);
    if (i % 1000 == 0) bytes_most = uint64_t{200} << random() % 11;
    if (random() % 4 == 0) {
      const CompactionBound bound{1 + random() % 50, uint64_t{256} << random() % 10};
      f.table->CompactStep(TestTime(f.now), bound);
    }
    std::string key = absl::StrCat("key", random() % 5000);
    const uint64_t rng = random() % 100;
    if (rng < 45) {
      const std::string value = ValueOf(key, 40 + random() % bytes_most);
      const WriteResult result = f.Put(key, value);
      if (!result.status.ok()) {
        ASSERT_EQ(result.status.code(), absl::StatusCode::kResourceExhausted);
        ++full;
        for (int j = 0; j < 5 && !model.empty(); ++j) {
          const std::string victim = model.begin()->first;
          ASSERT_TRUE(f.Delete(victim));
          model.erase(victim);
        }
        continue;
      }
      model[key] = {value, result.version, result.slot};
      leased_until.erase(key);
    } else if (rng < 55) {
      ASSERT_EQ(f.Delete(key), model.erase(key) == 1);
      leased_until.erase(key);
    } else if (rng < 60 && reserved.size() < 8) {
      std::string value = ValueOf(key, 40 + random() % bytes_most);
      absl::StatusOr<Reservation> reservation =
          f.table->Reserve(key, value.size(), TestTime(f.now));
      if (!reservation.ok()) continue;
      std::memcpy(reservation->value().data(), value.data(), value.size());
      reserved.push_back({*std::move(reservation), key, std::move(value)});
    } else if (rng < 65 && !reserved.empty()) {
      Reserved last = std::move(reserved.back());
      reserved.pop_back();
      if (random() % 4 == 0) continue;  // abandoned
      const WriteResult result = f.table->Publish(std::move(last.reservation), {}, TestTime(f.now));
      if (!result.status.ok()) continue;  // the index is full
      model[last.key] = {last.value, result.version, result.slot};
      leased_until.erase(last.key);
    } else {
      const auto known = model.find(key);
      if (known == model.end()) {
        ASSERT_EQ(f.Read(key).kind, Lookup::Kind::kMiss) << key;
        continue;
      }
      const bool hinted = random() % 2 == 0;
      const GetResult got = f.Read(key, hinted ? known->second.slot : 0);
      ASSERT_EQ(got.kind, Lookup::Kind::kHit) << key;
      ASSERT_EQ(got.value, known->second.value);
      ASSERT_EQ(got.version, known->second.version);
      const auto lease = leased_until.find(key);
      if (lease != leased_until.end() && lease->second > f.now) {
        ASSERT_EQ(got.slot, known->second.slot) << "a leased item moved";
      }
      known->second.slot = got.slot;
      if (rng > 97 && got.slot != 0) {
        leased_until[key] = f.now + static_cast<int64_t>(random() % 50);
        f.table->Lease(got.slot, TestTime(leased_until[key]));
      }
    }
  }
  EXPECT_GT(full, 0);
  EXPECT_GT(f.table->stats().compaction_items, 1000u);
  EXPECT_GT(f.table->stats().compaction_windows, 10u);
  for (Reserved& last : reserved) {
    EXPECT_EQ(TextOf(last.reservation.value()), last.value);
    last.reservation.Abort();
  }
  ASSERT_EQ(f.table->stats().keys, model.size());
  for (const auto& [key, known] : model) {
    ASSERT_EQ(f.Read(key).value, known.value);
    ASSERT_TRUE(f.Delete(key));
  }
  // The next step abandons a copy that was under way.
  f.now += 100000;
  f.CompactAll();
  EXPECT_EQ(f.table->stats().item_bytes, 0u);
}

INSTANTIATE_TEST_SUITE_P(Seeds, CompactionModelTest,
                         testing::Range(uint64_t{1}, uint64_t{1 + 8 / kVolumeParts}));

}  // namespace
}  // namespace osprey::index
