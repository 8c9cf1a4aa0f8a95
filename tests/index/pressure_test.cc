// Everything at once in a region that is too small: writes of all kinds and sizes, growth,
// compaction and flushes, while readers have maps and hints of any age. Against a model.

#include <memory>
#include <random>
#include <string>
#include <unordered_map>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "index/reader/lookup.h"
#include "index/writer/table.h"
#include "tests/index/index_test_util.h"
#include "tests/support/volume.h"

namespace osprey::index {
namespace {

constexpr uint64_t kBytes = 3 << 20;

class PressureTest : public testing::TestWithParam<uint64_t> {
 protected:
  struct Stored {
    std::string value;
    uint64_t version = 0;
  };

  PressureTest() {
    TableOptions options;
    options.incarnation = kTestIncarnation;
    options.hash_seed = kTestSeed;
    options.reuse_grace = absl::Milliseconds(Random(2) * 20);
    options.split_percent = static_cast<uint32_t>(20 + Random(80));
    table_ = *Table::Create(memory_.span(), options);
    KeepMap();
  }

  uint64_t Random(uint64_t below) { return random_() % below; }
  void KeepMap() {
    maps_.emplace_back(kTestIncarnation, kBytes);
    FillMap(maps_.back(), memory_.data());
  }

  void Put(const std::string& key, uint64_t bytes) {
    const std::string value(Random(bytes), static_cast<char>(random_()));
    const WriteResult result = table_->Put(key, BytesOf(value), {}, TestTime(++now_));
    if (result.status.ok()) {
      model_[key] = {value, result.version};
      if (result.slot != 0) hints_[key] = result.slot;
    } else {
      ASSERT_EQ(result.status.code(), absl::StatusCode::kResourceExhausted);
      ++refused_;
    }
  }

  void Delete(const std::string& key) {
    const bool known = model_.erase(key) > 0;
    ASSERT_EQ(table_->Delete(key, {}, TestTime(++now_)).status.ok(), known);
  }

  void Get(const std::string& key) {
    const auto hint = hints_.find(key);
    const uint64_t slot = hint == hints_.end() || Random(2) == 0 ? 0 : hint->second;
    const GetResult got = index::Get(maps_[Random(maps_.size())], memory_.data(), key, slot);
    const auto known = model_.find(key);
    ASSERT_EQ(got.kind, known == model_.end() ? Lookup::Kind::kMiss : Lookup::Kind::kHit) << key;
    if (known == model_.end()) return;
    ASSERT_EQ(got.value, known->second.value);
    ASSERT_EQ(got.version, known->second.version);
  }

  void Flush() {
    const uint64_t bound = table_->stats().cas_version - Random(2000);
    uint64_t cursor = 0;
    uint64_t deleted = 0;
    do {
      const auto step = table_->FlushStep(cursor, bound, 1 + Random(200), TestTime(++now_));
      ASSERT_TRUE(step.ok());
      cursor = step->cursor;
      deleted += step->deleted;
    } while (cursor != 0);
    const size_t before = model_.size();
    for (auto it = model_.begin(); it != model_.end();) {
      it = it->second.version <= bound ? model_.erase(it) : std::next(it);
    }
    ASSERT_EQ(deleted, before - model_.size());
  }

  std::mt19937_64 random_{GetParam()};
  RegionMemory memory_{kBytes};
  std::unique_ptr<Table> table_;
  std::vector<DirectoryCache> maps_;
  std::unordered_map<std::string, Stored> model_;
  std::unordered_map<std::string, uint64_t> hints_;
  int64_t now_ = 0;
  uint64_t refused_ = 0;
};

TEST_P(PressureTest, NothingIsLostOrMadeUp) {
  uint64_t value_bytes = 20;
  uint64_t compacted = 0;
  for (int i = 0; i < 120000; ++i) {
    if (i % 10000 == 0) {
      const uint64_t sizes[] = {20, 60, 400, 3000, 30000};
      value_bytes = sizes[Random(5)];
    }
    const std::string key = absl::StrCat("key", Random(20000));
    const uint64_t rng = Random(100);
    if (rng < 45) {
      Put(key, value_bytes);
    } else if (rng < 60) {
      Delete(key);
    } else {
      Get(key);
    }
    if (Random(3) == 0) table_->GrowStep(TestTime(now_));
    if (Random(3) == 0) compacted += table_->CompactStep(TestTime(now_));
    if (Random(20000) == 0) Flush();
    if (Random(4000) == 0) KeepMap();
    if (HasFatalFailure()) return;
  }
  for (const auto& [key, stored] : model_) {
    ASSERT_EQ(index::Get(maps_[0], memory_.data(), key).value, stored.value);
  }
  const Table::Stats stats = table_->stats();
  EXPECT_EQ(stats.keys, model_.size());
  // The test is void unless all of these have occurred.
  EXPECT_GT(refused_, 0u);
  EXPECT_EQ(stats.chains_full, 0u);
  EXPECT_GT(compacted, 0u);
  EXPECT_GT(stats.splits, 2u);
  for (const auto& [key, stored] : model_) {
    ASSERT_TRUE(table_->Delete(key, {}, TestTime(++now_)).status.ok());
  }
  EXPECT_EQ(table_->stats().item_bytes, 0u);
  EXPECT_EQ(table_->stats().overflow_lines, 0u);
}

INSTANTIATE_TEST_SUITE_P(Seeds, PressureTest,
                         testing::Range(uint64_t{1}, uint64_t{1 + 8 / kVolumeParts}));

}  // namespace
}  // namespace osprey::index
