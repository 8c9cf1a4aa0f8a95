// Eviction: which keys go, which stay, and that nothing else is lost or invented.

#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "index/layout/access_hint.h"
#include "index/reader/lookup.h"
#include "index/writer/table.h"
#include "tests/index/index_test_util.h"

namespace osprey::index {
namespace {

constexpr uint64_t kEvictionRegionBytes = 4 << 20;

class EvictionTest : public testing::Test {
 protected:
  explicit EvictionTest(bool evict = true) {
    TableOptions options;
    options.incarnation = kTestIncarnation;
    options.hash_seed = kTestSeed;
    options.evict = evict;
    table_ = *Table::Create(memory_.span(), options);
  }

  WriteResult Put(const std::string& key, uint64_t value_bytes, Condition condition = {}) {
    now_ += absl::Microseconds(10);
    return table_->Put(key, BytesOf(std::string(value_bytes, 'v')), condition, now_);
  }
  // A turn of the server.
  void Turn() {
    table_->GrowStep(now_);
    table_->EvictStep(now_);
    table_->CompactStep(now_);
  }
  void Fill(const std::string& prefix, uint64_t count, uint64_t value_bytes) {
    for (uint64_t i = 0; i < count; ++i) {
      ASSERT_TRUE(Put(absl::StrCat(prefix, i), value_bytes).status.ok()) << prefix << i;
      Turn();
    }
  }
  bool Has(const std::string& key) const { return table_->Find(key).ok(); }
  uint64_t CountOf(const std::string& prefix, uint64_t count) const {
    uint64_t found = 0;
    for (uint64_t i = 0; i < count; ++i) found += Has(absl::StrCat(prefix, i));
    return found;
  }
  // As the access hint of a client that has READ the key.
  uint64_t HintOf(const std::string& key) {
    DirectoryCache map(kTestIncarnation, kEvictionRegionBytes);
    FillMap(map, memory_.data());
    Lookup lookup(map, key);
    Lookup::Step step = lookup.Start();
    std::vector<std::byte> bytes;
    while (step.kind == Lookup::Kind::kRead) {
      bytes = ReadRegion(memory_.data(), step.offset, step.length);
      step = lookup.Resume(bytes);
    }
    return lookup.AccessOf(step);
  }

  RegionMemory memory_{kEvictionRegionBytes};
  std::unique_ptr<Table> table_;
  absl::Time now_ = TestTime(0);
};

class NoEvictionTest : public EvictionTest {
 protected:
  NoEvictionTest() : EvictionTest(/*evict=*/false) {}
};

// --- Choice of victims ---------------------------------------------------------

TEST_F(NoEvictionTest, WithoutTheOptionAFullTableRefusesAndKeepsEverything) {
  uint64_t stored = 0;
  while (Put(absl::StrCat("key", stored), 100).status.ok()) {
    Turn();
    ASSERT_LT(++stored, 100000u);
  }
  EXPECT_EQ(Put("more", 100).status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(CountOf("key", stored), stored);
  EXPECT_EQ(table_->stats().evictions, 0u);
  EXPECT_FALSE(table_->MayMakeRoom("more", 100));
}

TEST_F(EvictionTest, TableWithFreeSpaceEvictsNothing) {
  Fill("key", 10000, 100);
  EXPECT_EQ(table_->stats().evictions, 0u);
  EXPECT_EQ(CountOf("key", 10000), 10000u);
}

TEST_F(EvictionTest, FullTableAcceptsPutsOfAnySize) {
  std::mt19937_64 random(1);
  const uint64_t sizes[] = {8, 100, 1000, 4000, 60000};
  for (uint64_t value_bytes : sizes) {
    for (uint64_t i = 0; i < 2 * kEvictionRegionBytes / (value_bytes + 40); ++i) {
      const std::string key = absl::StrCat("size", value_bytes, "#", i);
      ASSERT_TRUE(Put(key, value_bytes).status.ok()) << key;
      ASSERT_TRUE(Has(key));
      Turn();
    }
  }
  EXPECT_GT(table_->stats().evictions, 10000u);
}

TEST_F(EvictionTest, KeysOfWhichHintsComeOutliveThoseOfWhichNoneCome) {
  constexpr uint64_t kHot = 2000;
  Fill("hot", kHot, 100);
  for (uint64_t i = 0; i < 200000; ++i) {
    if (i % 10 == 0) {
      const std::string key = absl::StrCat("hot", i / 10 % kHot);
      const absl::StatusOr<Table::View> view = table_->Find(key);
      if (view.ok()) {
        const Slot slot = Slot::Unpack(view->slot);
        const uint64_t hint = AccessHint{WordKind::kSlot, slot.fingerprint, 0, slot.offset}.Pack();
        table_->TakeHints({&hint, 1});
      }
    }
    ASSERT_TRUE(Put(absl::StrCat("cold", i), 100).status.ok());
    Turn();
  }
  EXPECT_GT(CountOf("hot", kHot), kHot * 98 / 100);
  // A few had the fingerprint of a ghost (ghosts.h), and were taken for keys that return.
  EXPECT_LT(CountOf("cold", 100000), 10u);
  EXPECT_EQ(table_->stats().hints_unmatched, 0u);
}

TEST_F(EvictionTest, SmallKeysThatAreInlineAreEvictedAndKeptByTheirHintsAsWell) {
  constexpr uint64_t kHot = 1000;
  Fill("hot", kHot, 4);
  for (uint64_t i = 0; i < 400000; ++i) {
    if (i % 100 == 0) {
      std::vector<uint64_t> hints;
      for (uint64_t k = 0; k < 10; ++k)
        hints.push_back(HintOf(absl::StrCat("hot", (i / 10 + k) % kHot)));
      table_->TakeHints(hints);
    }
    ASSERT_TRUE(Put(absl::StrCat("c", i), 4).status.ok()) << i;
    Turn();
  }
  const Table::Stats stats = table_->stats();
  EXPECT_GT(stats.inline_keys, stats.keys / 2);
  EXPECT_GT(CountOf("hot", kHot), kHot * 9 / 10);
  // An inline key makes room for new keys of its own lines, of which some get fewer than others.
  EXPECT_LT(CountOf("c", 50000), 500u);
}

TEST_F(EvictionTest, KeysThatAreWrittenOrTouchedStay) {
  Fill("written", 1000, 100);
  Fill("touched", 1000, 100);
  for (uint64_t i = 0; i < 100000; ++i) {
    if (i % 4 == 0) {
      ASSERT_TRUE(Put(absl::StrCat("written", i / 4 % 1000), 100).status.ok());
    }
    if (i % 16 == 0) {
      ASSERT_TRUE(table_->Touch(absl::StrCat("touched", i / 16 % 1000)));
    }
    ASSERT_TRUE(Put(absl::StrCat("cold", i), 100).status.ok());
    Turn();
  }
  EXPECT_GT(CountOf("written", 1000), 990u);
  EXPECT_EQ(CountOf("touched", 1000), 1000u);
  EXPECT_FALSE(table_->Touch("absent"));
}

TEST_F(EvictionTest, LivesAreKeptWhileSegmentsSplitAndItemsMove) {
  constexpr uint64_t kHot = 500;
  Fill("hot", kHot, 60);
  for (int times = 0; times < 4; ++times) {
    for (uint64_t i = 0; i < kHot; ++i) ASSERT_TRUE(table_->Touch(absl::StrCat("hot", i)));
  }
  const uint64_t splits = table_->stats().splits;
  // As much again as fits, and then more, so that the hand has passed once but not often.
  uint64_t i = 0;
  while (table_->stats().evictions < 8000) {
    ASSERT_TRUE(Put(absl::StrCat("cold", i++), 60).status.ok());
    Turn();
  }
  EXPECT_GT(table_->stats().splits, splits + 4);
  EXPECT_EQ(CountOf("hot", kHot), kHot);
}

TEST_F(EvictionTest, TheKeyThatIsWrittenIsNeverTheOneThatGoes) {
  Fill("key", 40000, 100);
  std::mt19937_64 random(1);
  uint64_t written = 0;
  for (uint64_t i = 0; i < 20000; ++i) {
    const std::string key = absl::StrCat("key", 40000 - random() % 30000);
    const absl::StatusOr<Table::View> present = table_->Find(key);
    if (!present.ok()) continue;
    // Longer than before: it needs a new place. No turn comes between.
    const uint64_t value_bytes = 100 + random() % 3000;
    const WriteResult result =
        Put(key, value_bytes, {Condition::Kind::kVersionIs, present->version});
    ASSERT_TRUE(result.status.ok()) << result.status;
    ASSERT_EQ(table_->Find(key)->value.size(), value_bytes);
    ++written;
  }
  EXPECT_GT(written, 1000u);
}

TEST_F(EvictionTest, NotEvenWhenItIsTheOnlyOneThatMayGo) {
  const WriteResult first = Put("written", 1 << 20);
  ASSERT_TRUE(first.status.ok());
  uint64_t leased = 0;
  for (; Put(absl::StrCat("leased", leased), 20000).status.ok() && Has("written"); ++leased) {
    table_->Lease(table_->Find(absl::StrCat("leased", leased))->slot, now_ + absl::Seconds(100));
    (void)table_->Touch("written");
    // Before the next one must free space for itself.
    if (table_->stats().item_space_bytes > kEvictionRegionBytes - (600 << 10)) break;
  }
  const Condition unchanged{Condition::Kind::kVersionIs, first.version};
  for (int i = 0; i < 20; ++i) {
    EXPECT_EQ(Put("written", 2 << 20, unchanged).status.code(),
              absl::StatusCode::kResourceExhausted);
  }
  ASSERT_TRUE(Has("written"));
  EXPECT_EQ(table_->Find("written")->version, first.version);
}

TEST_F(EvictionTest, LargeValueIsReservedAfterSomeAttempts) {
  Fill("key", 40000, 100);
  ASSERT_TRUE(table_->MayMakeRoom("long", kEvictionRegionBytes / 2));
  EXPECT_FALSE(table_->MayMakeRoom("long", kEvictionRegionBytes));
  absl::StatusOr<Reservation> reservation = table_->Reserve("long", kEvictionRegionBytes / 2, now_);
  for (int attempt = 0; attempt < 100 && !reservation.ok(); ++attempt) {
    Turn();
    reservation = table_->Reserve("long", kEvictionRegionBytes / 2, now_);
  }
  ASSERT_TRUE(reservation.ok()) << reservation.status();
  EXPECT_TRUE(table_->Publish(*std::move(reservation), {}, now_).status.ok());
  EXPECT_TRUE(Has("long"));
}

TEST_F(EvictionTest, ValueThatCanNeverFitEvictsNothing) {
  Fill("key", 2000, 3000);
  const uint64_t keys = table_->stats().keys, evictions = table_->evictions();
  for (const uint64_t bytes : {kEvictionRegionBytes - kEvictionRegionBytes / 16,
                               kEvictionRegionBytes, 2 * kEvictionRegionBytes}) {
    EXPECT_FALSE(table_->MayMakeRoom("long", bytes));
    for (int i = 0; i < 5; ++i) EXPECT_FALSE(table_->Reserve("long", bytes, now_).ok());
  }
  EXPECT_EQ(table_->evictions(), evictions);
  EXPECT_EQ(table_->stats().keys, keys);
}

// Leases in every part of the memory keep it in pieces that are too short.
TEST_F(EvictionTest, AValueThatLeasesKeepOutEvictsNothing) {
  Fill("key", 2000, 3000);
  uint64_t leased = 0;
  for (uint64_t i = 0; i < 2000; ++i) {
    const absl::StatusOr<Table::View> view = table_->Find(absl::StrCat("key", i));
    if (view.ok() && i % 20 == 0) table_->Lease(view->slot, now_ + absl::Hours(1)), ++leased;
  }
  ASSERT_GT(leased, 20u);
  const uint64_t evictions = table_->evictions();
  for (const uint64_t bytes : {kEvictionRegionBytes / 4, kEvictionRegionBytes / 2}) {
    for (int i = 0; i < 20; ++i) EXPECT_FALSE(table_->Reserve("long", bytes, now_).ok());
  }
  EXPECT_EQ(table_->evictions(), evictions);
  // After they have ended it may continue.
  now_ += absl::Hours(2);
  absl::StatusOr<Reservation> reservation;
  for (int i = 0; i < 100 && !reservation.ok(); ++i) {
    Turn();
    reservation = table_->Reserve("long", kEvictionRegionBytes / 2, now_);
  }
  EXPECT_TRUE(reservation.ok());
}

TEST_F(EvictionTest, ALongValueEvictsInProportionToItsLength) {
  for (const uint64_t small : {100u, 3000u, 10000u, 30000u, 100000u}) {
    for (const uint64_t bytes : {kEvictionRegionBytes / 3, kEvictionRegionBytes * 3 / 4}) {
      TableOptions options;
      options.incarnation = kTestIncarnation;
      options.hash_seed = kTestSeed;
      options.evict = true;
      RegionMemory memory(kEvictionRegionBytes);
      std::swap(memory, memory_);
      table_ = *Table::Create(memory_.span(), options);
      Fill("key", 5 * kEvictionRegionBytes / 4 / (small + 40), small);
      const uint64_t evicted = table_->stats().evicted_bytes;
      absl::StatusOr<Reservation> reservation;
      for (int i = 0; i < 200 && !reservation.ok(); ++i) {
        Turn();
        reservation = table_->Reserve("long", bytes, now_);
      }
      ASSERT_TRUE(reservation.ok()) << small << ", " << bytes;
      EXPECT_LE(table_->stats().evicted_bytes - evicted, bytes) << small << ", " << bytes;
      EXPECT_TRUE(table_->Publish(*std::move(reservation), {}, now_).status.ok());
      EXPECT_EQ(table_->Find("long")->value.size(), bytes);
    }
  }
}

TEST_F(EvictionTest, ALongValueLeavesWhatFitsBesideIt) {
  Fill("key", 600, 8000);
  const Table::Stats before = table_->stats();
  const uint64_t bytes = before.item_space_bytes * 86 / 100;
  ASSERT_TRUE(table_->MayMakeRoom("long", bytes));
  absl::StatusOr<Reservation> reservation;
  for (int i = 0; i < 200 && !reservation.ok(); ++i) {
    Turn();
    reservation = table_->Reserve("long", bytes, now_);
  }
  ASSERT_TRUE(reservation.ok());
  // Half a slab of the remaining 14 % may lie in the value's way.
  EXPECT_GE(table_->stats().keys, before.keys * 8 / 100);
  EXPECT_TRUE(table_->Publish(*std::move(reservation), {}, now_).status.ok());
}

// They obstruct each other, and are too long to be moved: enough is free, but in pieces.
TEST_F(EvictionTest, LargeValuesOfAllLengthsReplaceEachOther) {
  std::mt19937_64 random(1);
  for (int i = 0; i < 200; ++i) {
    const std::string key = absl::StrCat("long", i);
    const uint64_t value_bytes = (300 << 10) + random() % (2400 << 10);
    ASSERT_TRUE(table_->MayMakeRoom(key, value_bytes));
    absl::StatusOr<Reservation> reservation = table_->Reserve(key, value_bytes, now_);
    for (int turn = 0; turn < 100 && !reservation.ok(); ++turn) {
      now_ += absl::Milliseconds(10);
      Turn();
      reservation = table_->Reserve(key, value_bytes, now_);
    }
    ASSERT_TRUE(reservation.ok()) << i << ": " << value_bytes << " " << reservation.status();
    ASSERT_TRUE(table_->Publish(*std::move(reservation), {}, now_).status.ok());
  }
}

TEST_F(EvictionTest, OneStepEvictsBoundedlyManyAndKeepsAReserve) {
  Fill("key", 40000, 100);
  for (uint64_t i = 0; i < 2000; ++i) {
    ASSERT_TRUE(Put(absl::StrCat("more", i), 100).status.ok());
    const uint64_t before = table_->stats().evictions;
    table_->EvictStep(now_);
    ASSERT_LE(table_->stats().evictions - before, 256u);
  }
  for (int i = 0; i < 100 && table_->EvictStep(now_); ++i) {
  }
  EXPECT_FALSE(table_->EvictStep(now_));  // enough: an idle server sleeps
  const Table::Stats stats = table_->stats();
  EXPECT_GT(stats.keys, 20000u);
}

TEST_F(EvictionTest, WhatIsLeasedStaysAndTheServerIsNotKeptAwakeByIt) {
  uint64_t stored = 0;
  for (; Put(absl::StrCat("leased", stored), 20000).status.ok(); ++stored) {
    table_->Lease(table_->Find(absl::StrCat("leased", stored))->slot, now_ + absl::Seconds(100));
    ASSERT_LT(stored, 1000u);
  }
  EXPECT_GT(stored, 100u);
  int steps = 0;
  while (table_->EvictStep(now_)) ASSERT_LT(++steps, 100);
  EXPECT_EQ(CountOf("leased", stored), stored);
  EXPECT_EQ(table_->stats().evictions, 0u);
  now_ += absl::Seconds(101);
  EXPECT_TRUE(Put("more", 20000).status.ok());
}

// --- Hints are not to be trusted -------------------------------------------------

TEST_F(EvictionTest, HintsMayBeOldOrLiesAndChangeNothingButLives) {
  Fill("key", 2000, 100);
  Fill("small", 2000, 4);
  std::mt19937_64 random(1);
  std::vector<uint64_t> good;
  for (int i = 0; i < 200; ++i) {
    good.push_back(HintOf(absl::StrCat(i % 2 == 0 ? "key" : "small", i)));
  }
  const uint64_t version = table_->stats().cas_version;
  table_->TakeHints(good);
  EXPECT_EQ(table_->stats().hints_unmatched, 0u);
  std::vector<uint64_t> hints;
  for (int i = 0; i < 200000; ++i) {
    uint64_t hint = random() % 2 == 0 ? random() : good[random() % good.size()];
    // Close to present keys: other words, other kinds, other fingerprints.
    hint ^= uint64_t{1} << random() % 64;
    if (random() % 2 == 0) hint ^= uint64_t{1} << random() % 8;
    if (random() % 4 == 0)
      hint = (hint & ~kOffsetMask) | random() % (kEvictionRegionBytes / kWordBytes + 1000);
    hints.push_back(hint);
  }
  table_->TakeHints(hints);
  EXPECT_EQ(table_->stats().hints, 200200u);
  EXPECT_GT(table_->stats().hints_unmatched, 190000u);
  EXPECT_EQ(table_->stats().cas_version, version);
  // Hints of deleted keys, and of places with other contents now.
  for (int i = 0; i < 2000; i += 2)
    ASSERT_TRUE(table_->Delete(absl::StrCat("key", i), {}, now_).status.ok());
  table_->TakeHints(good);
  Fill("other", 20000, 200);
  table_->TakeHints(good);
  table_->TakeHints(hints);
}

// A spare unit has arbitrary bytes: here those of an inline item.
TEST_F(EvictionTest, HintsOfASpareUnitAreNotFollowed) {
  constexpr uint64_t kRoomUnits = kEvictionRegionBytes / 16 / kUnitBytes;
  const uint64_t spare = UnitsOffset(kEvictionRegionBytes) + (kRoomUnits - 1) * kUnitBytes;
  const uint64_t words[] = {InlineHead{3, 0, 1}.Pack(), 0x636261};  // "abc"
  std::memcpy(memory_.span().data() + spare + offsetof(Line, words), words, sizeof(words));
  const uint64_t hint =
      AccessHint{WordKind::kInline, HashKey("abc", kTestSeed).fingerprint(), 0, spare}.Pack();
  table_->TakeHints({&hint, 1});
  EXPECT_EQ(table_->stats().hints_unmatched, 1u);
}

// --- Time to live ------------------------------------------------------------

// If items find no space, a small key replaces others in its line. The exception is a key that
// expired meanwhile, if the condition was that it exists.
TEST(EvictionExpiryTest, ConditionIsRecheckedIfTheKeyExpiresDuringEviction) {
  constexpr uint64_t kSmallBytes = 256 << 10;
  RegionMemory memory(kSmallBytes);
  const absl::Time start = TestTime(0);
  absl::Time expiry = absl::InfiniteFuture();
  int looks_left = 0;  // until the expiry
  TableOptions options;
  options.incarnation = kTestIncarnation;
  options.hash_seed = kTestSeed;
  options.evict = true;
  options.clock = [&] {
    return looks_left-- > 0 ? start : std::min(expiry, start + absl::Hours(1));
  };
  const std::unique_ptr<Table> table = *Table::Create(memory.span(), options);
  looks_left = INT32_MAX;
  const WriteResult old = table->Put("key", BytesOf(std::string(500, 'v')), {}, start,
                                     Lifetime::For(absl::Seconds(10)));
  ASSERT_TRUE(old.status.ok());
  table->Lease(old.slot, start + absl::Seconds(10));
  // Other keys hold all item space, under leases; the key's line is full.
  for (int i = 0; i < 1000; ++i) {
    const WriteResult other =
        table->Put(absl::StrCat("leased", i), BytesOf(std::string(500, 'v')), {}, start);
    if (!other.status.ok()) break;
    table->Lease(other.slot, start + absl::Hours(1));
  }
  for (int i = 0; i < 1200; ++i)
    (void)table->Put(absl::StrCat("small", i), BytesOf("value"), {}, start);
  ASSERT_TRUE(table->Find("key").ok());
  const uint64_t evictions = table->evictions();
  expiry = absl::FromUnixNanos(static_cast<int64_t>(old.expiry_ns));
  looks_left = 1;
  const WriteResult result = table->Put("key", BytesOf(std::string(20, 'n')),
                                        {Condition::Kind::kVersionIs, old.version}, start);
  EXPECT_TRUE(absl::IsNotFound(result.status)) << result.status;
  EXPECT_FALSE(table->Find("key").ok());
  EXPECT_EQ(table->stats().expiries, 1u);
  EXPECT_EQ(table->evictions(), evictions) << "another key was evicted";
}

TEST_F(EvictionTest, WriteAmongLeasedItemsFailsWithBoundedEffort) {
  for (int i = 0; i < 10000; ++i) {
    const WriteResult result = Put(absl::StrCat("leased", i), 3000);
    if (!result.status.ok()) break;
    table_->Lease(result.slot, now_ + absl::Hours(1));
  }
  // Some passes over all lines.
  const uint64_t lines = table_->stats().segments * kLinesPerUnit;
  const uint64_t effort = table_->effort();
  EXPECT_EQ(Put("more", 3000).status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_GE(table_->effort() - effort, lines / 32);
  EXPECT_LE(table_->effort() - effort, 80 * lines / 32);
}

// So a server may skip a table without work.
TEST(StepWantedTest, StepThatIsNotNeededDoesNothing) {
  for (const bool evict : {false, true}) {
    RegionMemory memory(kEvictionRegionBytes);
    absl::Time now = TestTime(0);
    TableOptions options;
    options.incarnation = kTestIncarnation;
    options.hash_seed = kTestSeed;
    options.evict = evict;
    options.clock = [&now] { return now; };
    const std::unique_ptr<Table> table = *Table::Create(memory.span(), options);
    std::mt19937_64 random(evict);
    int wanted = 0, unwanted = 0;
    for (int i = 0; i < 40000; ++i) {
      now += absl::Microseconds(random() % 200);
      const std::string key = absl::StrCat("key", random() % 20000);
      if (random() % 4 == 0) {
        table->Delete(key, {}, now);
      } else {
        const Lifetime lifetime =
            random() % 8 == 0 ? Lifetime::For(absl::Milliseconds(300)) : Lifetime::Forever();
        table->Put(key, BytesOf(std::string(random() % (i % 100 == 0 ? 20000 : 200), 'v')), {}, now,
                   lifetime);
      }
      if (table->StepWanted(now)) {
        ++wanted;
        table->GrowStep(now);
        table->SweepStep(now);
        table->EvictStep(now);
        table->CompactStep(now);
        continue;
      }
      ++unwanted;
      const Table::Stats before = table->stats();
      EXPECT_FALSE(table->GrowStep(now));
      EXPECT_FALSE(table->SweepStep(now));
      EXPECT_FALSE(table->EvictStep(now));
      EXPECT_FALSE(table->CompactStep(now));
      const Table::Stats after = table->stats();
      ASSERT_EQ(std::memcmp(&before, &after, sizeof(before)), 0) << "write " << i;
    }
    EXPECT_GT(wanted, 100) << evict;
    EXPECT_GT(unwanted, 1000) << evict;
    EXPECT_GT(table->stats().expiries, 100u);
    EXPECT_GT(table->stats().splits, 0u);
  }
}

}  // namespace
}  // namespace osprey::index
