// Subjects of the benchmarks of index/: a table filled with numbered keys, and a reader of it.
//
// Keys are computed from their numbers and never stored. A benchmark that fetched keys from memory
// would spend much of its time on its own cache misses.

#ifndef OSPREY_TESTS_BENCHMARKS_INDEX_SUBJECTS_H_
#define OSPREY_TESTS_BENCHMARKS_INDEX_SUBJECTS_H_

#include <sys/mman.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "index/reader/lookup.h"
#include "index/writer/table.h"
#include "tests/index/index_test_util.h"

namespace osprey::index {

// Key number i: 8 bytes, different for each number.
class NumberedKey {
 public:
  explicit NumberedKey(uint64_t i) {
    const uint64_t word = i * 0x9e3779b97f4a7c15;  // odd, thus a bijection
    std::memcpy(bytes_, &word, sizeof(bytes_));
  }
  operator absl::string_view() const { return {bytes_, sizeof(bytes_)}; }

 private:
  char bytes_[8];
};

// Memory as in a server's region: zeroed, and on huge pages if available.
class HugeMemory {
 public:
  explicit HugeMemory(size_t bytes)
      : bytes_(bytes),
        data_(static_cast<std::byte*>(mmap(nullptr, bytes + kHugeBytes, PROT_READ | PROT_WRITE,
                                           MAP_PRIVATE | MAP_ANONYMOUS, -1, 0))) {
    if (data_ == MAP_FAILED) std::abort();
    const uintptr_t address = reinterpret_cast<uintptr_t>(data_);
    aligned_ = data_ + (kHugeBytes - address % kHugeBytes) % kHugeBytes;
    (void)madvise(aligned_, bytes, MADV_HUGEPAGE);
  }
  ~HugeMemory() { munmap(data_, bytes_ + kHugeBytes); }
  HugeMemory(const HugeMemory&) = delete;
  HugeMemory& operator=(const HugeMemory&) = delete;

  absl::Span<std::byte> span() { return {aligned_, bytes_}; }
  const std::byte* data() const { return aligned_; }

 private:
  static constexpr size_t kHugeBytes = size_t{2} << 20;
  size_t bytes_;
  std::byte* data_;
  std::byte* aligned_;
};

// A table of keys 0 … keys - 1, and a reader's map of it.
class FilledTable {
 public:
  // Memory for so many keys with values of so many bytes, at the lowest load of the index.
  static uint64_t RegionFor(uint64_t keys, uint64_t value_bytes) {
    const bool is_inline = InlineWords(8, value_bytes) <= kInlineWordsMax;
    return (uint64_t{8} << 20) + keys * (is_inline ? 80 : 40 + ItemBytes(8, value_bytes) * 9 / 8);
  }

  // `room`: memory for so many additional keys.
  FilledTable(uint64_t keys, uint64_t value_bytes, uint64_t room = 0)
      : memory_(RegionFor(keys + room, value_bytes)),
        map_(kTestIncarnation, memory_.span().size()),
        value_(value_bytes, 'v'),
        keys_(keys) {
    TableOptions options;
    options.incarnation = kTestIncarnation;
    options.hash_seed = kTestSeed;
    options.reuse_grace = absl::ZeroDuration();
    table_ = *Table::Create(memory_.span(), options);
    for (uint64_t i = 0; i < keys; ++i) {
      if (!Put(NumberedKey(i))) std::abort();
    }
    ReadMap();
  }
  // Again, after the table has grown.
  void ReadMap() {
    map_ = DirectoryCache(kTestIncarnation, memory_.span().size());
    FillMap(map_, memory_.data());
  }

  // As a server does: the growth that a write requires follows it.
  bool Put(absl::string_view key) { return Put({key, HashKey(key, kTestSeed)}); }
  bool Put(const HashedKey& key, const SlotHint& hint = {}) {
    const bool done = table_->Put(key, BytesOf(value_), {}, now_, {}, hint).status.ok();
    if (table_->GrowthWanted()) table_->GrowStep(now_);
    return done;
  }
  // Reads the key with READs that are plain copies, as over shared memory.
  Lookup::Kind Get(absl::string_view key, uint64_t hint = 0) {
    Lookup lookup(map_, key);
    Lookup::Step step = lookup.Start(hint);
    while (step.kind == Lookup::Kind::kRead) {
      std::memcpy(copy_, memory_.data() + step.offset, step.length);
      step = lookup.Resume(ByteSpan(copy_, step.length));
      ++reads_;
    }
    return step.kind;
  }

  Table& table() { return *table_; }
  uint64_t keys() const { return keys_; }
  uint64_t reads() const { return reads_; }
  uint64_t hint_of(uint64_t i) const { return table_->Find(NumberedKey(i))->slot; }
  const HugeMemory& memory() const { return memory_; }

 private:
  HugeMemory memory_;
  std::unique_ptr<Table> table_;
  DirectoryCache map_;
  std::string value_;
  const absl::Time now_ = TestTime(0);
  uint64_t keys_;
  uint64_t reads_ = 0;
  std::byte copy_[8192];
};

}  // namespace osprey::index

#endif  // OSPREY_TESTS_BENCHMARKS_INDEX_SUBJECTS_H_
