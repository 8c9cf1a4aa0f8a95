// The ghosts: what is remembered of keys that were evicted. A key that comes back while its ghost is here
// was evicted too early, and stays longer (evictor.h). The idea is that of S3-FIFO (SOSP '23).
//
//   bucket   | newest |   |   |   |   |   |   | oldest |    eight fingerprints of 16 bits; 0: none
//
// A key's bucket follows from its hash. A ninth ghost takes the place of the bucket's oldest. The number
// of buckets follows the number of keys, one bucket an eviction, by linear hashing: of bucket b and
// b + 2^k the second is new, and the first goes on alone until then. So nothing is copied.
//
// A ghost costs 2 B of private memory. A fingerprint of another key is taken for the key's in 1 of
// 8,192 insertions; it then stays longer than it should, and nothing else happens.
//
// Not thread-safe.

#ifndef OSPREY_INDEX_SEGMENTS_GHOSTS_H_
#define OSPREY_INDEX_SEGMENTS_GHOSTS_H_

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "index/layout/hash.h"

namespace osprey::index {

class Ghosts {
 public:
  static constexpr uint64_t kBucketGhosts = 8;

  // Remembers the key. `target`: the capacity that there should be, in ghosts. The capacity changes towards it
  // by one bucket.
  void Add(KeyHash hash, uint64_t target) {
    Resize(target / kBucketGhosts);
    if (buckets_ == 0) return;
    Bucket& bucket = BucketOf(hash);
    std::copy_backward(bucket.begin(), bucket.end() - 1, bucket.end());
    bucket.front() = FingerprintOf(hash);
  }
  // Forgets the key. False: it was not there.
  bool Take(KeyHash hash) {
    if (buckets_ == 0) return false;
    Bucket& bucket = BucketOf(hash);
    const auto found = std::find(bucket.begin(), bucket.end(), FingerprintOf(hash));
    if (found == bucket.end()) return false;
    std::copy(found + 1, bucket.end(), found);
    bucket.back() = kNone;
    return true;
  }
  // How many there is room for.
  uint64_t capacity() const { return buckets_ * kBucketGhosts; }
  uint64_t bytes() const { return blocks_.size() * sizeof(Block); }

 private:
  using Bucket = std::array<uint16_t, kBucketGhosts>;
  static constexpr uint64_t kBlockBuckets = 4096;
  using Block = std::array<Bucket, kBlockBuckets>;
  static constexpr uint16_t kNone = 0;

  static uint16_t FingerprintOf(KeyHash hash) {
    return static_cast<uint16_t>(std::max(hash.fingerprint(), uint32_t{1}));
  }
  Bucket& At(uint64_t number) { return (*blocks_[number / kBlockBuckets])[number % kBlockBuckets]; }
  // Of the bits that are not in the fingerprint.
  Bucket& BucketOf(KeyHash hash) {
    const uint64_t others = (hash.bits >> 48 << 32) | (hash.bits & UINT32_MAX);
    const uint64_t mixed = others * 0x9e37'79b9'7f4a'7c15 >> 32;
    const uint64_t number = mixed & (2 * half_ - 1);
    return At(number < buckets_ ? number : number & (half_ - 1));
  }
  void Resize(uint64_t target) {
    if (buckets_ < target) {
      if (buckets_ == blocks_.size() * kBlockBuckets) blocks_.push_back(std::make_unique<Block>());
      At(buckets_).fill(kNone);
      ++buckets_;
      if (buckets_ == 2 * half_ && buckets_ > 1) half_ = buckets_;
    } else if (buckets_ > target) {
      --buckets_;
      if (buckets_ < half_ && half_ > 1) half_ /= 2;
      if (buckets_ + kBlockBuckets == blocks_.size() * kBlockBuckets) blocks_.pop_back();
    }
  }

  std::vector<std::unique_ptr<Block>> blocks_;
  uint64_t buckets_ = 0;
  uint64_t half_ = 1;  // the largest power of 2 that is at most buckets_, or 1
};

}  // namespace osprey::index

#endif  // OSPREY_INDEX_SEGMENTS_GHOSTS_H_
