// The cost of growth: a table grows from 1,000 keys to the requested number, one step after every
// write, as in a server under load.
//
//   bazel run //tests/benchmarks:growth_benchmark -- --keys=50000000 --value_bytes=8
//
// Keys have 8 B. Values of 8 B are inline, those of 40 B are not. Averages are over the fill in
// equal ratios: from n to 1.02 n keys counts as much everywhere.

#include <sys/mman.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <random>
#include <string>
#include <vector>

#include "gflags/gflags.h"
#include "index/reader/lookup.h"
#include "index/writer/table.h"
#include "tests/index/index_test_util.h"

DEFINE_uint64(keys, 1'000'000, "How many keys to grow to.");
DEFINE_uint64(value_bytes, 8, "The length of each value.");
DEFINE_uint64(region_mib, 0, "The region's size; 0: enough.");
DEFINE_uint32(split_percent, osprey::index::kSplitPercent, "When segments split.");
DEFINE_uint32(small_items_percent, osprey::index::kSmallItemsPercent,
              "How many keys may be items because their line is full.");
DEFINE_uint64(first, 1000, "Averages are taken from so many keys on.");
DEFINE_uint64(gets, 4000, "GETs of present keys, and of absent ones, at each sample.");

namespace osprey::index {
namespace {

constexpr double kSampleRatio = 1.02;

// CPU time of this thread alone, without other work on the machine.
double CpuMicroseconds() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) * 1e6 + static_cast<double>(time.tv_nsec) / 1e3;
}

// Reserved, and touched only where the table writes.
struct Region {
  explicit Region(uint64_t region_bytes) : bytes(region_bytes) {
    data = static_cast<std::byte*>(mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
    if (data == MAP_FAILED) std::perror("mmap"), std::exit(1);
  }
  ~Region() { munmap(data, bytes); }
  uint64_t bytes;
  std::byte* data;
};

// Different for different numbers.
struct Key {
  explicit Key(uint64_t number) {
    const uint64_t mixed = number * 0x9e3779b97f4a7c15;
    std::memcpy(bytes, &mixed, sizeof(bytes));
  }
  absl::string_view view() const { return {bytes, sizeof(bytes)}; }
  char bytes[8];
};

class ReadCounter {
 public:
  ReadCounter(const Region& region, DirectoryCache& map) : region_(region), map_(map) {}
  // READs that a GET takes.
  uint32_t Get(const Key& key, Lookup::Kind expected) {
    Lookup lookup(map_, key.view());
    Lookup::Step step = lookup.Start();
    while (step.kind == Lookup::Kind::kRead) {
      bytes_.resize(step.length);
      std::memcpy(bytes_.data(), region_.data + step.offset, step.length);
      step = lookup.Resume(bytes_);
    }
    if (step.kind != expected) std::fprintf(stderr, "a wrong answer\n"), std::exit(1);
    return lookup.counters().reads;
  }

 private:
  const Region& region_;
  DirectoryCache& map_;
  std::vector<std::byte> bytes_;
};

struct Averages {
  double load = 0;
  double index_bytes_per_key = 0;
  double overflow_bytes_per_key = 0;
  double reads_per_hit = 0;
  double reads_per_miss = 0;
  double worst_reads_per_hit = 0;
  double worst_reads_per_miss = 0;
  uint64_t samples = 0;

  void Take(const Table& table, const Region& region, uint64_t keys, std::mt19937_64& random) {
    const Table::Stats stats = table.stats();
    const double directory = static_cast<double>(DirectoryPages(stats.directory_depth)) * 4096;
    load += stats.load_factor;
    index_bytes_per_key +=
        (static_cast<double>(stats.index_bytes) + directory) / static_cast<double>(keys);
    overflow_bytes_per_key += static_cast<double>(stats.index_bytes - stats.segments * kUnitBytes) /
                              static_cast<double>(keys);
    ++samples;
    DirectoryCache map(kTestIncarnation, region.bytes);
    FillMap(map, region.data);
    ReadCounter counter(region, map);
    uint64_t hit_reads = 0;
    uint64_t miss_reads = 0;
    for (uint64_t i = 0; i < FLAGS_gets; ++i) {
      hit_reads += counter.Get(Key(random() % keys), Lookup::Kind::kHit);
      miss_reads += counter.Get(Key(FLAGS_keys + random() % keys), Lookup::Kind::kMiss);
    }
    const double per_hit = static_cast<double>(hit_reads) / static_cast<double>(FLAGS_gets);
    const double per_miss = static_cast<double>(miss_reads) / static_cast<double>(FLAGS_gets);
    reads_per_hit += per_hit;
    reads_per_miss += per_miss;
    worst_reads_per_hit = std::max(worst_reads_per_hit, per_hit);
    worst_reads_per_miss = std::max(worst_reads_per_miss, per_miss);
  }
};

int Run() {
  const uint64_t item_bytes =
      InlineWords(8, FLAGS_value_bytes) <= kInlineWordsMax ? 48 : FLAGS_value_bytes + 64;
  Region region(FLAGS_region_mib > 0
                    ? FLAGS_region_mib << 20
                    : (FLAGS_keys * (item_bytes * 9 / 8 + 64) >> 20 << 20) + (64 << 20));
  TableOptions options;
  options.incarnation = kTestIncarnation;
  options.hash_seed = kTestSeed;
  options.reuse_grace = absl::ZeroDuration();
  options.split_percent = FLAGS_split_percent;
  options.small_items_percent = FLAGS_small_items_percent;
  const std::unique_ptr<Table> table = *Table::Create({region.data, region.bytes}, options);
  const std::string value(FLAGS_value_bytes, 'v');
  std::mt19937_64 random(1);
  std::vector<double> steps_us;
  Averages averages;
  double next_sample = static_cast<double>(FLAGS_first);
  for (uint64_t i = 0; i < FLAGS_keys; ++i) {
    const WriteResult result = table->Put(Key(i).view(), BytesOf(value), {}, TestTime(0));
    if (!result.status.ok()) {
      std::fprintf(stderr, "after %llu keys: %s\n", static_cast<unsigned long long>(i),
                   std::string(result.status.message()).c_str());
      return 1;
    }
    if (table->GrowthWanted()) {
      const double before = CpuMicroseconds();
      table->GrowStep(TestTime(0));
      steps_us.push_back(CpuMicroseconds() - before);
    }
    if (static_cast<double>(i + 1) >= next_sample) {
      averages.Take(*table, region, i + 1, random);
      next_sample *= kSampleRatio;
    }
  }
  std::sort(steps_us.begin(), steps_us.end());
  const Table::Stats stats = table->stats();
  const double samples = static_cast<double>(averages.samples);
  std::printf("keys %llu, values of %llu B, split at %u %%\n",
              static_cast<unsigned long long>(stats.keys),
              static_cast<unsigned long long>(FLAGS_value_bytes), FLAGS_split_percent);
  std::printf("segments %llu, directory depth %llu, overflow lines %llu, inline keys %.1f %%\n",
              static_cast<unsigned long long>(stats.segments),
              static_cast<unsigned long long>(stats.directory_depth),
              static_cast<unsigned long long>(stats.overflow_lines),
              100.0 * static_cast<double>(stats.inline_keys) / static_cast<double>(stats.keys));
  std::printf("GrowStep, CPU time: %zu; p50 %.0f us, p99 %.0f us, longest %.0f us\n",
              steps_us.size(), steps_us[steps_us.size() / 2], steps_us[steps_us.size() * 99 / 100],
              steps_us.back());
  std::printf("load factor, average over the fill: %.3f\n", averages.load / samples);
  std::printf("index bytes a key, average: %.2f, of which overflow lines %.2f\n",
              averages.index_bytes_per_key / samples, averages.overflow_bytes_per_key / samples);
  std::printf("READs a hit: average %.4f, worst %.4f; a miss: average %.4f, worst %.4f\n",
              averages.reads_per_hit / samples, averages.worst_reads_per_hit,
              averages.reads_per_miss / samples, averages.worst_reads_per_miss);
  return 0;
}

}  // namespace
}  // namespace osprey::index

int main(int argc, char** argv) {
  gflags::ParseCommandLineFlags(&argc, &argv, true);
  return osprey::index::Run();
}
