// Scans find every key during any writes. No bytes lead outside the region, or into an endless
// loop.

#include "index/reader/scan.h"

#include <algorithm>
#include <cstring>
#include <iostream>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "index/layout/test_hooks.h"
#include "index/segments/line_editor.h"
#include "index/space/region_writer.h"
#include "index/writer/table.h"
#include "tests/index/index_test_util.h"
#include "tests/support/volume.h"

namespace osprey::index {
namespace {

struct ScanFixture {
  explicit ScanFixture(uint64_t region_bytes, TableOptions options = {}) : memory(region_bytes) {
    options.incarnation = kTestIncarnation;
    options.hash_seed = kTestSeed;
    table = *Table::Create(memory.span(), options);
  }
  WriteResult Put(absl::string_view key, absl::string_view value) {
    return table->Put(key, BytesOf(value), {}, TestTime(++now));
  }
  void Fill(uint64_t keys) {
    for (uint64_t i = 0; i < keys; ++i) {
      const std::string key = absl::StrCat(i % 3 == 0 ? "moon" : "planet", i);
      const uint64_t bytes = i % 1000 == 0 ? 100000 : i % 50 == 0 ? 3000 : i % 200;
      values[key] = absl::StrCat(key, "#", std::string(bytes, 'v'));
      ASSERT_TRUE(Put(key, values[key]).status.ok()) << i;
      while (table->GrowStep(TestTime(++now))) {
      }
    }
  }
  DirectoryCache Map() const { return MapOf(memory); }

  RegionMemory memory;
  std::unique_ptr<Table> table;
  int64_t now = 0;
  std::map<std::string, std::string> values;
};

std::vector<std::byte> ReadAll(const std::byte* region, const Scan::Step& step) {
  std::vector<std::byte> bytes;
  for (const ReadSpan& span : step.reads) {
    const std::byte* const from = region + span.offset;
    bytes.insert(bytes.end(), from, from + span.length);
  }
  return bytes;
}

struct ScanResult {
  Scan::Kind kind = Scan::Kind::kRead;
  std::vector<ScanEntry> entries;
  uint64_t count = 0;
  ScanCursor cursor;
  int steps = 0;
};
ScanResult RunScan(DirectoryCache& map, const std::byte* region, ScanCursor from,
                   const ScanOptions& options) {
  Scan scan(map, from, options);
  ScanResult result;
  Scan::Step step = scan.Start();
  for (; step.kind == Scan::Kind::kRead; ++result.steps) {
    EXPECT_LE(step.reads.size(), kScanReadsMax);
    EXPECT_LE(step.bytes, kScanBytesMax);
    const std::vector<std::byte> bytes = ReadAll(region, step);
    EXPECT_EQ(bytes.size(), step.bytes);
    step = scan.Resume(bytes);
  }
  result.kind = step.kind;
  result.entries = std::move(scan.entries());
  result.count = scan.count();
  result.cursor = scan.cursor();
  return result;
}

// --- A quiet table -------------------------------------------------------------------------------

TEST(ScanTest, EveryKeyOfAQuietTableIsFoundOnceWithItsValue) {
  ScanFixture f(128 << 20);
  f.Fill(50000);
  EXPECT_GT(f.table->stats().segments, 8u);
  DirectoryCache map = f.Map();
  for (const bool want_values : {false, true}) {
    ScanOptions options;
    options.want_values = want_values;
    const ScanResult result = RunScan(map, f.memory.data(), {}, options);
    EXPECT_EQ(result.kind, Scan::Kind::kDone);
    EXPECT_TRUE(result.cursor.at_end());
    EXPECT_EQ(result.count, f.values.size());
    std::set<std::string> keys;
    uint64_t with_value = 0;
    for (const ScanEntry& entry : result.entries) {
      EXPECT_TRUE(keys.insert(entry.key).second) << entry.key << " twice";
      ASSERT_EQ(f.values.count(entry.key), 1u) << entry.key;
      EXPECT_EQ(entry.value_length, f.values[entry.key].size());
      EXPECT_EQ(entry.version, f.table->Find(entry.key)->version);
      if (!entry.has_value) continue;
      ++with_value;
      EXPECT_EQ(entry.value, f.values[entry.key]);
    }
    EXPECT_EQ(keys.size(), f.values.size());
    EXPECT_EQ(with_value, want_values ? f.values.size() - 50 : 0u) << "all but the longest";
  }
}

TEST(ScanTest, AMapOfAnyAgeWillDo) {
  ScanFixture f(64 << 20);
  DirectoryCache map = f.Map();
  f.Fill(20000);
  const ScanResult result = RunScan(map, f.memory.data(), {}, {});
  EXPECT_EQ(result.kind, Scan::Kind::kDone);
  EXPECT_EQ(result.count, f.values.size());
}

TEST(ScanTest, PrefixAndLimitAndGoingOnFromTheCursorFindAll) {
  ScanFixture f(64 << 20);
  f.Fill(20000);
  DirectoryCache map = f.Map();
  for (const uint64_t limit : {1, 2, 3, 10, 1000}) {
    ScanOptions options;
    options.prefix = "moon1";
    options.entries_max = limit;
    std::set<std::string> keys;
    ScanCursor cursor;
    int pages = 0;
    for (; !cursor.at_end(); ++pages) {
      const ScanResult result = RunScan(map, f.memory.data(), cursor, options);
      ASSERT_EQ(result.kind, Scan::Kind::kDone);
      ASSERT_TRUE(result.entries.size() == limit || result.cursor.at_end());
      ASSERT_LE(result.entries.size(), limit);
      for (const ScanEntry& entry : result.entries) {
        EXPECT_TRUE(keys.insert(entry.key).second) << entry.key << " twice";
        EXPECT_EQ(entry.key.substr(0, 5), "moon1");
      }
      cursor = result.cursor;
    }
    EXPECT_GT(pages, 1);
    const auto wanted = [](const auto& item) { return item.first.substr(0, 5) == "moon1"; };
    EXPECT_EQ(keys.size(),
              static_cast<size_t>(std::count_if(f.values.begin(), f.values.end(), wanted)));
  }
}

// Homes are divided, keys are added and deleted between the pages, and segments split.
TEST(ScanTest, PagesOfAnySizeLoseNoKeyWhileTheTableGrows) {
  for (const uint64_t limit : {1, 2, 5}) {
    ScanFixture f(64 << 20);
    f.Fill(3000);
    DirectoryCache map = f.Map();
    const uint64_t splits = f.table->stats().splits;
    ScanOptions options;
    options.entries_max = limit;
    std::set<std::string> found;
    ScanCursor cursor;
    const std::map<std::string, std::string> throughout = f.values;
    int pages = 0;
    for (; !cursor.at_end(); ++pages) {
      ASSERT_LT(pages, 100'000);
      const ScanResult result = RunScan(map, f.memory.data(), cursor, options);
      ASSERT_EQ(result.kind, Scan::Kind::kDone);
      ASSERT_LE(result.entries.size(), limit);
      for (const ScanEntry& entry : result.entries) found.insert(entry.key);
      cursor = result.cursor;
      for (uint64_t i = 0; i < limit; ++i) {
        const std::string comet = absl::StrCat("comet", pages, "-", i);
        ASSERT_TRUE(f.Put(comet, "ice").status.ok());
        if (pages % 3 == 0) (void)f.table->Delete(comet, {}, TestTime(++f.now));
      }
      while (f.table->GrowStep(TestTime(++f.now))) {
      }
    }
    EXPECT_GT(f.table->stats().splits, splits);
    for (const auto& [key, value] : throughout) EXPECT_EQ(found.count(key), 1u) << key;
  }
}

TEST(ScanTest, AFewKeysOfALargeTableTakeFewBytes) {
  ScanFixture f(64 << 20);
  f.Fill(20000);
  DirectoryCache map = f.Map();
  ScanOptions options;
  options.entries_max = 10;
  const ScanResult result = RunScan(map, f.memory.data(), {}, options);
  EXPECT_LE(result.steps, 8);
  EXPECT_EQ(result.entries.size(), 10u);
}

TEST(ScanTest, CountCountsWithoutReadingItems) {
  ScanFixture f(64 << 20);
  f.Fill(20000);
  DirectoryCache map = f.Map();
  ScanOptions options;
  options.count_only = true;
  const ScanResult result = RunScan(map, f.memory.data(), {}, options);
  EXPECT_EQ(result.kind, Scan::Kind::kDone);
  EXPECT_EQ(result.count, f.values.size());
  EXPECT_TRUE(result.entries.empty());
  EXPECT_LE(result.steps, static_cast<int>(3 * f.table->stats().segments));
}

TEST(ScanTest, ChainsAreFollowed) {
  ScanFixture f(1 << 20);
  const std::vector<std::string> keys = KeysOfHome(100, 80, false);
  for (const std::string& key : keys)
    ASSERT_TRUE(f.Put(key, std::string(100, 'v')).status.ok());  // and no GrowStep
  EXPECT_GT(f.table->stats().chained_inserts, 10u);
  DirectoryCache map = f.Map();
  const ScanResult result = RunScan(map, f.memory.data(), {}, {});
  EXPECT_EQ(result.count, keys.size());
  ScanOptions options;
  options.count_only = true;
  EXPECT_EQ(RunScan(map, f.memory.data(), {}, options).count, keys.size());
}

TEST(ScanTest, KeysOfEveryLengthAreFound) {
  ScanFixture f(16 << 20);
  std::set<std::string> keys;
  for (uint64_t length = 1; length <= kKeyBytesMax; length += 1 + length / 10) {
    for (const uint64_t value : {0, 900, 5000, 100000}) {
      keys.insert(std::string(length - 1, 'k') + static_cast<char>('a' + value % 26));
      ASSERT_TRUE(
          f.Put(*keys.insert(std::string(length, static_cast<char>('A' + value % 26))).first,
                std::string(value, 'v'))
              .status.ok());
    }
  }
  for (const std::string& key : keys) ASSERT_TRUE(f.Put(key, std::string(2000, 'v')).status.ok());
  DirectoryCache map = f.Map();
  const ScanResult result = RunScan(map, f.memory.data(), {}, {});
  EXPECT_EQ(result.kind, Scan::Kind::kDone);
  std::set<std::string> found;
  for (const ScanEntry& entry : result.entries) found.insert(entry.key);
  EXPECT_EQ(found, keys);
}

// --- A busy table --------------------------------------------------------------------------------

// A writer, and a scan that runs between any two of its stores: READs are copied in pieces, in any
// order. There are few homes, so that there are chains, and growth, so that segments split during
// the scan.
class BusyTable : public StoreObserver {
 public:
  explicit BusyTable(uint64_t seed) : random_(seed), grows_(seed % 3 == 0), memory_(kRegionBytes) {
    TableOptions options;
    options.incarnation = kTestIncarnation;
    options.hash_seed = kTestSeed;
    options.reuse_grace = seed % 2 == 0 ? absl::ZeroDuration() : absl::Seconds(1000);
    options.split_percent = 0;
    table_ = *Table::Create(memory_.span(), options);
    for (const uint32_t home : {20, 21, 22, 254}) {
      const std::vector<std::string>& pool = Pool(home);
      const size_t first = Random(pool.size() - 60);
      for (size_t i = 0; i < 60; ++i) (i < 20 ? permanent_ : transient_).push_back(pool[first + i]);
    }
    // The permanent keys last: they go to the chains, and move back when others are deleted.
    for (const std::string& key : transient_) Put(key);
    for (const std::string& key : permanent_) {
      Put(key);
      if (!table_->Find(key).ok()) wrong_ = "the region is too small for the test";
    }
    known_.insert(permanent_.begin(), permanent_.end());
    known_.insert(transient_.begin(), transient_.end());
    map_ = std::make_unique<DirectoryCache>(kTestIncarnation, kRegionBytes);
    FillMap(*map_, memory_.data());
    store_observer = this;
    compaction_forced = seed % 4 == 1;
    merging_forced = low_runs_forced = grows_ && seed % 2 == 0;
  }
  ~BusyTable() override {
    store_observer = nullptr;
    compaction_forced = false;
    merging_forced = low_runs_forced = false;
  }

  // The error, or "".
  std::string Run(int writes) {
    for (int i = 0; i < writes && wrong_.empty(); ++i) {
      ++now_;
      switch (Random(6)) {
        case 0:
        case 1:
          (void)table_->Delete(transient_[Random(transient_.size())], {}, TestTime(now_));
          break;
        case 2:
        case 3:
          Put(transient_[Random(transient_.size())]);
          break;
        default:
          Put(permanent_[Random(permanent_.size())]);
      }
      const CompactionBound bound{1 + Random(4), uint64_t{64} << Random(7)};
      if (compaction_forced && Random(4) == 0) (void)table_->CompactStep(TestTime(now_), bound);
      if (grows_ && Random(300) == 0) table_->GrowStep(TestTime(now_));
    }
    return wrong_;
  }

  void BeforeStore() override {
    const uint64_t rng = Random(100);
    uint64_t pieces = 0;
    if (rng >= 80) pieces = 1 + Random(4);
    if (rng >= 94) pieces = Random(60);
    if (rng >= 99) pieces = Random(400);
    while (pieces-- > 0 && wrong_.empty()) Advance();
  }

  uint64_t scans = 0;
  uint64_t entries = 0;
  uint64_t give_ups = 0;
  uint64_t steps = 0;
  Table::Stats stats() const { return table_->stats(); }

 private:
  static constexpr uint64_t kRegionBytes = 2 << 20;
  struct Piece {
    uint64_t to;
    uint64_t from;
    uint64_t bytes;
  };

  static const std::vector<std::string>& Pool(uint32_t home) {
    static std::map<uint32_t, std::vector<std::string>> pools;
    std::vector<std::string>& pool = pools[home];
    if (pool.empty()) pool = KeysOfHome(home, 200, false);
    return pool;
  }
  uint64_t Random(uint64_t below) { return random_() % below; }

  void Put(const std::string& key) {
    const uint64_t sizes[] = {0, 20, 100, 400, 2000};
    std::string value = absl::StrCat(key, "#", ++writes_, "#");
    value.resize(value.size() + sizes[Random(5)], 'v');
    // If a chain is full, transient keys are not written.
    const WriteResult result = table_->Put(key, BytesOf(value), {}, TestTime(now_));
    if (!result.status.ok() && table_->Find(key).ok()) {
      wrong_ = absl::StrCat("the region is too small for the test: ", result.status.ToString());
    }
  }

  void Advance() {
    if (scan_ == nullptr) return Begin();
    if (!pieces_.empty()) {
      const Piece piece = pieces_.back();
      pieces_.pop_back();
      std::memcpy(bytes_.data() + piece.to, memory_.data() + piece.from, piece.bytes);
      return;
    }
    step_ = scan_->Resume(bytes_);
    Follow();
  }

  void Begin() {
    if (cursor_.at_end()) cursor_ = ScanCursor();
    options_ = ScanOptions();
    options_.want_values = Random(2) == 0;
    if (Random(8) == 0) options_.entries_max = 1 + Random(100);
    scan_ = std::make_unique<Scan>(*map_, cursor_, options_);
    step_ = scan_->Start();
    Follow();
  }

  void Follow() {
    ++steps;
    if (step_.kind == Scan::Kind::kRead) return Post();
    for (const ScanEntry& entry : scan_->entries()) Check(entry);
    if (step_.kind == Scan::Kind::kGiveUp) ++give_ups;
    cursor_ = scan_->cursor();
    scan_.reset();
    if (!cursor_.at_end()) return;
    ++scans;
    for (const std::string& key : permanent_) {
      if (found_.count(key) == 0) wrong_ = absl::StrCat(key, " was there and was not found");
    }
    found_.clear();
  }

  void Check(const ScanEntry& entry) {
    ++entries;
    found_.insert(entry.key);
    if (known_.count(entry.key) == 0) wrong_ = absl::StrCat(entry.key, " was never there");
    if (!entry.has_value) return;
    const std::string begin = entry.key + "#";
    if (entry.value.compare(0, begin.size(), begin) != 0)
      wrong_ = absl::StrCat(entry.key, " has the value ", entry.value);
  }

  void Post() {
    bytes_.assign(step_.bytes, std::byte{0});
    pieces_.clear();
    const uint64_t grains[] = {8, 64, 128, 1024};
    const uint64_t grain = grains[Random(4)];
    uint64_t to = 0;
    for (const ReadSpan& span : step_.reads) {
      if (span.offset > kRegionBytes || span.length > kRegionBytes - span.offset) {
        wrong_ = "a READ outside the region";
        return;
      }
      for (uint64_t at = 0; at < span.length; at += grain)
        pieces_.push_back({to + at, span.offset + at, std::min(grain, span.length - at)});
      to += span.length;
    }
    if (Random(2) == 0) std::shuffle(pieces_.begin(), pieces_.end(), random_);
  }

  std::mt19937_64 random_;
  const bool grows_;  // if false, chains stay
  RegionMemory memory_;
  std::unique_ptr<Table> table_;
  std::unique_ptr<DirectoryCache> map_;
  std::vector<std::string> permanent_;
  std::vector<std::string> transient_;
  std::set<std::string> known_;
  std::set<std::string> found_;
  std::unique_ptr<Scan> scan_;
  ScanOptions options_;
  ScanCursor cursor_;
  Scan::Step step_;
  std::vector<std::byte> bytes_;
  std::vector<Piece> pieces_;
  std::string wrong_;
  int64_t now_ = 0;
  uint64_t writes_ = 0;
};

TEST(ScanTest, AKeyThatIsThereThroughoutIsFoundBetweenAnyTwoStores) {
  uint64_t scans = 0, entries = 0, give_ups = 0, steps = 0, splits = 0, chained = 0, moved = 0;
  uint64_t merges = 0;
  for (uint64_t seed = 1; seed <= 60 / kVolumeParts; ++seed) {
    BusyTable table(seed);
    ASSERT_EQ(table.Run(1500), "") << "seed " << seed;
    scans += table.scans;
    entries += table.entries;
    give_ups += table.give_ups;
    steps += table.steps;
    splits += table.stats().splits;
    merges += table.stats().merges;
    chained += table.stats().chained_inserts;
    moved += table.stats().compaction_items;
  }
  std::cout << "scans " << scans << " entries " << entries << " gave up " << give_ups << " steps "
            << steps << " splits " << splits << " merges " << merges << " chained " << chained
            << " moved " << moved << "\n";
  EXPECT_GT(scans, 1000u / kVolumeParts);
  EXPECT_GT(splits, 20u / kVolumeParts);
  EXPECT_GT(merges, 10u / kVolumeParts);
  EXPECT_GT(moved, 100u / kVolumeParts);
  EXPECT_GT(chained, 1000u / kVolumeParts);
  EXPECT_LT(give_ups, scans / 2);
}

// The head of an item, which has no checksum of its own, copied while the item is written in place.
// Its version is from before the write, its value's length from after it.
TEST(ScanTest, LengthAndVersionOfALongItemAreOfOneWrite) {
  ScanFixture f(1 << 20);
  const WriteResult first = f.Put("key", std::string(1100, 'a'));
  DirectoryCache map = f.Map();
  Scan scan(map, {}, {});
  Scan::Step step = scan.Start();
  step = scan.Resume(ReadAll(f.memory.data(), step));  // lines
  ASSERT_EQ(step.reads.size(), 1u);
  ASSERT_EQ(step.reads[0].offset, Slot::Unpack(first.slot).offset);
  std::vector<std::byte> head = ReadAll(f.memory.data(), step);
  const WriteResult second = f.Put("key", std::string(900, 'b'));
  ASSERT_EQ(second.slot, first.slot);
  ASSERT_EQ(f.table->stats().in_place_updates, 1u);
  std::memcpy(head.data() + offsetof(ItemHeader, length_word),
              f.memory.data() + step.reads[0].offset + offsetof(ItemHeader, length_word),
              sizeof(uint64_t));
  step = scan.Resume(head);
  while (step.kind == Scan::Kind::kRead) step = scan.Resume(ReadAll(f.memory.data(), step));
  ASSERT_EQ(step.kind, Scan::Kind::kDone);
  ASSERT_EQ(scan.entries().size(), 1u);
  EXPECT_EQ(scan.entries()[0].value_length, 900u);
  EXPECT_EQ(scan.entries()[0].version, second.version);
}

void ExpectFound(Mutant mutant) {
  if (kVolumeParts > 1) GTEST_SKIP() << "what is missed is the same there, only slower";
  active_mutant = mutant;
  std::string wrong;
  uint64_t seed = 0;
  while (++seed <= 500 && wrong.empty()) wrong = BusyTable(seed).Run(1500);
  active_mutant = Mutant::kNone;
  EXPECT_NE(wrong, "");
  std::cout << "seed " << seed - 1 << ": " << wrong << "\n";
}

TEST(ScanTest, WithoutTheConfirmationKeysWouldBeMissed) { ExpectFound(Mutant::kScanNotConfirmed); }

TEST(ScanTest, CursorWithoutItsDepthWouldMissKeysOfMergedSegments) {
  ExpectFound(Mutant::kMergeMissedByCursor);
}

// --- Hostile bytes -------------------------------------------------------------------------------

TEST(ScanTest, NothingThatLinesHoldLeadsOutsideOrOnForever) {
  constexpr uint64_t kBytes = 512 << 10;
  std::mt19937_64 random(7);
  uint64_t kinds[3] = {};
  for (int round = 0; round < 2000; ++round) {
    ScanFixture f(kBytes);
    for (int i = 0; i < 20; ++i) f.Put(absl::StrCat("key", i), std::string(random() % 300, 'v'));
    RegionWriter writer(f.memory.span(), kTestIncarnation, uint64_t{1} << 20);
    for (int edits = 0; edits < 20; ++edits) {
      const uint64_t offset = UnitsOffset(kBytes) + random() % kLinesPerUnit * kLineBytes;
      Line line = LineAt(writer, offset);
      const uint64_t anywhere = random() % 3 == 0 ? random() : random() % kBytes;
      uint64_t& word = line.words[random() % kLineWords];
      switch (random() % 4) {
        case 0:
          word = random();
          break;
        case 1:
          word = Slot{anywhere & kOffsetMask, static_cast<uint32_t>(random() % 256),
                      static_cast<uint32_t>(random() % 65536)}
                     .Pack();
          break;
        case 2:
          line.words[kLinkWord] = PackLink(anywhere & kOffsetMask);
          break;
        case 3:
          line.words[kLinkWord] = PackLink(UnitsOffset(kBytes) + random() % 256 * kLineBytes);
          break;
      }
      writer.NextCasVersion();
      writer.WriteRecord(
          offset, writer.NextRecordVersion(offset), line.record.tag,
          ByteSpan(reinterpret_cast<const std::byte*>(line.words), sizeof(line.words)));
    }
    DirectoryCache map = f.Map();
    ScanOptions options;
    options.want_values = random() % 2 == 0;
    options.count_only = random() % 3 == 0;
    Scan scan(map, {}, options);
    Scan::Step step = scan.Start();
    for (int reads = 0; step.kind == Scan::Kind::kRead; ++reads) {
      ASSERT_LT(reads, 5000);
      for (const ReadSpan& span : step.reads) {
        ASSERT_LE(span.length, kBytes);
        ASSERT_LE(span.offset, kBytes - span.length);
      }
      step = scan.Resume(ReadAll(f.memory.data(), step));
    }
    ++kinds[static_cast<int>(step.kind)];
  }
  EXPECT_GT(kinds[static_cast<int>(Scan::Kind::kGiveUp)], 100u);
}

}  // namespace
}  // namespace osprey::index
