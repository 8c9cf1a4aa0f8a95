// XXH3-64 of inputs of any length, by the variant for the CPU that runs it.

#ifndef OSPREY_INDEX_LAYOUT_LONG_HASH_H_
#define OSPREY_INDEX_LAYOUT_LONG_HASH_H_

#include <cstddef>
#include <cstdint>

#include "absl/types/span.h"

struct XXH3_state_s;

namespace osprey::index {

uint64_t LongHash(const void* data, size_t bytes);
uint64_t LongHash(const void* data, size_t bytes, uint64_t seed);

// The unseeded hash of bytes that come in pieces, in order. Not thread-safe.
class BytesHasher {
 public:
  BytesHasher();
  ~BytesHasher();
  BytesHasher(const BytesHasher&) = delete;
  BytesHasher& operator=(const BytesHasher&) = delete;

  void Update(absl::Span<const std::byte> piece);
  uint64_t Digest() const;

 private:
  XXH3_state_s* state_;
};

}  // namespace osprey::index

#endif  // OSPREY_INDEX_LAYOUT_LONG_HASH_H_
