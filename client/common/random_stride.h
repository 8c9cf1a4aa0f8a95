// Samples one in `stride`, at random distances, so that a rhythm of the application does not bias
// the sample.

#ifndef OSPREY_CLIENT_COMMON_RANDOM_STRIDE_H_
#define OSPREY_CLIENT_COMMON_RANDOM_STRIDE_H_

#include <cstdint>

namespace osprey::client {

class RandomStride {
 public:
  RandomStride(uint64_t seed, uint32_t stride) : stride_(stride), random_(seed | 1) { Draw(); }

  // Whether to sample this one.
  bool Hit() {
    if (--distance_ > 0) return false;
    Draw();
    return true;
  }
  uint32_t stride() const { return stride_; }
  // Takes effect after the next sample.
  void set_stride(uint32_t stride) { stride_ = stride; }

 private:
  // Between 1 and 2 * stride - 1, so the mean is the stride.
  void Draw() {
    random_ ^= random_ << 13;
    random_ ^= random_ >> 7;
    random_ ^= random_ << 17;
    distance_ = 1 + static_cast<uint32_t>((random_ >> 32) * (2 * uint64_t{stride_} - 1) >> 32);
  }

  uint32_t stride_;
  uint32_t distance_ = 1;
  uint64_t random_;  // xorshift64
};

}  // namespace osprey::client

#endif  // OSPREY_CLIENT_COMMON_RANDOM_STRIDE_H_
