// Shared by the tests of index/: a region, a reader of it, and keys that collide.

#ifndef OSPREY_TESTS_INDEX_INDEX_TEST_UTIL_H_
#define OSPREY_TESTS_INDEX_INDEX_TEST_UTIL_H_

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "index/layout/hash.h"
#include "index/layout/layout.h"
#include "index/reader/lookup.h"
#include "index/writer/table.h"

namespace osprey::index {

inline constexpr uint64_t kTestIncarnation = 0x1122334455667788;
inline constexpr uint64_t kTestSeed = 42;

// Zeroed memory that starts on a page, as a region must.
class RegionMemory {
 public:
  explicit RegionMemory(size_t bytes)
      : bytes_(bytes),
        memory_(static_cast<std::byte*>(std::aligned_alloc(4096, bytes)), &std::free) {
    std::memset(memory_.get(), 0, bytes);
  }
  absl::Span<std::byte> span() { return {memory_.get(), bytes_}; }
  const std::byte* data() const { return memory_.get(); }
  size_t size() const { return bytes_; }

 private:
  size_t bytes_;
  std::unique_ptr<std::byte, decltype(&std::free)> memory_;
};

// A READ of a region that does not change meanwhile, or by a thread concurrent with the writer:
// word by word.
inline std::vector<std::byte> ReadRegion(const std::byte* region, uint64_t offset,
                                         uint64_t length) {
  std::vector<std::byte> copy(length);
  for (uint64_t word_at = offset / kWordBytes * kWordBytes; word_at < offset + length;
       word_at += kWordBytes) {
    uint64_t* const word = reinterpret_cast<uint64_t*>(const_cast<std::byte*>(region) + word_at);
    // Pairs with the release stores of RegionWriter.
    const uint64_t value = std::atomic_ref<uint64_t>(*word).load(std::memory_order_acquire);
    const uint64_t from = std::max(offset, word_at);
    const uint64_t to = std::min(offset + length, word_at + kWordBytes);
    std::memcpy(copy.data() + (from - offset),
                reinterpret_cast<const std::byte*>(&value) + (from - word_at), to - from);
  }
  return copy;
}

// A client's GET, without a network.
struct GetResult {
  Lookup::Kind kind = Lookup::Kind::kAskServer;
  std::string value;
  uint64_t version = 0;
  uint64_t expiry_ns = 0;
  uint64_t slot = 0;
  LookupCounters counters;
};

inline void FillMap(DirectoryCache& map, const std::byte* region) {
  for (int i = 0; i < 1000000 && !map.ready(); ++i) {
    const ReadSpan span = map.NextRead();
    if (!map.Apply(ReadRegion(region, span.offset, span.length)).ok()) std::abort();
  }
}

// The map of a client that connects now.
inline DirectoryCache MapOf(const RegionMemory& memory) {
  DirectoryCache map(kTestIncarnation, memory.size());
  FillMap(map, memory.data());
  return map;
}

inline constexpr uint64_t kTestPieceBytes = 10000;

inline GetResult Get(DirectoryCache& map, const std::byte* region, absl::string_view key,
                     uint64_t hint = 0, const LookupOptions& options = {},
                     const ServerTimeBounds& time = {}) {
  Lookup lookup(map, key, options);
  std::vector<std::byte> bytes;
  std::string pieces;
  Lookup::Step step = lookup.Start(hint);
  while (step.kind == Lookup::Kind::kRead || step.kind == Lookup::Kind::kReadValue) {
    if (step.kind == Lookup::Kind::kRead) {
      bytes = ReadRegion(region, step.offset, step.length);
      step = lookup.Resume(bytes, time);
      continue;
    }
    pieces.clear();
    while (pieces.size() < step.value_length) {
      const uint64_t length = std::min(step.value_length - pieces.size(), kTestPieceBytes);
      // Whole words that contain the piece.
      const uint64_t offset = step.offset + pieces.size();
      const uint64_t in_word = offset % kWordBytes;
      bytes = ReadRegion(region, offset - in_word, length + in_word);
      bytes.erase(bytes.begin(), bytes.begin() + static_cast<ptrdiff_t>(in_word));
      lookup.TakeValue(bytes);
      pieces.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    }
    step = lookup.FinishValue();
  }
  GetResult result;
  result.kind = step.kind;
  result.value.assign(reinterpret_cast<const char*>(step.value.data()), step.value.size());
  if (step.in_pieces) result.value = std::move(pieces);
  result.version = step.version;
  result.expiry_ns = step.expiry_ns;
  result.slot = step.slot;
  result.counters = lookup.counters();
  return result;
}

inline absl::Span<const std::byte> BytesOf(absl::string_view text) {
  return {reinterpret_cast<const std::byte*>(text.data()), text.size()};
}
inline std::string TextOf(absl::Span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

inline absl::Time TestTime(int64_t milliseconds) {
  return absl::UnixEpoch() + absl::Milliseconds(milliseconds);
}

// `count` different keys of one segment (of a table with one segment) whose home is `home`; all
// with one fingerprint when `same_fingerprint`. Deterministic.
inline std::vector<std::string> KeysOfHome(uint32_t home, size_t count, bool same_fingerprint,
                                           uint64_t seed = kTestSeed) {
  std::vector<std::string> keys;
  uint32_t fingerprint = 0;
  for (uint64_t i = 0; keys.size() < count; ++i) {
    std::string key = absl::StrCat("k", i);
    const KeyHash hash = HashKey(key, seed);
    if (hash.home() != home) continue;
    if (same_fingerprint && !keys.empty() && hash.fingerprint() != fingerprint) continue;
    if (keys.empty()) fingerprint = hash.fingerprint();
    keys.push_back(std::move(key));
  }
  return keys;
}

// Repeats a reported deletion or eviction of a value with this version, in a table that has no reader.
// (A server passes over the keys that its log deletes.)
inline absl::Status RestoreDelete(Table& table, absl::string_view key, uint64_t version) {
  const absl::StatusOr<Table::View> present = table.Find(key);
  if (!present.ok() || present->version > version) return absl::OkStatus();
  return table.Delete(key, {}, absl::UnixEpoch()).status;
}

// Another expiry of an earlier life: of a key that has this version.
inline absl::Status RestoreExpiry(Table& table, absl::string_view key, uint64_t version,
                                  uint64_t expiry_ns) {
  const absl::StatusOr<Table::View> present = table.Find(key);
  if (!present.ok() || present->version != version) return absl::OkStatus();
  const std::vector<std::byte> value(present->value.begin(), present->value.end());
  return table.Restore(key, value, version, expiry_ns, absl::UnixEpoch()).status;
}

}  // namespace osprey::index

#endif  // OSPREY_TESTS_INDEX_INDEX_TEST_UTIL_H_
