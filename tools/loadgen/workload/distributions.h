// The random distributions of YCSB's core workloads (github.com/brianfrankcooper/YCSB), and those
// of the Facebook ETC pool.
//
// Zipf: Gray et al., "Quickly generating billion-record synthetic databases", SIGMOD 1994, in
// YCSB's form: constant time and memory a draw. The two most frequent ranks have exactly the
// probabilities of Zipf's law, the others those of a continuous curve through it.
//
// ETC: Atikoglu, Xu, Frachtenberg, Jiang, Paleczny, "Workload analysis of a large-scale key-value
// store", SIGMETRICS 2012, section 6: the fitted parameters, and the table of values below 15
// bytes, as github.com/leverich/mutilate uses them.
//
// …At(u) is the value for the uniform number `u` (0 ≤ u < 1). The caller supplies the random
// number, so that a test can choose the draw.
//
// Thread rule: const functions from any thread.

#ifndef OSPREY_TOOLS_LOADGEN_WORKLOAD_DISTRIBUTIONS_H_
#define OSPREY_TOOLS_LOADGEN_WORKLOAD_DISTRIBUTIONS_H_

#include <cstdint>

#include "tools/loadgen/workload/random.h"

namespace osprey::loadgen {

// YCSB's Utils.fnvhash64: FNV over the eight bytes, then its absolute value as a signed number. As
// Java's Math.abs, it leaves -2^63 unchanged.
int64_t FnvHash64(uint64_t value);

// The sum of 1/i^theta for i from 1 to `n`, with a relative error of 1e-11, in constant time. It
// uses the Euler-Maclaurin formula beyond the first terms. REQUIRES: n > 0, 0 < theta < 1.
double Zeta(uint64_t n, double theta);

class Zipfian {
 public:
  static constexpr double kTheta = 0.99;  // YCSB's

  // Ranks 0 … items-1; rank 0 is the most frequent. REQUIRES: items > 0, 0 < theta < 1.
  explicit Zipfian(uint64_t items, double theta = kTheta);

  uint64_t At(double u) const;
  uint64_t Next(Random& random) const { return At(random.NextDouble()); }

  // With an approximate sum of 1/i^theta, slightly different from that of `items`.
  Zipfian(uint64_t items, double theta, double zeta_items);

  // Constant time, too. REQUIRES: items > 0.
  void SetItems(uint64_t items);
  uint64_t items() const { return items_; }

 private:
  void Set(uint64_t items, double zeta_items);

  double theta_;
  double alpha_;
  uint64_t items_ = 0;
  double zeta_items_ = 0;
  double eta_ = 0;
  double second_ = 0;  // u * zeta below which the rank is 1
};

// Zipf over a fixed, huge number of items, whose ranks a hash scatters over the key space. So the
// popular keys stay the same when the space grows. YCSB's constants.
class ScrambledZipfian {
 public:
  static constexpr uint64_t kItems = 10'000'000'000;
  static constexpr double kZetaItems = 26.46902820178302;

  // Numbers first … last. REQUIRES: first ≤ last.
  ScrambledZipfian(uint64_t first, uint64_t last);

  uint64_t At(double u) const;
  uint64_t Next(Random& random) const { return At(random.NextDouble()); }

 private:
  uint64_t first_;
  uint64_t count_;
  Zipfian ranks_;
};

// A share of the draws goes to a share of the numbers, those at the beginning. Within each part all
// numbers are equally likely.
class Hotspot {
 public:
  // REQUIRES: first ≤ last, both shares 0 … 1.
  Hotspot(uint64_t first, uint64_t last, double hot_set, double hot_draws);

  uint64_t Next(Random& random) const;

 private:
  uint64_t first_;
  uint64_t hot_;   // numbers in the hot set
  uint64_t cold_;  // numbers outside it
  double hot_draws_;
};

// The distance from the newest key; `percentile` per cent of the draws are below `range`.
class Exponential {
 public:
  // REQUIRES: 0 < percentile < 100, range > 0.
  Exponential(double percentile, double range);

  // 0 < u ≤ 1.
  double At(double u) const;
  double Next(Random& random) const { return At(random.NextPositive()); }

 private:
  double scale_;
};

// Generalized extreme value distribution.
struct ExtremeValue {
  double location = 0;
  double scale = 1;
  double shape = 1;  // not 0

  // The quantile of `u`, 0 < u < 1.
  double At(double u) const;
};

// Generalized Pareto distribution.
struct Pareto {
  double location = 0;
  double scale = 1;
  double shape = 1;  // not 0

  // The quantile of `u`, 0 ≤ u < 1.
  double At(double u) const;
  // REQUIRES: shape < 1.
  double mean() const { return location + scale / (1 - shape); }
};

namespace etc {

inline constexpr ExtremeValue kKeyBytes{30.7984, 8.20449, 0.078688};
inline constexpr Pareto kValueBytes{0, 214.476, 0.348238};  // those of 15 bytes and more
inline constexpr Pareto kGapMicros{0, 16.0292, 0.154971};
inline constexpr uint64_t kKeyBytesMax = 250;        // memcached's
inline constexpr uint64_t kValueBytesMax = 1 << 20;  // likewise
// Of all requests, 1 in 31 is a SET (section 3 of the paper: GET:SET is 30:1).
inline constexpr double kUpdates = 1.0 / 31;

// The length of the key with this number: always the same. At most kKeyBytesMax.
uint64_t KeyBytes(uint64_t number);
// The length of one value. At most kValueBytesMax.
uint64_t ValueBytes(Random& random);

}  // namespace etc
}  // namespace osprey::loadgen

#endif  // OSPREY_TOOLS_LOADGEN_WORKLOAD_DISTRIBUTIONS_H_
