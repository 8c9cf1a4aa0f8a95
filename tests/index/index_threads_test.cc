// Readers on other cores while the writer writes. Nothing is scripted: the hardware interleaves.
// Under ThreadSanitizer it also shows that all concurrent accesses are atomic.

#include <atomic>
#include <functional>
#include <iostream>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "gtest/gtest.h"
#include "index/reader/lookup.h"
#include "index/writer/table.h"
#include "tests/index/index_test_util.h"

namespace osprey::index {
namespace {

constexpr uint64_t kBytes = 512 << 10;
constexpr int kKeys = 40;
constexpr int kReaders = 2;
const absl::Duration kFor = absl::Seconds(2);

// Key, counter and a tail that depends on the counter, in one of several lengths.
std::string ValueOf(const std::string& key, uint64_t counter) {
  const size_t lengths[] = {0, 30, 100, 700, 2000};
  return absl::StrCat(key, "/", counter, "/",
                      std::string(lengths[counter % 5], static_cast<char>('a' + counter % 26)));
}

struct Shared {
  std::atomic<uint64_t> begun{0};  // counters of a key's writes
  std::atomic<uint64_t> completed{0};
};

struct ReaderCounts {
  uint64_t hits = 0;
  uint64_t misses = 0;
  uint64_t torn = 0;
  uint64_t asked = 0;
};

// Even keys are always present; odd ones are deleted at times.
bool MayBeAbsent(int key) { return key % 2 == 1; }

void ReadLoop(const std::byte* region, const std::vector<std::string>& keys,
              std::vector<Shared>& shared, const std::atomic<bool>& stop, uint64_t seed,
              ReaderCounts& counts) {
  std::mt19937_64 random(seed);
  DirectoryCache map(kTestIncarnation, kBytes);
  FillMap(map, region);
  std::vector<uint64_t> hints(keys.size());
  std::vector<uint64_t> seen(keys.size());
  while (!stop.load(std::memory_order_relaxed)) {
    const size_t k = random() % keys.size();
    const uint64_t floor = std::max(seen[k], shared[k].completed.load(std::memory_order_acquire));
    const GetResult got = Get(map, region, keys[k], random() % 2 == 0 ? hints[k] : 0);
    const uint64_t ceiling = shared[k].begun.load(std::memory_order_acquire);
    counts.torn += got.counters.torn;
    if (got.kind == Lookup::Kind::kAskServer) {
      ++counts.asked;
    } else if (got.kind == Lookup::Kind::kMiss) {
      ++counts.misses;
      ASSERT_TRUE(MayBeAbsent(static_cast<int>(k))) << keys[k] << " was always there";
    } else {
      ++counts.hits;
      const std::vector<std::string> parts = absl::StrSplit(got.value, '/');
      uint64_t counter = 0;
      ASSERT_EQ(parts.size(), 3u);
      ASSERT_TRUE(absl::SimpleAtoi(parts[1], &counter));
      ASSERT_EQ(got.value, ValueOf(keys[k], counter));
      ASSERT_GE(counter, floor);
      ASSERT_LE(counter, ceiling);
      seen[k] = counter;
      hints[k] = got.slot;
    }
  }
}

// Readers of forty keys of one home, and the writer of them. `before_each` does additional work.
class BesideReaders {
 public:
  explicit BesideReaders(uint64_t seed) : random_(seed) {
    TableOptions options;
    options.incarnation = kTestIncarnation;
    options.hash_seed = kTestSeed;
    options.reuse_grace = absl::ZeroDuration();
    table_ = *Table::Create(memory_.span(), options);
    for (int k = 0; k < kKeys; ++k) {
      shared_[k].begun = shared_[k].completed = 1;
      EXPECT_TRUE(Put(keys_[k], ValueOf(keys_[k], 1)));
    }
  }
  Table& table() { return *table_; }
  std::mt19937_64& random() { return random_; }

  // Runs for kFor, and longer until compaction has moved `items_moved`, but at most ten times as
  // long. Until the key is stored, it calls `make_room`, if given.
  void Run(const std::function<void(uint64_t write)>& before_each,
           const std::function<void()>& make_room, uint64_t items_moved = 0) {
    std::atomic<bool> stop{false};
    std::vector<ReaderCounts> counts(kReaders);
    std::vector<std::thread> readers;
    for (int r = 0; r < kReaders; ++r) {
      readers.emplace_back(
          [&, r] { ReadLoop(memory_.data(), keys_, shared_, stop, 100 + r, counts[r]); });
    }
    uint64_t writes = 0;
    const absl::Time begin = absl::Now();
    const auto enough = [&] {
      const absl::Duration past = absl::Now() - begin;
      return past > 10 * kFor || (past > kFor && table_->stats().compaction_items >= items_moved);
    };
    while (writes % 64 != 0 || !enough()) {
      if (before_each) before_each(writes);
      WriteOne(make_room);
      ++writes;
    }
    stop = true;
    ReaderCounts all;
    for (int r = 0; r < kReaders; ++r) {
      readers[r].join();
      all.hits += counts[r].hits;
      all.misses += counts[r].misses;
      all.torn += counts[r].torn;
      all.asked += counts[r].asked;
    }
    std::cout << "writes " << writes << " moved " << table_->stats().compaction_items << " hits "
              << all.hits << " misses " << all.misses << " torn " << all.torn << " asked "
              << all.asked << "\n";
    EXPECT_GT(all.hits, 1000u);
    EXPECT_GT(all.misses, 100u);
  }
  bool Put(absl::string_view key, absl::string_view value) {
    return table_->Put(key, BytesOf(value), {}, TestTime(0)).status.ok();
  }

 private:
  void WriteOne(const std::function<void()>& make_room) {
    const int k = static_cast<int>(random_() % kKeys);
    const uint64_t counter = shared_[k].begun.load(std::memory_order_relaxed) + 1;
    shared_[k].begun.store(counter, std::memory_order_release);
    if (MayBeAbsent(k) && random_() % 3 == 0) {
      table_->Delete(keys_[k], {}, TestTime(0));
      return;
    }
    const std::string value = ValueOf(keys_[k], counter);
    bool stored = Put(keys_[k], value);
    for (int i = 0; i < 1000 && !stored && make_room; ++i) {
      make_room();
      stored = Put(keys_[k], value);
    }
    ASSERT_TRUE(stored);
    shared_[k].completed.store(counter, std::memory_order_release);
  }

  std::mt19937_64 random_;
  RegionMemory memory_{kBytes};
  std::unique_ptr<Table> table_;
  const std::vector<std::string> keys_ = KeysOfHome(77, kKeys, false);
  std::vector<Shared> shared_{kKeys};
};

TEST(ThreadsTest, ReadersBesideAWriterSeeOnlyWhatWasThere) {
  BesideReaders beside(1);
  beside.Run(nullptr, nullptr);
}

// A region that is always full, with changing sizes: compaction moves the readers' items all the
// time.
TEST(ThreadsTest, ReadersBesideCompactionSeeOnlyWhatWasThere) {
  constexpr uint64_t kItemsMoved = 100;
  BesideReaders beside(2);
  const auto filler = [&] { return absl::StrCat("filler", beside.random()() % 100); };
  beside.Run(
      [&](uint64_t write) {
        beside.Put(filler(), std::string(uint64_t{500} << write / 2000 % 7, 'f'));
        beside.table().CompactStep(TestTime(0), {4, 2000});
      },
      [&] { beside.table().Delete(filler(), {}, TestTime(0)); }, kItemsMoved);
  EXPECT_GE(beside.table().stats().compaction_items, kItemsMoved);
}

// A table that grows from empty, segment by segment, under readers whose maps keep becoming old.
TEST(ThreadsTest, ReadersBesideAGrowingTableFindEveryKeyThatWasStored) {
  constexpr uint64_t kGrowingBytes = 32 << 20;
  constexpr uint64_t kGrowingKeys = 60000;
  RegionMemory memory(kGrowingBytes);
  TableOptions options;
  options.incarnation = kTestIncarnation;
  options.hash_seed = kTestSeed;
  options.split_percent = 30;
  std::unique_ptr<Table> table = *Table::Create(memory.span(), options);
  const auto key_of = [](uint64_t i) { return absl::StrCat("growing", i); };
  const auto value_of = [](uint64_t i) { return std::string(i % 2 == 0 ? 8 : 60, 'a' + i % 26); };
  std::atomic<uint64_t> stored{0};
  std::atomic<bool> stop{false};
  std::atomic<uint64_t> gets{0};
  std::atomic<uint64_t> asked{0};
  std::vector<std::thread> readers;
  for (int r = 0; r < kReaders; ++r) {
    readers.emplace_back([&, r] {
      std::mt19937_64 random(r);
      DirectoryCache first(kTestIncarnation, kGrowingBytes);
      FillMap(first, memory.data());
      DirectoryCache map = first;
      while (!stop.load(std::memory_order_relaxed)) {
        const uint64_t known = stored.load(std::memory_order_acquire);
        if (known == 0) continue;
        if (random() % 1000 == 0) map = first;
        const uint64_t i = random() % known;
        const GetResult got = Get(map, memory.data(), key_of(i));
        const GetResult absent = Get(map, memory.data(), key_of(kGrowingKeys + i));
        asked += (got.kind == Lookup::Kind::kAskServer) + (absent.kind == Lookup::Kind::kAskServer);
        ASSERT_NE(got.kind, Lookup::Kind::kMiss) << i << " of " << known;
        ASSERT_NE(absent.kind, Lookup::Kind::kHit);
        if (got.kind == Lookup::Kind::kHit) {
          ASSERT_EQ(got.value, value_of(i));
        }
        ++gets;
      }
    });
  }
  for (uint64_t i = 0; i < kGrowingKeys; ++i) {
    const std::string value = value_of(i);
    ASSERT_TRUE(table->Put(key_of(i), BytesOf(value), {}, TestTime(0)).status.ok());
    stored.store(i + 1, std::memory_order_release);
    table->GrowStep(TestTime(0));
  }
  stop = true;
  for (std::thread& reader : readers) reader.join();
  std::cout << "gets " << gets << " asked " << asked << " splits " << table->stats().splits << "\n";
  EXPECT_GT(table->stats().splits, 50u);
  EXPECT_GT(gets, 1000u);
  EXPECT_LT(asked, gets / 10);
}

}  // namespace
}  // namespace osprey::index
