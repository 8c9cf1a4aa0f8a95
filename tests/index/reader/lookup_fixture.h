// A table of one segment, a map of it, and a writer that bypasses the table, as a hostile or later
// server may.

#ifndef OSPREY_TESTS_INDEX_READER_LOOKUP_FIXTURE_H_
#define OSPREY_TESTS_INDEX_READER_LOOKUP_FIXTURE_H_

#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "index/layout/access_hint.h"
#include "index/layout/record.h"
#include "index/layout/test_hooks.h"
#include "index/reader/lookup.h"
#include "index/segments/line_editor.h"
#include "index/space/region_writer.h"
#include "index/writer/table.h"
#include "tests/index/index_test_util.h"

namespace osprey::index {

inline constexpr uint64_t kBytes = 512 << 10;  // one segment

class LookupTest : public testing::Test {
 protected:
  LookupTest() {
    TableOptions options;
    options.incarnation = kTestIncarnation;
    options.hash_seed = kTestSeed;
    options.reuse_grace = absl::ZeroDuration();
    table_ = *Table::Create(memory_.span(), options);
    FillMap(map_, memory_.data());
  }
  ~LookupTest() override { active_mutant = Mutant::kNone; }

  WriteResult Put(absl::string_view key, absl::string_view value) {
    const WriteResult result = table_->Put(key, BytesOf(value), {}, TestTime(0));
    EXPECT_TRUE(result.status.ok()) << result.status;
    return result;
  }
  void Delete(absl::string_view key) {
    EXPECT_TRUE(table_->Delete(key, {}, TestTime(0)).status.ok());
  }

  std::vector<std::byte> Copy(const Lookup::Step& step) {
    return ReadRegion(memory_.data(), step.offset, step.length);
  }
  uint64_t HomeLineOf(absl::string_view key) {
    return UnitsOffset(kBytes) + HashKey(key, kTestSeed).home() * kLineBytes;
  }
  std::vector<std::byte> WindowBytesOf(absl::string_view key) {
    return ReadRegion(memory_.data(), HomeLineOf(key), kWindowBytes);
  }
  // One key in each line of a window, both inline, with the value "value".
  std::vector<std::string> FillBothLines() {
    std::vector<std::string> keys(2);
    for (const std::string& key : KeysOfHome(7, 40, /*same_fingerprint=*/false)) {
      Put(key, "value");
      Lookup lookup(map_, key);
      const Lookup::Step hit = lookup.Resume(Copy(lookup.Start()));
      if (hit.kind != Lookup::Kind::kHit) break;  // no more space
      const uint64_t line = AccessHint::Unpack(lookup.AccessOf(hit)).offset;
      keys[(line - HomeLineOf(key)) / kLineBytes] = key;
      if (!keys[0].empty() && !keys[1].empty()) break;
    }
    EXPECT_FALSE(keys[0].empty() || keys[1].empty());
    return keys;
  }
  // Bypasses the table: models a hostile or later server.
  void Rewrite(uint64_t line_offset, const std::function<void(Line&)>& edit) {
    Line line = LineAt(writer_, line_offset);
    edit(line);
    Seal(line_offset, line.record.tag,
         ByteSpan(reinterpret_cast<const std::byte*>(line.words), sizeof(line.words)));
  }
  void Seal(uint64_t offset, uint32_t tag, ByteSpan contents) {
    writer_.NextCasVersion();
    writer_.WriteRecord(offset, writer_.NextRecordVersion(offset), tag, contents);
  }
  template <typename T>
  T StructAt(uint64_t offset) {
    T value;
    std::memcpy(&value, memory_.data() + offset, sizeof(T));
    return value;
  }
  template <typename T>
  void SealStruct(uint64_t offset, const T& value) {
    const ByteSpan bytes(reinterpret_cast<const std::byte*>(&value), sizeof(T));
    Seal(offset, value.record.tag, bytes.subspan(sizeof(RecordHeader)));
  }

  RegionMemory memory_{kBytes};
  std::unique_ptr<Table> table_;
  DirectoryCache map_{kTestIncarnation, kBytes};
  RegionWriter writer_{memory_.span(), kTestIncarnation, uint64_t{1} << 20};
};

}  // namespace osprey::index

#endif  // OSPREY_TESTS_INDEX_READER_LOOKUP_FIXTURE_H_
