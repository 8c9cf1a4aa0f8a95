// What the tests of the table share.

#ifndef OSPREY_TESTS_INDEX_TABLE_FIXTURE_H_
#define OSPREY_TESTS_INDEX_TABLE_FIXTURE_H_

#include <cstdint>
#include <memory>

#include "absl/strings/string_view.h"
#include "index/writer/table.h"
#include "tests/index/index_test_util.h"

namespace osprey::index {

inline constexpr uint64_t kTinyRegionBytes = 512 << 10;  // one segment

// A table in memory, and a client's map of it.
struct TableFixture {
  explicit TableFixture(uint64_t region_bytes = kTinyRegionBytes, TableOptions options = {})
      : memory(region_bytes), map(kTestIncarnation, region_bytes) {
    options.incarnation = kTestIncarnation;
    options.hash_seed = kTestSeed;
    table = *Table::Create(memory.span(), options);
    FillMap(map, memory.data());
  }
  WriteResult Put(absl::string_view key, absl::string_view value, Condition condition = {}) {
    return table->Put(key, BytesOf(value), condition, TestTime(++now));
  }
  WriteResult Delete(absl::string_view key, Condition condition = {}) {
    return table->Delete(key, condition, TestTime(++now));
  }
  GetResult Read(absl::string_view key, uint64_t hint = 0) {
    return Get(map, memory.data(), key, hint);
  }

  RegionMemory memory;
  std::unique_ptr<Table> table;
  DirectoryCache map;
  int64_t now = 0;
};

inline constexpr Condition kIfAbsent{Condition::Kind::kAbsent, 0};
inline Condition IfVersion(uint64_t version) { return {Condition::Kind::kVersionIs, version}; }

}  // namespace osprey::index

#endif  // OSPREY_TESTS_INDEX_TABLE_FIXTURE_H_
