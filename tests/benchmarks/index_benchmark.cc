// The cost of the table, a lookup and their parts, without a network, on one core. tools/bench
// index runs this in rounds, and has the targets.
//
//   bazel run //tests/benchmarks:index_benchmark -- --benchmark_filter=Update
//
// Of several arguments the first is the number of keys. The value's length determines the form of
// an item: 8 B are inline, 100 B are not.

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/types/optional.h"
#include "benchmark/benchmark.h"
#include "index/layout/hash.h"
#include "index/layout/item.h"
#include "index/layout/record.h"
#include "index/space/item_space.h"
#include "index/space/region_space.h"
#include "index/space/region_writer.h"
#include "tests/benchmarks/index_subjects.h"
#include "tests/support/split_mix64.h"

namespace osprey::index {
namespace {

constexpr int64_t kMillion = 1'000'000;

// --- Hashes and records ----------------------------------------------------

void HashAKey(benchmark::State& state) {
  const std::string key(static_cast<size_t>(state.range(0)), 'k');
  for (auto _ : state) benchmark::DoNotOptimize(HashKey(key, kTestSeed));
}
BENCHMARK(HashAKey)->Arg(8)->Arg(32);

void HashOfBytes(benchmark::State& state) {
  const std::string bytes(static_cast<size_t>(state.range(0)), 'b');
  for (auto _ : state) benchmark::DoNotOptimize(HashBytes(BytesOf(bytes)));
  state.SetBytesProcessed(state.iterations() * state.range(0));
}
BENCHMARK(HashOfBytes)->Arg(112)->Arg(1024)->Arg(65536)->Arg(1 << 20);

// A record of so many bytes, its header included; 128 B are a line.
struct OneRecord {
  explicit OneRecord(uint64_t record_bytes)
      : bytes(record_bytes),
        memory((record_bytes + kPageBytes) / kPageBytes * kPageBytes),
        writer(memory.span(), kTestIncarnation, 0),
        contents(record_bytes - sizeof(RecordHeader), std::byte{'c'}) {
    Write();
  }
  void Write() { writer.WriteRecord(0, RecordVersion(writer.NextCasVersion()), 1, contents); }
  uint64_t bytes;
  RegionMemory memory;
  RegionWriter writer;
  std::vector<std::byte> contents;
};

void PublishRecord(benchmark::State& state) {
  OneRecord record(static_cast<uint64_t>(state.range(0)));
  for (auto _ : state) record.Write();
  state.SetBytesProcessed(state.iterations() * state.range(0));
}
BENCHMARK(PublishRecord)->Arg(64)->Arg(128)->Arg(1024)->Arg(65536)->Arg(1 << 20);

void ValidateRecord(benchmark::State& state) {
  OneRecord record(static_cast<uint64_t>(state.range(0)));
  const ByteSpan bytes(record.memory.data(), record.bytes);
  for (auto _ : state) {
    if (!RecordIsWhole(bytes, {0, kTestIncarnation})) state.SkipWithError("not whole");
  }
  state.SetBytesProcessed(state.iterations() * state.range(0));
}
BENCHMARK(ValidateRecord)->Arg(64)->Arg(128)->Arg(1024)->Arg(65536)->Arg(1 << 20);

// --- Item space ------------------------------------------------------------

// 10,000 places in use; one is freed and another allocated.
void ItemSpaceTakeAndFree(benchmark::State& state) {
  const uint64_t bytes = static_cast<uint64_t>(state.range(0));
  RegionSpace space(kPageBytes, uint64_t{1} << 30);
  ItemSpace items(space, absl::ZeroDuration());
  std::vector<uint64_t> taken;
  for (int i = 0; i < 10000; ++i) taken.push_back(*items.Allocate(bytes, TestTime(0)));
  SplitMix64 rng(1);
  for (auto _ : state) {
    uint64_t& one = taken[rng.Below(taken.size())];
    items.Retire(one, TestTime(0));
    const absl::optional<uint64_t> another = items.Allocate(bytes, TestTime(0));
    if (!another.has_value()) state.SkipWithError("full");
    one = another.value_or(one);
  }
  state.SetItemsProcessed(state.iterations());
}
BENCHMARK(ItemSpaceTakeAndFree)->Arg(64)->Arg(1024)->Arg(65536);

// --- The table -------------------------------------------------------------

// Filled once for all benchmarks of the same table, one table at a time: 10 million keys take a
// gigabyte.
FilledTable& TableOf(const benchmark::State& state) {
  static std::unique_ptr<FilledTable> table;
  static std::vector<int64_t> made_of;
  const std::vector<int64_t> wanted = {state.range(0), state.range(1)};
  if (made_of != wanted) {
    table.reset();
    table = std::make_unique<FilledTable>(wanted[0], wanted[1]);
    made_of = wanted;
  }
  return *table;
}

// From empty; includes the time of splits and of doubling the directory.
void Insert(benchmark::State& state) {
  for (auto _ : state) {
    FilledTable filled(static_cast<uint64_t>(state.range(0)),
                       static_cast<uint64_t>(state.range(1)));
    const Table::Stats stats = filled.table().stats();
    state.counters["load"] = stats.load_factor;
    state.counters["index_bytes_per_key"] =
        static_cast<double>(stats.index_bytes) / static_cast<double>(state.range(0));
  }
  state.SetItemsProcessed(state.iterations() * state.range(0));
}
BENCHMARK(Insert)->Args({kMillion, 8})->Args({kMillion, 100})->Unit(benchmark::kMillisecond);

// One segment: some 2,600 inline keys, or 3,200 items' slots.
void Split(benchmark::State& state) {
  uint64_t next = 0;
  std::unique_ptr<FilledTable> filled;
  const std::string value(static_cast<size_t>(state.range(0)), 'v');
  for (auto _ : state) {
    state.PauseTiming();
    for (bool splits = false; !splits; ++next) {
      if (filled == nullptr || next == kMillion) {
        filled = std::make_unique<FilledTable>(0, static_cast<uint64_t>(state.range(0)), kMillion);
        next = 0;
      }
      Table& table = filled->table();
      if (!table.Put(NumberedKey(next), BytesOf(value), {}, TestTime(0)).status.ok())
        state.SkipWithError("full");
      if (!table.GrowthWanted()) continue;
      const uint64_t splits_before = table.stats().splits;
      state.ResumeTiming();
      table.GrowStep(TestTime(0));
      state.PauseTiming();
      splits = table.stats().splits != splits_before;  // or else pages of a directory that doubles
    }
    state.ResumeTiming();
  }
  state.SetItemsProcessed(state.iterations());
}
BENCHMARK(Split)->Arg(8)->Arg(100)->Iterations(100)->Unit(benchmark::kMicrosecond);

void Lookups(benchmark::State& state, bool hinted, bool present) {
  FilledTable& filled = TableOf(state);
  std::vector<uint64_t> hints;
  for (uint64_t i = 0; i < filled.keys() && hinted; ++i) hints.push_back(filled.hint_of(i));
  const Lookup::Kind expected = present ? Lookup::Kind::kHit : Lookup::Kind::kMiss;
  SplitMix64 rng(1);
  const uint64_t reads_before = filled.reads();
  for (auto _ : state) {
    const uint64_t i = rng.Below(filled.keys());
    const NumberedKey key(present ? i : filled.keys() + i);
    if (filled.Get(key, hinted ? hints[i] : 0) != expected) state.SkipWithError("not as expected");
  }
  state.SetItemsProcessed(state.iterations());
  state.counters["reads_per_get"] =
      static_cast<double>(filled.reads() - reads_before) / static_cast<double>(state.iterations());
}

void Update(benchmark::State& state) {
  FilledTable& filled = TableOf(state);
  SplitMix64 rng(1);
  for (auto _ : state) {
    if (!filled.Put(NumberedKey(rng.Below(filled.keys())))) state.SkipWithError("full");
  }
  state.SetItemsProcessed(state.iterations());
}

// As a server executes a batch: it prefetches the memory of all keys before the first write.
void UpdateBatch(benchmark::State& state) {
  FilledTable& filled = TableOf(state);
  const size_t batch = static_cast<size_t>(state.range(2));
  SplitMix64 rng(1);
  std::vector<NumberedKey> keys(batch, NumberedKey(0));
  std::vector<KeyHash> hashes(batch);
  std::vector<SlotHint> hints(batch);
  for (auto _ : state) {
    for (size_t i = 0; i < batch; ++i) {
      keys[i] = NumberedKey(rng.Below(filled.keys()));
      hashes[i] = HashKey(keys[i], kTestSeed);
      hints[i] = filled.table().Prefetch(hashes[i]);
    }
    for (size_t i = 0; i < batch; ++i) filled.table().PrefetchItem(hashes[i], hints[i]);
    for (size_t i = 0; i < batch; ++i) {
      if (!filled.Put({keys[i], hashes[i]}, hints[i])) state.SkipWithError("full");
    }
  }
  state.SetItemsProcessed(static_cast<int64_t>(state.iterations() * batch));
}

// Benchmarks of one table together, so that each is filled once.
void RegisterForTable(int64_t keys, int64_t value_bytes) {
  const auto args = [=](benchmark::internal::Benchmark* benchmark) {
    return benchmark->Args({keys, value_bytes});
  };
  args(benchmark::RegisterBenchmark("Lookup", Lookups, /*hinted=*/false, /*present=*/true));
  args(benchmark::RegisterBenchmark("LookupMiss", Lookups, /*hinted=*/false, /*present=*/false));
  if (value_bytes > 8)
    args(benchmark::RegisterBenchmark("LookupHinted", Lookups, /*hinted=*/true, /*present=*/true));
  args(benchmark::RegisterBenchmark("Update", Update));
  for (const int64_t batch : {8, 32}) {
    benchmark::RegisterBenchmark("UpdateBatch", UpdateBatch)->Args({keys, value_bytes, batch});
  }
}

}  // namespace
}  // namespace osprey::index

int main(int argc, char** argv) {
  for (const int64_t keys : {1, 10}) {
    for (const int64_t value_bytes : {8, 100})
      osprey::index::RegisterForTable(keys * osprey::index::kMillion, value_bytes);
  }
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
