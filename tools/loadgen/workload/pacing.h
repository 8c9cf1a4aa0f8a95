// Intended starts of operations in an open loop, at a rate that does not depend on the store. A
// late operation starts as soon as it can and keeps its intended time. So a store that stops for a
// second is charged for all operations of that second (no coordinated omission).
//
// Thread rule: one thread at a time; one pacer a thread. Threads with Poisson arrivals sum to a
// Poisson process.

#ifndef OSPREY_TOOLS_LOADGEN_WORKLOAD_PACING_H_
#define OSPREY_TOOLS_LOADGEN_WORKLOAD_PACING_H_

#include <cstdint>

#include "tools/loadgen/workload/random.h"

namespace osprey::loadgen {

enum class Arrivals {
  kPoisson,  // exponentially distributed gaps
  kFixed,    // equal gaps
  kEtc,      // gaps of the Facebook ETC pool (generalized Pareto), scaled to the rate
};

class Pacer {
 public:
  // `rate` is in operations a second. The first operation is due within the first gap after
  // `start_ns`; with kFixed, at `phase` (0 ≤ phase < 1) of it, so that threads alternate. REQUIRES:
  // rate > 0.
  Pacer(Arrivals arrivals, double rate, double phase, uint64_t seed, int64_t start_ns);

  // The intended start of the next operation, on the clock of `start_ns`.
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

#endif  // OSPREY_TOOLS_LOADGEN_WORKLOAD_PACING_H_
