// Hashes of keys, which determine where a key is stored, and of bytes, from which checksums are
// made.
//
//   bit  63            48 47            32 31                                   0
//        +---------------+----------------+--------------------------------------+
//        | home          | fingerprint    | directory index (low bits, as many   |
//        | (multiply-    | (16)           | as the directory is deep)            |
//        |  shift)       |                |                                      |
//        +---------------+----------------+--------------------------------------+
//
// The three share no bits. So keys that share a segment and a home still differ in their
// fingerprints.

#ifndef OSPREY_INDEX_LAYOUT_HASH_H_
#define OSPREY_INDEX_LAYOUT_HASH_H_

#include <cstdint>

#include "absl/strings/string_view.h"
#include "index/layout/layout.h"
#include "index/layout/long_hash.h"

namespace osprey::index {

static_assert(kDirectoryDepthMax <= 32);

// XXH3-64 of a key under the region's seed.
struct KeyHash {
  uint64_t bits = 0;

  constexpr uint32_t directory_index(uint32_t depth) const {
    return static_cast<uint32_t>(bits & ((uint64_t{1} << depth) - 1));
  }
  // The number of the key's home line within its segment.
  constexpr uint32_t home() const {
    return static_cast<uint32_t>((bits >> 48) * kHomesPerSegment >> 16);
  }
  constexpr uint32_t fingerprint() const { return static_cast<uint32_t>(bits >> 32 & 0xffff); }
};
KeyHash HashKey(absl::string_view key, uint64_t seed);

// A key with its hash, for callers that have computed it.
struct HashedKey {
  absl::string_view key;
  KeyHash hash;
};

// Unseeded XXH3-64. Record checksums are made of it, and a rendezvous request carries that of its
// value.
uint64_t HashBytes(ByteSpan bytes);

}  // namespace osprey::index

#endif  // OSPREY_INDEX_LAYOUT_HASH_H_
