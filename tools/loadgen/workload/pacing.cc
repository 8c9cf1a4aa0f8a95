#include "tools/loadgen/workload/pacing.h"

#include <cassert>
#include <cmath>

#include "tools/loadgen/workload/distributions.h"

namespace osprey::loadgen {

Pacer::Pacer(Arrivals arrivals, double rate, double phase, uint64_t seed, int64_t start_ns)
    : arrivals_(arrivals), gap_ns_(1e9 / rate), start_ns_(start_ns), random_(seed), after_ns_(0) {
  assert(rate > 0 && phase >= 0 && phase < 1);
  after_ns_ = arrivals == Arrivals::kFixed ? gap_ns_ * phase : NextGap();
}

double Pacer::NextGap() {
  switch (arrivals_) {
    case Arrivals::kPoisson:
      return -std::log(random_.NextPositive()) * gap_ns_;
    case Arrivals::kFixed:
      return gap_ns_;
    case Arrivals::kEtc:
      return etc::kGapMicros.At(random_.NextDouble()) / etc::kGapMicros.mean() * gap_ns_;
  }
  return gap_ns_;
}

}  // namespace osprey::loadgen
