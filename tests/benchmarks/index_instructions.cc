// Runs each operation of index/ inside Measure, for callgrind to count the instructions
// (tests/benchmarks/count_instructions, which also keeps the baseline).
//
// The instructions are the same on every machine. All input is fixed. No hashed input has more than
// 240 B, above which xxHash chooses its code by the CPU.

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "index/layout/hash.h"
#include "index/layout/record.h"
#include "index/space/item_space.h"
#include "index/space/region_space.h"
#include "index/space/region_writer.h"
#include "tests/benchmarks/index_subjects.h"
#include "tests/benchmarks/measured.h"
#include "tests/support/split_mix64.h"

namespace osprey::index {
namespace {

constexpr uint64_t kTimes = 2000;
constexpr uint64_t kKeys = 20000;

void MeasureRecords() {
  RegionMemory memory(kPageBytes);
  RegionWriter writer(memory.span(), kTestIncarnation, 0);
  const std::vector<std::byte> contents(kLineBytes - sizeof(RecordHeader), std::byte{'c'});
  Measure("publish_record_128", kTimes, [&](uint64_t) {
    writer.WriteRecord(0, RecordVersion(writer.NextCasVersion()), 1, contents);
  });
  Measure("validate_record_128", kTimes, [&](uint64_t) {
    Must(RecordIsWhole(ByteSpan(memory.data(), kLineBytes), {0, kTestIncarnation}));
  });
  Measure("hash_key_8", kTimes,
          [](uint64_t i) { Must(HashKey(NumberedKey(i), kTestSeed).bits != 0); });
}

void MeasureItemSpace() {
  RegionSpace space(kPageBytes, uint64_t{16} << 20);
  ItemSpace items(space, absl::ZeroDuration());
  std::vector<uint64_t> taken;
  for (int i = 0; i < 1000; ++i) taken.push_back(*items.Allocate(144, TestTime(0)));
  SplitMix64 rng(1);
  Measure("item_space_take_and_free_144", kTimes, [&](uint64_t) {
    uint64_t& one = taken[rng.Below(taken.size())];
    items.Retire(one, TestTime(0));
    one = *items.Allocate(144, TestTime(0));
  });
}

void MeasureTable(const std::string& form, uint64_t value_bytes) {
  const auto filled = std::make_unique<FilledTable>(0, value_bytes, /*room=*/kKeys);
  Measure(("insert_" + form).c_str(), kKeys,
          [&](uint64_t i) { Must(filled->Put(NumberedKey(i))); });
  filled->ReadMap();
  SplitMix64 rng(1);
  const auto any = [&](uint64_t from = 0) { return NumberedKey(from + rng.Below(kKeys)); };
  Measure(("update_" + form).c_str(), kTimes, [&](uint64_t) { Must(filled->Put(any())); });
  Measure(("lookup_" + form).c_str(), kTimes,
          [&](uint64_t) { Must(filled->Get(any()) == Lookup::Kind::kHit); });
  Measure(("lookup_miss_" + form).c_str(), kTimes,
          [&](uint64_t) { Must(filled->Get(any(kKeys)) == Lookup::Kind::kMiss); });
  const uint64_t deleted = 5;
  Measure(("delete_" + form).c_str(), kTimes, [&](uint64_t i) {
    Must(filled->table().Delete(NumberedKey(i * deleted), {}, TestTime(0)).status.ok());
  });
}

}  // namespace
}  // namespace osprey::index

int main() {
  osprey::PrintCompiler();
  osprey::index::MeasureRecords();
  osprey::index::MeasureItemSpace();
  osprey::index::MeasureTable("inline", 8);
  osprey::index::MeasureTable("item", 100);
  return 0;
}
