#include "index/layout/hash.h"

#include <cstddef>

// Short inputs are hashed inline: that halves the instructions of a key's hash and of a line's.
#define XXH_INLINE_ALL
#include "xxhash.h"

namespace osprey::index {
namespace {

// XXH3 takes other steps for inputs of one word, of up to this length, and of a greater one. Only
// the last has variants by CPU.
constexpr size_t kShortBytesMax = 240;

// Apart from HashBytes and HashKey, whose code for lines and short keys then saves no registers.
[[gnu::noinline]] uint64_t HashAnyBytes(ByteSpan bytes) {
  if (bytes.size() > kShortBytesMax) return LongHash(bytes.data(), bytes.size());
  return XXH3_64bits(bytes.data(), bytes.size());
}
[[gnu::noinline]] uint64_t HashLongerKey(absl::string_view key, uint64_t seed) {
  if (key.size() > kShortBytesMax) return LongHash(key.data(), key.size(), seed);
  return XXH3_64bits_withSeed(key.data(), key.size(), seed);
}

}  // namespace

[[gnu::flatten]] KeyHash HashKey(absl::string_view key, uint64_t seed) {
  // The shortest of XXH3's forms.
  if (key.size() <= 16) return {XXH3_64bits_withSeed(key.data(), key.size(), seed)};
  return {HashLongerKey(key, seed)};
}

uint64_t HashBytes(ByteSpan bytes) {
  // Most are lines. A constant length saves a third of the instructions.
  constexpr size_t kLineContents = kLineBytes - sizeof(RecordHeader);
  if (bytes.size() == kLineContents) return XXH3_64bits(bytes.data(), kLineContents);
  return HashAnyBytes(bytes);
}

}  // namespace osprey::index
