// Random numbers for simulations: fast, and the same with every compiler and library. (Draw one at
// a time: the compiler chooses the order in which the arguments of a call are evaluated.)

#ifndef OSPREY_TESTS_SUPPORT_SPLIT_MIX64_H_
#define OSPREY_TESTS_SUPPORT_SPLIT_MIX64_H_

#include <cstdint>
#include <utility>
#include <vector>

namespace osprey {

// SplitMix64 (Steele, Lea and Flood, "Fast splittable pseudorandom number generators", 2014).
class SplitMix64 {
 public:
  explicit SplitMix64(uint64_t seed) : state_(seed) {}

  uint64_t Next() {
    uint64_t z = state_ += 0x9e3779b97f4a7c15;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
    z = (z ^ z >> 27) * 0x94d049bb133111eb;
    return z ^ z >> 31;
  }
  // 0 … below - 1. REQUIRES: below > 0.
  uint64_t Below(uint64_t below) {
    return static_cast<uint64_t>(static_cast<unsigned __int128>(Next()) * below >> 64);
  }
  bool Chance(uint64_t percent) { return Below(100) < percent; }
  // The number of trials before an event of probability `per_10k` in 10,000. One draw of this costs
  // less than a draw for each trial. UINT64_MAX: never.
  uint64_t Gap(uint64_t per_10k) {
    if (per_10k == 0) return UINT64_MAX;
    if (per_10k >= 10000) return 0;
    // Uniform instead of geometric, with the same mean; no caller depends on more.
    return Below(2 * (10000 / per_10k) - 1);
  }
  template <typename T>
  void Shuffle(std::vector<T>& all) {
    for (size_t i = all.size(); i > 1; --i) std::swap(all[i - 1], all[Below(i)]);
  }

 private:
  uint64_t state_;
};

}  // namespace osprey

#endif  // OSPREY_TESTS_SUPPORT_SPLIT_MIX64_H_
