// Random numbers for load: xoshiro256++ (Blackman and Vigna, prng.di.unimi.it). A number takes a
// nanosecond, and a seed gives the same numbers on every machine.
//
// Thread rule: one thread at a time. Give each thread its own.

#ifndef OSPREY_TOOLS_LOADGEN_WORKLOAD_RANDOM_H_
#define OSPREY_TOOLS_LOADGEN_WORKLOAD_RANDOM_H_

#include <array>
#include <bit>
#include <cstdint>

namespace osprey::loadgen {

// Spreads the bits of `value`: different values give seemingly independent numbers (splitmix64).
constexpr uint64_t Mix64(uint64_t value) {
  value += 0x9e3779b97f4a7c15;
  value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9;
  value = (value ^ (value >> 27)) * 0x94d049bb133111eb;
  return value ^ (value >> 31);
}

class Random {
 public:
  explicit constexpr Random(uint64_t seed) {
    for (uint64_t& word : state_) word = seed = Mix64(seed);
  }

  constexpr uint64_t Next() {
    const uint64_t result = std::rotl(state_[0] + state_[3], 23) + state_[0];
    const uint64_t shifted = state_[1] << 17;
    state_[2] ^= state_[0];
    state_[3] ^= state_[1];
    state_[1] ^= state_[2];
    state_[0] ^= state_[3];
    state_[2] ^= shifted;
    state_[3] = std::rotl(state_[3], 45);
    return result;
  }

  // 0 ≤ x < 1, in steps of 2^-53.
  constexpr double NextDouble() { return static_cast<double>(Next() >> 11) * 0x1p-53; }
  // 0 < x ≤ 1: for logarithms.
  constexpr double NextPositive() { return static_cast<double>((Next() >> 11) + 1) * 0x1p-53; }

  // 0 ≤ x < bound, uniform up to bound/2^64. REQUIRES: bound > 0.
  constexpr uint64_t Below(uint64_t bound) {
    __extension__ using Wide = unsigned __int128;
    return static_cast<uint64_t>((static_cast<Wide>(Next()) * bound) >> 64);
  }

 private:
  std::array<uint64_t, 4> state_{};
};

}  // namespace osprey::loadgen

#endif  // OSPREY_TOOLS_LOADGEN_WORKLOAD_RANDOM_H_
