// What a table holds after it held something else, beside what a fresh one holds; how much of its
// free space long values can use; what pairs take beside their bytes; what growth and expiry cost.
// One line of JSON for each figure.
//
//   bazel run //tests/benchmarks:memory_benchmark -- --region_mib=256
//
// The table is filled until it refuses three times in a row. As in a server, there is a step of growth
// and compaction after each write, and all steps of the next seconds after a refusal. Then all keys are
// flushed, or nine in ten deleted, and it is filled again with values of another length.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/time.h"
#include "gflags/gflags.h"
#include "index/writer/table.h"
#include "tests/index/index_test_util.h"

DEFINE_uint64(region_mib, 256, "The region's size.");
DEFINE_uint64(keys, 1'000'000, "How many keys expire, and to how many a table grows.");

namespace osprey::index {
namespace {

constexpr uint64_t kKept = 10;  // one key in so many stays, where keys are deleted one by one

double CpuSeconds() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) / 1e9;
}

std::unique_ptr<Table> NewTable(
    RegionMemory& memory, std::function<absl::Time()> clock = [] { return TestTime(0); }) {
  TableOptions options;
  options.clock = std::move(clock);
  options.incarnation = kTestIncarnation;
  options.hash_seed = kTestSeed;
  return *Table::Create(memory.span(), options);
}

// Ends the program, since it is a benchmark.
void Must(const WriteResult& result) {
  if (result.status.ok()) return;
  std::fprintf(stderr, "memory_benchmark: %s\n", result.status.ToString().c_str());
  std::exit(1);
}

void Grow(Table& table) {
  while (table.GrowthWanted() && table.GrowStep(TestTime(0))) {
  }
}

class Subject {
 public:
  Subject() : memory_(FLAGS_region_mib << 20), table_(NewTable(memory_)) {}

  // Returns the bytes of keys and values stored.
  uint64_t Fill(uint64_t value_bytes) {
    uint64_t bytes = 0;
    for (int refused = 0; refused < 3;) {
      if (Put(next_, value_bytes)) {
        bytes += Key(next_++).size() + value_bytes;
        refused = 0;
      } else {
        ++refused;
        Settle();
      }
    }
    return bytes;
  }
  // Stores the keys that DeleteMost keeps.
  void FillKept(uint64_t count, uint64_t value_bytes) {
    for (uint64_t i = 0; i < count; i += kKept) Put(i, value_bytes);
    next_ = count;
    Settle();
  }
  void Flush() {
    uint64_t cursor = 0;
    do {
      cursor = table_->FlushStep(cursor, kCasVersionMax, kFlushKeysMax, Now())->cursor;
      Step();
    } while (cursor != 0);
  }
  void DeleteMost() {
    for (uint64_t i = 0; i < next_; ++i) {
      if (i % kKept == 0) continue;
      (void)table_->Delete(Key(i), {}, Now());
      Step();
    }
  }
  // All steps of five seconds. Returns their CPU time.
  double Settle() {
    const double begin = CpuSeconds();
    for (int i = 0; i < 50; ++i) {
      now_ += absl::Milliseconds(100);
      for (int steps = 0; steps < 100'000 && Step(); ++steps) {
      }
    }
    return CpuSeconds() - begin;
  }
  uint64_t filled() const { return next_; }
  // Of item space: a sixteenth of the region is the index's at least.
  uint64_t FreeBytes() const {
    const Table::Stats stats = table_->stats();
    return stats.region_bytes - std::max(stats.index_bytes, stats.region_bytes / 16) -
           stats.item_bytes;
  }

 private:
  static std::string Key(uint64_t i) { return absl::StrCat("key-", 100'000'000 + i); }
  absl::Time Now() { return now_ += absl::Microseconds(3); }
  bool Put(uint64_t i, uint64_t value_bytes) {
    const bool stored =
        table_->Put(Key(i), BytesOf(std::string(value_bytes, 'v')), {}, Now()).status.ok();
    Step();
    return stored;
  }
  bool Step() {
    const bool grows = table_->GrowStep(Now());
    return table_->CompactStep(Now()) || grows;
  }

  RegionMemory memory_;
  std::unique_ptr<Table> table_;
  uint64_t next_ = 0;
  absl::Time now_ = TestTime(0);
};

void Print(const std::string& name, double value, const char* unit) {
  std::printf("{\"name\": \"%s\", \"value\": %.4f, \"unit\": \"%s\"}\n", name.c_str(), value, unit);
  std::fflush(stdout);
}

void MeasureRefills(uint64_t first, uint64_t second) {
  Subject fresh;
  const auto bytes_fresh = static_cast<double>(fresh.Fill(second));
  const std::string name = absl::StrCat(first, " B, ");
  Subject flushed;
  flushed.Fill(first);
  flushed.Flush();
  const double seconds = flushed.Settle();
  Print(absl::StrCat(name, "flush, ", second, " B"), flushed.Fill(second) / bytes_fresh,
        "of fresh");
  Print(absl::StrCat(name, "flush: steps after it"), seconds, "s CPU");

  Subject thinned;
  thinned.Fill(first);
  const uint64_t filled = thinned.filled();
  thinned.DeleteMost();
  const double seconds_thinned = thinned.Settle();
  Subject beside;
  beside.FillKept(filled, first);
  const auto bytes_beside = static_cast<double>(beside.Fill(second));
  Print(absl::StrCat(name, "90 % deleted, ", second, " B"), thinned.Fill(second) / bytes_beside,
        "of fresh");
  Print(absl::StrCat(name, "90 % deleted: steps after it"), seconds_thinned, "s CPU");
}

// Long values after scattered short ones.
void MeasureLong(uint64_t value_bytes) {
  Subject subject;
  subject.Fill(100);
  subject.DeleteMost();
  subject.Settle();
  const auto free_bytes = static_cast<double>(subject.FreeBytes());
  Print(absl::StrCat("100 B, 90 % deleted, values of ", value_bytes >> 20, " MiB"),
        subject.Fill(value_bytes) / free_bytes, "of free bytes");
}

// What pairs take beside keys and values: the mean while their number doubles, in equal ratios. After a
// doubling the index is as full as before.
void MeasurePairs() {
  constexpr int kSamples = 32;
  constexpr uint64_t kKeysLeast = 100'000;
  for (const auto& [key_bytes, value_bytes] : std::vector<std::pair<uint64_t, uint64_t>>{
           {8, 8}, {11, 16}, {16, 16}, {16, 24}, {16, 28}, {16, 40}, {16, 64}, {16, 100}}) {
    RegionMemory memory(uint64_t{128} << 20);
    const std::unique_ptr<Table> table = NewTable(memory);
    const std::string value(value_bytes, 'v');
    double sum = 0;
    for (int sample = 0; sample < kSamples; ++sample) {
      const double keys = kKeysLeast * std::pow(2, static_cast<double>(sample) / kSamples);
      while (table->stats().keys < static_cast<uint64_t>(keys)) {
        const std::string key =
            absl::StrFormat("%0*x", static_cast<int>(key_bytes), table->stats().keys);
        Must(table->Put(key, BytesOf(value), {}, TestTime(0)));
        Grow(*table);
      }
      const TableStats stats = table->stats();
      sum += static_cast<double>(stats.index_bytes + stats.item_space_bytes) / keys;
    }
    Print(absl::StrCat("pairs of ", key_bytes, " + ", value_bytes, " B, beside these"),
          sum / kSamples - static_cast<double>(key_bytes + value_bytes), "B a pair");
  }
}

// Keys that expire all at once, removed by sweeps.
void MeasureExpiry() {
  RegionMemory memory(FLAGS_keys * 128 + (64 << 20));
  absl::Time now = TestTime(0);
  const std::unique_ptr<Table> table = NewTable(memory, [&now] { return now; });
  for (uint64_t i = 0; i < FLAGS_keys; ++i) {
    Must(table->Put(absl::StrCat("key-", i), BytesOf("value"), {}, TestTime(0),
                    Lifetime::For(absl::Seconds(10))));
    Grow(*table);
  }
  now += absl::Seconds(11);
  const double began = CpuSeconds();
  while (table->stats().keys > 0) {
    now += absl::Microseconds(100);
    table->SweepStep(now);
  }
  Print("keys that expire together, removed",
        static_cast<double>(FLAGS_keys) / (CpuSeconds() - began), "keys a second of CPU");
}

// PUTs of new keys, each with the growth that is due after it: the longest, and how fast they are
// while segments split, beside the time between.
struct Growth {
  double longest_us = 0;
  double rate = 0;
};
Growth GrowOnce() {
  constexpr uint64_t kKeysFirst = 100'000;
  constexpr uint64_t kWindow = 10'000;
  RegionMemory memory(FLAGS_keys * 256 + (64 << 20));
  const std::unique_ptr<Table> table = NewTable(memory);
  const std::string value(100, 'v');
  Growth growth;
  double split_s = 0, split_keys = 0, other_s = 0, other_keys = 0;
  for (uint64_t i = 0; i < FLAGS_keys;) {
    const auto segments = static_cast<double>(table->stats().segments);
    const double began = CpuSeconds();
    double before = began;
    for (const uint64_t end = std::min(i + kWindow, FLAGS_keys); i < end; ++i) {
      Must(table->Put(absl::StrCat("key-", i), BytesOf(value), {}, TestTime(0)));
      table->GrowStep(TestTime(0));
      const double after = CpuSeconds();
      if (i >= kKeysFirst) growth.longest_us = std::max(growth.longest_us, (after - before) * 1e6);
      before = after;
    }
    const double grown = static_cast<double>(table->stats().segments) - segments;
    if (i <= kKeysFirst) continue;
    // A segment in a hundred splits in the window, or none.
    if (grown > segments / 100) split_s += before - began, split_keys += kWindow;
    if (grown == 0) other_s += before - began, other_keys += kWindow;
  }
  growth.rate = (split_keys / split_s) / (other_keys / other_s);
  return growth;
}

// CPU time of a virtual machine includes what its host takes away: so of the longest PUTs of some
// runs the shortest counts.
void MeasureGrowth() {
  constexpr int kRuns = 5;
  std::vector<double> longest, rates;
  for (int run = 0; run < kRuns; ++run) {
    const Growth growth = GrowOnce();
    longest.push_back(growth.longest_us);
    rates.push_back(growth.rate);
  }
  std::sort(longest.begin(), longest.end());
  std::sort(rates.begin(), rates.end());
  Print("PUT of a new key of 100 B, with growth: longest", longest.front(), "us CPU");
  Print("PUTs a second while segments split", rates[kRuns / 2], "of the rate between");
}

}  // namespace
}  // namespace osprey::index

int main(int argc, char** argv) {
  gflags::ParseCommandLineFlags(&argc, &argv, /*remove_flags=*/true);
  for (const uint64_t first : {10, 1024}) {
    for (const uint64_t second : {10, 1024, 100'000}) {
      if (first != second) osprey::index::MeasureRefills(first, second);
    }
  }
  for (const uint64_t share : {64, 16})
    osprey::index::MeasureLong((FLAGS_region_mib << 20) / share);
  osprey::index::MeasurePairs();
  osprey::index::MeasureExpiry();
  osprey::index::MeasureGrowth();
  return 0;
}
