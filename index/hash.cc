#include "index/hash.h"

#include <cassert>

#include "xxhash.h"

// The library is linked, not inlined: with gcc and clang alike XXH_INLINE_ALL measured the same
// within the noise (7 ns for 16 B, 11 ns for 112 B, 16 GB/s at 1 MiB).

namespace osprey::index {

KeyHash HashKey(absl::string_view key, uint64_t seed) {
  return {XXH3_64bits_withSeed(key.data(), key.size(), seed)};
}

uint64_t HashBytes(ByteSpan bytes) { return XXH3_64bits(bytes.data(), bytes.size()); }

BytesHasher::BytesHasher() : state_(XXH3_createState()) {
  assert(state_ != nullptr);
  XXH3_64bits_reset(state_);
}
BytesHasher::~BytesHasher() { XXH3_freeState(state_); }

void BytesHasher::Update(ByteSpan piece) { XXH3_64bits_update(state_, piece.data(), piece.size()); }
uint64_t BytesHasher::Digest() const { return XXH3_64bits_digest(state_); }

}  // namespace osprey::index
