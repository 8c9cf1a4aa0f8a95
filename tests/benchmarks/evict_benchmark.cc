// Quality of eviction: the hit ratio of a cache that is filled on each miss. Beside it those of exact
// LRU, S3-FIFO and Belady's optimum on the same trace (cache_rivals.h).
//
//   bazel run -c opt //tests/benchmarks:evict_benchmark -- --keys=1000000 --value_bytes=100
//
// The region is the smallest in which a table without eviction holds `--percent` of the keys. The
// others hold as many items or, if values differ in length, as many bytes of keys and values; Belady
// always as many items. Hits are looked up, sampled and reported as a client does: in the next message, the PUT of a miss. With
// --stride=0 no hits are reported.
//
//   --trace   zipf     the same keys are popular all the time (YCSB's 0.99)
//             drift    every hundredth GET a popular key and any other change places
//             latest   the keys that came last are popular; a new one comes every 20 GETs
//             scans    zipf, and one GET in five goes through all keys in turn

#include <sys/mman.h>

#include <algorithm>
#include <cinttypes>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "client/read/access_sampler.h"
#include "gflags/gflags.h"
#include "index/reader/lookup.h"
#include "index/writer/table.h"
#include "tests/benchmarks/cache_rivals.h"
#include "tests/index/index_test_util.h"

DEFINE_uint64(keys, 1'000'000, "How many keys there are.");
DEFINE_double(percent, 10, "How many of them, in percent, the memory takes.");
DEFINE_uint64(value_bytes, 100, "Length of the values; the longest, if they differ.");
DEFINE_uint64(value_bytes_min, 0, "Length of the shortest, if values differ; 0: all are alike.");
DEFINE_double(theta, 0.99, "Of the Zipf distribution.");
DEFINE_uint64(gets, 20, "GETs in all, in times of --keys. The first quarter is not counted.");
DEFINE_uint32(stride, osprey::client::AccessSampler::kStride,
              "One hit of so many is sampled; 0: none.");
DEFINE_string(trace, "zipf", "zipf, drift, latest or scans");
DEFINE_uint64(seed, 1, "Of the trace.");
DEFINE_bool(belady, true, "Also the optimum, which takes the longest.");

namespace osprey::index {
namespace {

// --- The trace ---------------------------------------------------------------

class Trace {
 public:
  explicit Trace(uint64_t keys) : cumulative_(keys), key_of_rank_(keys), random_(FLAGS_seed) {
    double sum = 0;
    for (uint64_t rank = 0; rank < keys; ++rank) {
      sum += 1 / std::pow(static_cast<double>(rank + 1), FLAGS_theta);
      cumulative_[rank] = sum;
      key_of_rank_[rank] = rank;
    }
    for (double& share : cumulative_) share /= sum;
    std::shuffle(key_of_rank_.begin(), key_of_rank_.end(), random_);
  }

  uint64_t Next() {
    ++gets_;
    const uint64_t keys = key_of_rank_.size();
    if (FLAGS_trace == "drift" && gets_ % 100 == 0) {
      std::swap(key_of_rank_[Rank()], key_of_rank_[random_() % keys]);
    }
    if (FLAGS_trace == "latest") return (keys + gets_ / 20 - Rank()) % keys;
    if (FLAGS_trace == "scans" && random_() % 5 == 0) return scanned_++ % keys;
    return key_of_rank_[Rank()];
  }

 private:
  uint64_t Rank() {
    const double rng = static_cast<double>(random_() >> 11) * 0x1p-53;
    const auto at = std::lower_bound(cumulative_.begin(), cumulative_.end(), rng);
    return std::min<uint64_t>(at - cumulative_.begin(), cumulative_.size() - 1);
  }

  std::vector<double> cumulative_;
  std::vector<uint64_t> key_of_rank_;
  std::mt19937_64 random_;
  uint64_t gets_ = 0;
  uint64_t scanned_ = 0;
};

std::string KeyOf(uint64_t number) {
  char text[17];
  std::snprintf(text, sizeof(text), "k%015" PRIx64, number * 0x9e3779b97f4a7c15 >> 4);
  return text;
}

uint64_t ValueBytesOf(uint64_t number) {
  if (FLAGS_value_bytes_min == 0) return FLAGS_value_bytes;
  const double rng = static_cast<double>(number * 0x9e3779b97f4a7c15) * 0x1p-64;
  const double low = std::log(static_cast<double>(FLAGS_value_bytes_min));
  const double high = std::log(static_cast<double>(FLAGS_value_bytes));
  return static_cast<uint64_t>(std::exp(low + (high - low) * rng));
}

uint64_t BytesOfItem(uint64_t number) { return KeyOf(number).size() + ValueBytesOf(number); }

// --- The table -----------------------------------------------------------------

class Store {
 public:
  Store(uint64_t region_bytes, bool evict)
      : bytes_(region_bytes),
        value_(FLAGS_value_bytes, 'v'),
        sampler_(7, std::max(FLAGS_stride, 1u)) {
    data_ = static_cast<std::byte*>(mmap(nullptr, bytes_, PROT_READ | PROT_WRITE,
                                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
    if (data_ == MAP_FAILED) std::perror("mmap"), std::exit(1);
    TableOptions options;
    options.incarnation = kTestIncarnation;
    options.hash_seed = kTestSeed;
    options.evict = evict;
    sampler_.set_on(FLAGS_stride > 0);
    table_ = *Table::Create({data_, bytes_}, options);
    map_ = std::make_unique<DirectoryCache>(kTestIncarnation, bytes_);
    FillMap(*map_, data_);
  }
  ~Store() { munmap(data_, bytes_); }

  // As a client: READs and samples.
  bool Get(uint64_t number) {
    const std::string key = KeyOf(number);
    Lookup lookup(*map_, key);
    Lookup::Step step = lookup.Start();
    while (step.kind == Lookup::Kind::kRead) {
      read_.resize(step.length);
      std::memcpy(read_.data(), data_ + step.offset, step.length);
      step = lookup.Resume(read_);
    }
    if (step.kind == Lookup::Kind::kMiss) return false;
    if (step.kind != Lookup::Kind::kHit) std::fprintf(stderr, "no answer\n"), std::exit(1);
    if (sampler_.Hit()) sampler_.Note(lookup.AccessOf(step));
    return true;
  }
  // A message with the sampled hits, and a turn of the server.
  bool Put(uint64_t number) {
    now_ += absl::Microseconds(3);
    const double begin = CpuMicroseconds();
    table_->TakeHints(sampler_.notes());
    sampler_.Clear();
    const bool taken =
        table_->Put(KeyOf(number), BytesOf(value_).first(ValueBytesOf(number)), {}, now_)
            .status.ok();
    const double put = CpuMicroseconds();
    table_->GrowStep(now_);
    table_->EvictStep(now_);
    table_->CompactStep(now_);
    const double end = CpuMicroseconds();
    put_us_ += put - begin;
    turn_us_ += end - put;
    longest_us_ = std::max(longest_us_, end - begin);
    return taken;
  }
  const Table& table() const { return *table_; }
  double put_us() const { return put_us_; }
  double turn_us() const { return turn_us_; }
  double longest_us() const { return longest_us_; }

 private:
  // Of this thread alone.
  static double CpuMicroseconds() {
    timespec time{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return static_cast<double>(time.tv_sec) * 1e6 + static_cast<double>(time.tv_nsec) / 1e3;
  }

  uint64_t bytes_;
  std::byte* data_;
  std::string value_;
  std::unique_ptr<Table> table_;
  std::unique_ptr<DirectoryCache> map_;
  client::AccessSampler sampler_;
  std::vector<std::byte> read_;
  absl::Time now_ = TestTime(0);
  double put_us_ = 0;
  double turn_us_ = 0;
  double longest_us_ = 0;
};

struct Filled {
  uint64_t keys = 0;
  uint64_t bytes = 0;
};
// The number of keys that a table without eviction holds before it refuses.
Filled FillUp(uint64_t region_bytes, uint64_t keys_max) {
  Store store(region_bytes, /*evict=*/false);
  Filled filled;
  while (filled.keys < keys_max && store.Put(filled.keys)) {
    filled.bytes += BytesOfItem(filled.keys++);
  }
  return filled;
}

double Percent(uint64_t hits, uint64_t gets) {
  return 100.0 * static_cast<double>(hits) / static_cast<double>(gets);
}

std::vector<uint32_t> Record() {
  Trace trace(FLAGS_keys);
  std::vector<uint32_t> keys(FLAGS_gets * FLAGS_keys);
  for (uint32_t& key : keys) key = static_cast<uint32_t>(trace.Next());
  return keys;
}

// The hit ratio in percent, behind the first quarter.
template <typename Get, typename Put>
double Run(absl::Span<const uint32_t> trace, Get get, Put put) {
  const uint64_t counted_from = trace.size() / 4;
  uint64_t hits = 0;
  for (uint64_t i = 0; i < trace.size(); ++i) {
    const bool hit = get(trace[i]);
    if (!hit) put(trace[i]);
    if (i >= counted_from) hits += hit;
  }
  return Percent(hits, trace.size() - counted_from);
}

template <typename Rival>
double RunRival(absl::Span<const uint32_t> trace, const Filled& filled) {
  const bool alike = FLAGS_value_bytes_min == 0;
  Rival rival(alike ? filled.keys : filled.bytes);
  return Run(
      trace, [&](uint64_t key) { return rival.Get(key); },
      [&](uint64_t key) { rival.Put(key, alike ? 1 : BytesOfItem(key)); });
}

void Compare() {
  const auto wanted = static_cast<uint64_t>(static_cast<double>(FLAGS_keys) * FLAGS_percent / 100);
  constexpr uint64_t kStep = 256 << 10;
  uint64_t low = 1, high = 2;  // in steps
  while (FillUp(high * kStep, wanted).keys < wanted) low = high, high *= 2;
  while (high - low > 1) {
    const uint64_t middle = (low + high) / 2;
    (FillUp(middle * kStep, wanted).keys < wanted ? low : high) = middle;
  }
  const uint64_t region_bytes = high * kStep;
  const Filled filled = FillUp(region_bytes, FLAGS_keys);
  std::printf("trace %s, %" PRIu64 " keys, values of %" PRIu64 " B, one hit of %u is sampled\n",
              FLAGS_trace.c_str(), FLAGS_keys, FLAGS_value_bytes, FLAGS_stride);
  std::printf("region %" PRIu64 " KiB: without eviction it takes %" PRIu64 " keys, %" PRIu64
              " B of keys and values\n",
              region_bytes >> 10, filled.keys, filled.bytes);

  const std::vector<uint32_t> trace = Record();
  const char* const alike = FLAGS_value_bytes_min == 0 ? "items" : "bytes";
  std::printf("LRU, as many %s          %.2f %%\n", alike, RunRival<Lru>(trace, filled));
  const double s3_fifo = RunRival<S3Fifo>(trace, filled);
  std::printf("S3-FIFO, as many %s      %.2f %%\n", alike, s3_fifo);
  if (FLAGS_belady) {
    const uint64_t counted_from = trace.size() / 4;
    std::printf("Belady, as many items       %.2f %%\n",
                Percent(BeladyHits(trace, filled.keys, counted_from), trace.size() - counted_from));
  }
  std::fflush(stdout);

  Store store(region_bytes, /*evict=*/true);
  uint64_t refused = 0, puts = 0;
  const double osprey = Run(
      trace, [&](uint64_t key) { return store.Get(key); },
      [&](uint64_t key) { ++puts, refused += !store.Put(key); });
  const Table::Stats stats = store.table().stats();
  std::printf("Osprey, --evict=clock       %.2f %%   %s\n", osprey,
              osprey >= s3_fifo - 1 ? "within one point of S3-FIFO: met"
                                    : "MISSED: more than one point below S3-FIFO");
  std::printf("keys at the end %" PRIu64 ", inline %" PRIu64 ", puts %" PRIu64 ", refused %" PRIu64
              ", evictions %" PRIu64 ", hints %" PRIu64 ", of no use %" PRIu64 "\n",
              stats.keys, stats.inline_keys, puts, refused, stats.evictions, stats.hints,
              stats.hints_unmatched);
  std::printf("index %" PRIu64 " KiB, its load %.2f, items %" PRIu64 " of %" PRIu64 " KiB\n",
              stats.index_bytes >> 10, stats.load_factor, stats.item_bytes >> 10,
              stats.item_space_bytes >> 10);
  std::printf(
      "CPU: a PUT with its hints %.2f us, the turn after it %.2f us, longest both %.0f us\n",
      store.put_us() / static_cast<double>(puts), store.turn_us() / static_cast<double>(puts),
      store.longest_us());
}

}  // namespace
}  // namespace osprey::index

int main(int argc, char** argv) {
  gflags::ParseCommandLineFlags(&argc, &argv, true);
  osprey::index::Compare();
}
