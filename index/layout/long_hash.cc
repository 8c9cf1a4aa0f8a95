#include "index/layout/long_hash.h"

#include <cassert>

#include "xxhash.h"
#ifdef __x86_64__
// Replaces the functions below by variants that select SSE2, AVX2 or AVX-512 at run time. On a
// Zen 5, 1 KiB takes 18 ns instead of 44, and 64 KiB runs at 106 GB/s instead of 24.
#include "xxh_x86dispatch.h"
#endif

namespace osprey::index {

uint64_t LongHash(const void* data, size_t bytes) { return XXH3_64bits(data, bytes); }

uint64_t LongHash(const void* data, size_t bytes, uint64_t seed) {
  return XXH3_64bits_withSeed(data, bytes, seed);
}

BytesHasher::BytesHasher() : state_(XXH3_createState()) {
  assert(state_ != nullptr);
  XXH3_64bits_reset(state_);
}
BytesHasher::~BytesHasher() { XXH3_freeState(state_); }

void BytesHasher::Update(absl::Span<const std::byte> piece) {
  XXH3_64bits_update(state_, piece.data(), piece.size());
}
uint64_t BytesHasher::Digest() const { return XXH3_64bits_digest(state_); }

}  // namespace osprey::index
