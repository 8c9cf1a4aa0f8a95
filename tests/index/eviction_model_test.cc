// Eviction against a model: a key may vanish, and a found value is the last one put.

#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <unordered_map>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "index/layout/access_hint.h"
#include "index/reader/lookup.h"
#include "index/writer/table.h"
#include "tests/index/index_test_util.h"
#include "tests/support/volume.h"

namespace osprey::index {
namespace {

// A key may vanish at any time, but a found value is the last one put, and a vanished key does not
// come back. Readers with maps and hints of any age.
class EvictionModelTest : public testing::TestWithParam<uint64_t> {};

TEST_P(EvictionModelTest, WhatIsFoundIsWhatWasPutLast) {
  constexpr uint64_t kModelBytes = 2 << 20;
  std::mt19937_64 random(GetParam());
  RegionMemory memory(kModelBytes);
  TableOptions options;
  options.incarnation = kTestIncarnation;
  options.hash_seed = kTestSeed;
  options.evict = true;
  options.reuse_grace = absl::Milliseconds(random() % 2 * 20);
  options.split_percent = static_cast<uint32_t>(20 + random() % 80);
  const std::unique_ptr<Table> table = *Table::Create(memory.span(), options);
  std::vector<DirectoryCache> maps;
  std::unordered_map<std::string, std::string> model;
  std::unordered_map<std::string, uint64_t> slots;
  std::vector<uint64_t> hints;
  uint64_t value_bytes = 20, refused = 0, vanished = 0, hits = 0;
  for (int i = 0; i < 60000; ++i) {
    const absl::Time now = TestTime(i / 4);
    if (i % 5000 == 0) {
      const uint64_t sizes[] = {20, 60, 400, 3000, 30000};
      value_bytes = sizes[random() % 5];
      maps.emplace_back(kTestIncarnation, kModelBytes);
      FillMap(maps.back(), memory.data());
    }
    const std::string key = absl::StrCat("key", random() % 20000);
    const uint64_t rng = random() % 100;
    if (rng < 50) {
      const std::string value(random() % value_bytes, static_cast<char>(random()));
      const WriteResult result = table->Put(key, BytesOf(value), {}, now);
      if (result.status.ok()) {
        model[key] = value;
        if (result.slot != 0) slots[key] = result.slot;
      } else {
        ASSERT_EQ(result.status.code(), absl::StatusCode::kResourceExhausted);
        ++refused;
      }
    } else if (rng < 55) {
      const bool known = model.erase(key) > 0;
      const bool deleted = table->Delete(key, {}, now).status.ok();
      ASSERT_LE(deleted, known) << key;
    } else {
      const auto slot = slots.find(key);
      const uint64_t hint = slot == slots.end() || random() % 2 == 0 ? 0 : slot->second;
      const GetResult got = Get(maps[random() % maps.size()], memory.data(), key, hint);
      const auto known = model.find(key);
      if (known == model.end()) {
        ASSERT_EQ(got.kind, Lookup::Kind::kMiss) << key;
      } else if (got.kind == Lookup::Kind::kMiss) {
        model.erase(known);
        ++vanished;
      } else {
        ASSERT_EQ(got.kind, Lookup::Kind::kHit);
        ASSERT_EQ(got.value, known->second) << key;
        ++hits;
        if (got.slot != 0)
          hints.push_back(AccessHint{WordKind::kSlot, Slot::Unpack(got.slot).fingerprint, 0,
                                     Slot::Unpack(got.slot).offset}
                              .Pack());
      }
    }
    if (random() % 4 == 0) table->GrowStep(now);
    if (random() % 4 == 0) table->CompactStep(now);
    if (random() % 4 == 0) table->EvictStep(now);
    if (hints.size() > 100) table->TakeHints(hints), hints.clear();
  }
  EXPECT_GT(vanished, 100u);
  EXPECT_GT(hits, 500u);
  // The table contains exactly these keys.
  uint64_t present = 0;
  for (const auto& [key, value] : model) {
    const absl::StatusOr<Table::View> view = table->Find(key);
    if (!view.ok()) continue;
    ++present;
    ASSERT_EQ(TextOf(view->value), value);
  }
  EXPECT_EQ(table->stats().keys, present);
  for (const auto& [key, value] : model) (void)table->Delete(key, {}, TestTime(20000));
  const Table::Stats stats = table->stats();
  EXPECT_EQ(stats.keys, 0u);
  EXPECT_EQ(stats.item_bytes, 0u);
  EXPECT_EQ(stats.overflow_lines, 0u);
  EXPECT_GT(stats.evictions, 1000u);
  EXPECT_EQ(refused, 0u);
}

INSTANTIATE_TEST_SUITE_P(Seeds, EvictionModelTest,
                         testing::Range(uint64_t{1}, uint64_t{1 + 12 / kVolumeParts}));

}  // namespace
}  // namespace osprey::index
