// What the table and a lookup cost by themselves, without a network: one core, 1 M keys.
//
//   bazel run //tests:index_benchmark

#include <memory>
#include <random>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "benchmark/benchmark.h"
#include "index/lookup.h"
#include "index/table.h"
#include "tests/index_test_util.h"

namespace osprey::index {
namespace {

constexpr uint64_t kKeys = 1'000'000;

struct Filled {
  explicit Filled(uint64_t value_bytes, uint64_t region_bytes)
      : memory(region_bytes), map(kTestIncarnation, region_bytes), value(value_bytes, 'v') {
    TableOptions options;
    options.incarnation = kTestIncarnation;
    options.hash_seed = kTestSeed;
    options.reuse_grace = absl::ZeroDuration();
    table = *Table::Create(memory.span(), options);
    for (uint64_t i = 0; i < kKeys; ++i) keys.push_back(absl::StrCat(1000000 + i));
  }
  bool Put(const std::string& key) {
    const bool done = table->Put(key, BytesOf(value), {}, TestTime(0)).status.ok();
    table->GrowStep(TestTime(0));
    return done;
  }

  RegionMemory memory;
  std::unique_ptr<Table> table;
  RegionMap map;
  std::string value;
  std::vector<std::string> keys;
};

// The argument is the value's length: 8 B are inline, 100 B are not.
uint64_t RegionFor(int64_t value_bytes) {
  return value_bytes <= 8 ? uint64_t{512} << 20 : uint64_t{256} << 20;
}

void Fill(benchmark::State& state) {
  const uint64_t bytes = static_cast<uint64_t>(state.range(0));
  for (auto _ : state) {
    state.PauseTiming();
    Filled filled(bytes, RegionFor(state.range(0)));
    state.ResumeTiming();
    for (const std::string& key : filled.keys) {
      if (!filled.Put(key)) state.SkipWithError("full");
    }
    const Table::Stats stats = filled.table->stats();
    state.counters["load"] = stats.load_factor;
    state.counters["index_bytes_per_key"] = static_cast<double>(stats.index_bytes) / kKeys;
    state.counters["overflow_lines"] = static_cast<double>(stats.overflow_lines);
  }
  state.SetItemsProcessed(static_cast<int64_t>(state.iterations() * kKeys));
}
BENCHMARK(Fill)->Arg(8)->Arg(100)->Iterations(1)->Unit(benchmark::kMillisecond);

void Update(benchmark::State& state) {
  Filled filled(static_cast<uint64_t>(state.range(0)), RegionFor(state.range(0)));
  for (const std::string& key : filled.keys) filled.Put(key);
  std::mt19937_64 random(1);
  for (auto _ : state) {
    if (!filled.Put(filled.keys[random() % kKeys])) state.SkipWithError("full");
  }
  state.SetItemsProcessed(static_cast<int64_t>(state.iterations()));
}
BENCHMARK(Update)->Arg(8)->Arg(100);

// As a server executes a batch: the memory of all keys is asked for before the first is written.
void UpdateBatch(benchmark::State& state) {
  // Benchmark calls this several times to find out how often to repeat: filled once.
  static absl::flat_hash_map<int64_t, std::unique_ptr<Filled>> tables;
  std::unique_ptr<Filled>& filled = tables[state.range(0)];
  if (filled == nullptr) {
    filled =
        std::make_unique<Filled>(static_cast<uint64_t>(state.range(0)), RegionFor(state.range(0)));
    for (const std::string& key : filled->keys) filled->Put(key);
  }
  const size_t batch = static_cast<size_t>(state.range(1));
  std::mt19937_64 random(1);
  std::vector<const std::string*> keys(batch);
  for (auto _ : state) {
    for (const std::string*& key : keys) {
      key = &filled->keys[random() % kKeys];
      if (batch > 1) filled->table->Prefetch(*key);
    }
    for (const std::string* key : keys) {
      if (!filled->Put(*key)) state.SkipWithError("full");
    }
  }
  state.SetItemsProcessed(static_cast<int64_t>(state.iterations() * batch));
}
BENCHMARK(UpdateBatch)->ArgsProduct({{8, 100}, {1, 8, 32}});

// The READs are plain copies, as over shared memory.
void Read(benchmark::State& state) {
  Filled filled(static_cast<uint64_t>(state.range(0)), RegionFor(state.range(0)));
  for (const std::string& key : filled.keys) filled.Put(key);
  FillMap(filled.map, filled.memory.data());
  const bool hinted = state.range(1) != 0;
  std::vector<uint64_t> hints(kKeys);
  for (size_t i = 0; i < kKeys && hinted; ++i) hints[i] = filled.table->Find(filled.keys[i])->slot;
  std::mt19937_64 random(1);
  std::vector<std::byte> bytes(8192);
  uint64_t reads = 0;
  for (auto _ : state) {
    const size_t i = random() % kKeys;
    Lookup lookup(filled.map, filled.keys[i], hints[i]);
    Lookup::Step step = lookup.Start();
    while (step.kind == Lookup::Kind::kRead) {
      std::memcpy(bytes.data(), filled.memory.data() + step.offset, step.length);
      step = lookup.Resume(ByteSpan(bytes).first(step.length));
      ++reads;
    }
    if (step.kind != Lookup::Kind::kHit) state.SkipWithError("not found");
    benchmark::DoNotOptimize(step.value.data());
  }
  state.SetItemsProcessed(static_cast<int64_t>(state.iterations()));
  state.counters["reads_per_get"] =
      static_cast<double>(reads) / static_cast<double>(state.iterations());
}
BENCHMARK(Read)->Args({8, 0})->Args({100, 0})->Args({100, 1});

}  // namespace
}  // namespace osprey::index
