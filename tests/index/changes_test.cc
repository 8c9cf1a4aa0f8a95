// The reported changes suffice to make the table again.

#include "index/writer/keys/changes.h"

#include <cstdint>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "index/writer/table.h"
#include "tests/index/expiry_fixture.h"
#include "tests/index/index_test_util.h"
#include "tests/support/volume.h"

namespace osprey::index {
namespace {

struct Change {
  enum class Kind { kPut, kExpire, kDelete, kEvict };
  Kind kind = Kind::kPut;
  std::string key;
  std::string value;
  uint64_t version = 0;
  uint64_t expiry_ns = 0;
};

class Recorder : public Changes {
 public:
  void OnPut(absl::string_view key, ByteSpan value, uint64_t version, uint64_t expiry_ns) override {
    const auto* const bytes = reinterpret_cast<const char*>(value.data());
    changes.push_back({Change::Kind::kPut, std::string(key), std::string(bytes, value.size()),
                       version, expiry_ns});
  }
  void OnExpire(absl::string_view key, uint64_t version, uint64_t expiry_ns) override {
    changes.push_back({Change::Kind::kExpire, std::string(key), "", version, expiry_ns});
  }
  void OnDelete(absl::string_view key, uint64_t version, uint64_t) override {
    changes.push_back({Change::Kind::kDelete, std::string(key), "", version, 0});
  }
  void OnEvict(absl::string_view key, uint64_t version) override {
    changes.push_back({Change::Kind::kEvict, std::string(key), "", version, 0});
  }
  std::vector<Change> changes;
};

// A table of an earlier life, and the one that is made of its changes.
struct TwoLives {
  explicit TwoLives(uint64_t bytes, bool evict) : memory(bytes), memory_after(4 * bytes) {
    TableOptions options;
    options.incarnation = kTestIncarnation;
    options.hash_seed = kTestSeed;
    options.evict = evict;
    options.clock = [this] { return Now(); };
    options.changes = &recorder;
    table = *Table::Create(memory.span(), options);
    options.changes = nullptr;
    options.clock = [this] { return loaded ? Now() : absl::UnixEpoch(); };
    after = *Table::Create(memory_after.span(), options);
  }
  absl::Time Now() const { return absl::FromUnixNanos(static_cast<int64_t>(now_ns)); }
  void Restore() {
    const absl::Time zero = absl::UnixEpoch();
    for (const Change& change : recorder.changes) {
      switch (change.kind) {
        case Change::Kind::kPut:
          ASSERT_TRUE(after
                          ->Restore(change.key, BytesOf(change.value), change.version,
                                    change.expiry_ns, zero)
                          .status.ok());
          break;
        case Change::Kind::kExpire:
          ASSERT_TRUE(RestoreExpiry(*after, change.key, change.version, change.expiry_ns).ok());
          break;
        case Change::Kind::kDelete:
        case Change::Kind::kEvict:
          ASSERT_TRUE(RestoreDelete(*after, change.key, change.version).ok());
          break;
      }
      while (after->GrowStep(zero)) {
      }
    }
    loaded = true;
  }

  uint64_t now_ns = kStartNs;
  bool loaded = false;
  Recorder recorder;
  RegionMemory memory, memory_after;
  std::unique_ptr<Table> table, after;
};

void WriteSomething(TwoLives& lives, std::mt19937_64& random, uint64_t keys) {
  Table& table = *lives.table;
  const absl::Time now = lives.Now();
  const std::string key = absl::StrCat("key", random() % keys);
  const std::string value(random() % 20 == 0 ? 6000 : random() % 200, static_cast<char>(random()));
  const Lifetime lifetimes[] = {Lifetime::Forever(), Lifetime::Kept(),
                                Lifetime::For(absl::Milliseconds(random() % 100))};
  const absl::StatusOr<Table::View> present = table.Find(key);
  const Condition condition =
      random() % 4 == 0 && present.ok() ? VersionIs(present->version) : Condition();
  switch (random() % 8) {
    case 0:
      (void)table.Delete(key, condition, now);
      break;
    case 1:
      (void)table.Expire(key, condition, lifetimes[random() % 2 * 2], now);
      break;
    case 2: {
      absl::StatusOr<Reservation> space = table.Reserve(key, value.size(), now);
      if (!space.ok()) break;
      std::memcpy(space->value().data(), value.data(), value.size());
      (void)table.Publish(*std::move(space), condition, now, lifetimes[random() % 3]);
      break;
    }
    case 3:
      if (random() % 200 == 0) (void)table.FlushStep(0, UINT64_MAX, 64, now);
      break;
    default:
      (void)table.Put(key, BytesOf(value), condition, now, lifetimes[random() % 3]);
  }
  for (int i = 0; i < 3; ++i) (void)table.GrowStep(now);
  (void)table.SweepStep(now);
  (void)table.EvictStep(now);
  (void)table.CompactStep(now);
}

TEST(ChangesTest, ReportedChangesMakeTheTableAgain) {
  for (const bool evict : {false, true}) {
    TwoLives lives(1 << 20, evict);
    std::mt19937_64 random(7);
    constexpr uint64_t kKeys = 8000;
    for (int i = 0; i < 60000 / kVolumeParts; ++i) {
      WriteSomething(lives, random, kKeys);
      lives.now_ns += random() % (20000 * kVolumeParts);
    }
    EXPECT_EQ(lives.table->stats().evictions > 100, evict);
    EXPECT_GT(lives.table->stats().expiries, 100u);
    lives.Restore();
    uint64_t found = 0;
    for (uint64_t i = 0; i < kKeys; ++i) {
      const std::string key = absl::StrCat("key", i);
      const absl::StatusOr<Table::View> before = lives.table->Find(key);
      const absl::StatusOr<Table::View> after = lives.after->Find(key);
      ASSERT_EQ(before.ok(), after.ok()) << key;
      if (!before.ok()) continue;
      ++found;
      EXPECT_EQ(TextOf(before->value), TextOf(after->value)) << key;
      EXPECT_EQ(before->version, after->version) << key;
      EXPECT_EQ(before->expiry_ns, after->expiry_ns) << key;
    }
    EXPECT_GT(found, 1000u);
  }
}

TEST(ChangesTest, RefusedWritesAndTheEndOfALifetimeAreNotReported) {
  TwoLives lives(1 << 20, false);
  const WriteResult put = lives.table->Put("key", BytesOf("value"), {}, lives.Now(),
                                           Lifetime::For(absl::Milliseconds(10)));
  ASSERT_TRUE(put.status.ok());
  (void)lives.table->Put("key", BytesOf("other"), kAbsent, lives.Now());
  (void)lives.table->Delete("key", VersionIs(put.version + 1), lives.Now());
  lives.now_ns += kSecondNs;
  while (lives.table->SweepStep(lives.Now())) {
  }
  (void)lives.table->Delete("key", {}, lives.Now());
  EXPECT_EQ(lives.table->stats().keys, 0u);
  ASSERT_EQ(lives.recorder.changes.size(), 1u);
  EXPECT_EQ(lives.recorder.changes[0].expiry_ns, put.expiry_ns);
}

TEST(ChangesTest, DeletionOfAnEarlierValueLeavesTheLaterOne) {
  TwoLives lives(1 << 20, false);
  const absl::Time zero = absl::UnixEpoch();
  ASSERT_TRUE(lives.after->Restore("key", BytesOf("later"), 20, 0, zero).status.ok());
  EXPECT_TRUE(RestoreDelete(*lives.after, "key", 19).ok());
  EXPECT_TRUE(RestoreExpiry(*lives.after, "key", 19, kStartNs + kSecondNs).ok());
  const absl::StatusOr<Table::View> view = lives.after->Find("key");
  ASSERT_TRUE(view.ok());
  EXPECT_EQ(view->version, 20u);
  EXPECT_EQ(view->expiry_ns, 0u);
  EXPECT_TRUE(RestoreDelete(*lives.after, "key", 20).ok());
  EXPECT_FALSE(lives.after->Find("key").ok());
}

// No reader has seen it, and the clock stands still, so that nothing would become due.
TEST(ChangesTest, WhatARestoredValueReplacesIsFreeAtOnce) {
  TwoLives lives(1 << 20, false);
  const absl::Time zero = absl::UnixEpoch();
  const std::string value(100000, 'v');
  for (uint64_t version = 1; version <= 3; ++version) {
    ASSERT_TRUE(lives.after->Restore("key", BytesOf(value), version, 0, zero).status.ok());
    EXPECT_EQ(lives.after->stats().quarantine_bytes, 0u);
  }
}

TEST(ChangesTest, DeletionNamesTheVersionThatItEnded) {
  TwoLives lives(1 << 20, false);
  const WriteResult put = lives.table->Put("key", BytesOf("value"), {}, lives.Now());
  const WriteResult deletion = lives.table->Delete("key", {}, lives.Now());
  ASSERT_GT(deletion.version, put.version);
  EXPECT_EQ(lives.recorder.changes.back().version, put.version);
}

// --- Writes in two steps ---------------------------------------------------------------------------

std::vector<Flusher::Listed> ListAll(Table& table, uint64_t version_bound, uint64_t keys_max) {
  std::vector<Flusher::Listed> all;
  uint64_t cursor = 0;
  do {
    const Flusher::List list = table.ListFlush(cursor, version_bound, keys_max);
    all.insert(all.end(), list.keys.begin(), list.keys.end());
    cursor = list.cursor;
  } while (cursor != 0);
  return all;
}

TEST(TwoStepsTest, AFlushListsNoLaterKey) {
  TwoLives lives(1 << 20, false);
  const uint64_t bound = lives.table->Put("early", BytesOf("value"), {}, lives.Now()).version;
  ASSERT_GT(lives.table->Put("later", BytesOf("value"), {}, lives.Now()).version, bound);
  const std::vector<Flusher::Listed> listed = ListAll(*lives.table, bound, 100);
  ASSERT_EQ(listed.size(), 1u);
  EXPECT_EQ(listed[0].key, "early");
}

TEST(TwoStepsTest, AFlushListsNoMoreKeysThanItMay) {
  TwoLives lives(1 << 20, false);
  for (int i = 0; i < 1000; ++i) {
    ASSERT_TRUE(
        lives.table->Put(absl::StrCat("key", i), BytesOf("v"), {}, lives.Now()).status.ok());
    while (lives.table->GrowStep(lives.Now())) {
    }
  }
  std::set<std::string> found;
  uint64_t cursor = 0;
  do {
    const Flusher::List list = lives.table->ListFlush(cursor, kCasVersionMax, 64);
    EXPECT_LE(list.keys.size(), 64u);
    for (const Flusher::Listed& one : list.keys) found.insert(one.key);
    cursor = list.cursor;
  } while (cursor != 0);
  EXPECT_EQ(found.size(), 1000u);
}

TEST(TwoStepsTest, ForeseesThatNoVersionIsLeft) {
  RegionMemory memory(1 << 20);
  TableOptions options;
  options.incarnation = kTestIncarnation;
  options.hash_seed = kTestSeed;
  options.cas_version = kCasVersionMax - 100;
  const std::unique_ptr<Table> table = *Table::Create(memory.span(), options);
  const absl::Time now = absl::UnixEpoch() + absl::Hours(1);
  WriteResult put;
  for (int i = 0; i < 1000 && put.status.ok(); ++i) put = table->Put("key", BytesOf("v"), {}, now);
  ASSERT_TRUE(IsVersionsUsedUp(put.status)) << put.status;
  const Table::Forecast forecast =
      table->Foresee({"key", HashKey("key", kTestSeed)}, {}, Lifetime::Forever(), now);
  ASSERT_TRUE(forecast.refusal.has_value());
  EXPECT_TRUE(IsVersionsUsedUp(forecast.refusal->status));
}

}  // namespace
}  // namespace osprey::index
