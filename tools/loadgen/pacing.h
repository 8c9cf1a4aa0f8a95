// When operations are meant to start, in an open loop: at a rate, whatever the store does. What is
// late starts as soon as it can, and its intended time stays: a store that stops for a second is
// charged with what would have happened in that second (coordinated omission does not hide it).
//
// Thread rule: one thread at a time; one pacer a thread. The sum of threads with Poisson arrivals
// is again one.

#ifndef OSPREY_TOOLS_LOADGEN_PACING_H_
#define OSPREY_TOOLS_LOADGEN_PACING_H_

#include <cstdint>

#include "tools/loadgen/random.h"

namespace osprey::loadgen {

enum class Arrivals {
  kPoisson,  // gaps by an exponential distribution
  kFixed,    // all gaps alike
  kEtc,  // gaps by the generalized Pareto distribution of the Facebook ETC pool, scaled to the rate
};

class Pacer {
 public:
  // `rate` is in operations a second. The first is due within the first gap after `start_ns`; with
  // kFixed, at `phase` (0 ≤ phase < 1) of it, so that threads take turns. REQUIRES: rate > 0.
  Pacer(Arrivals arrivals, double rate, double phase, uint64_t seed, int64_t start_ns);

  // When the next operation is meant to start, on the clock of `start_ns`.
  int64_t due_ns() const { return start_ns_ + static_cast<int64_t>(after_ns_); }
  void Advance() { after_ns_ += NextGap(); }

 private:
  double NextGap();

  const Arrivals arrivals_;
  const double gap_ns_;
  const int64_t start_ns_;
  Random random_;
  double after_ns_;  // a double keeps a day to within 0.02 ns
};

}  // namespace osprey::loadgen

#endif  // OSPREY_TOOLS_LOADGEN_PACING_H_
