#include "tests/durability/chunks.h"

#include <xxhash.h>

#include <algorithm>
#include <cassert>
#include <cstring>

#include "absl/strings/str_cat.h"

namespace osprey {
namespace {

struct Head {
  int64_t number;
  uint64_t length;
};

}  // namespace

std::string Chunk(int64_t number, size_t length) {
  assert(length >= kChunkBytesMin);
  std::string chunk(length, '\0');
  const Head head{number, length};
  std::memcpy(chunk.data(), &head, sizeof(head));
  const size_t end = length - sizeof(uint64_t);
  // An odd step generates all 64-bit values: no two words of a chunk are equal.
  uint64_t word = static_cast<uint64_t>(number) * 0x9E3779B97F4A7C15u;
  for (size_t at = sizeof(head); at < end; at += sizeof(word)) {
    word += 0xD1342543DE82EF95u;
    std::memcpy(chunk.data() + at, &word, std::min(sizeof(word), end - at));
  }
  const uint64_t hash = XXH3_64bits(chunk.data(), end);
  std::memcpy(chunk.data() + end, &hash, sizeof(hash));
  return chunk;
}

std::string NameOfChunk(int64_t number) { return absl::StrCat(number, ";"); }

absl::optional<std::string> NamesOfChunks(absl::string_view value) {
  std::string names;
  while (!value.empty()) {
    if (value.size() < kChunkBytesMin) return absl::nullopt;
    Head head;
    std::memcpy(&head, value.data(), sizeof(head));
    if (head.length < kChunkBytesMin || head.length > value.size()) return absl::nullopt;
    const size_t end = head.length - sizeof(uint64_t);
    uint64_t hash = 0;
    std::memcpy(&hash, value.data() + end, sizeof(hash));
    if (hash != XXH3_64bits(value.data(), end)) return absl::nullopt;
    names += NameOfChunk(head.number);
    value.remove_prefix(head.length);
  }
  return names;
}

}  // namespace osprey
