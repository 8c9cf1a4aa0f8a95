// What a table holds after it held something else, beside what a fresh one holds; and how much of its
// free space long values can use. One line of JSON for each figure.
//
//   bazel run //tests/benchmarks:memory_benchmark -- --region_mib=256
//
// The table is filled until it refuses three times in a row. As in a server, there is a step of growth
// and compaction after each write, and all steps of the next seconds after a refusal. Then all keys are
// flushed, or nine in ten deleted, and it is filled again with values of another length.

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <ctime>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "gflags/gflags.h"
#include "index/writer/table.h"
#include "tests/index/index_test_util.h"

DEFINE_uint64(region_mib, 256, "The region's size.");

namespace osprey::index {
namespace {

constexpr uint64_t kKept = 10;  // one key in so many stays, where keys are deleted one by one

double CpuSeconds() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) / 1e9;
}

class Subject {
 public:
  Subject() : memory_(FLAGS_region_mib << 20) {
    TableOptions options;
    options.incarnation = kTestIncarnation;
    options.hash_seed = kTestSeed;
    table_ = *Table::Create(memory_.span(), options);
  }

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
  return 0;
}
