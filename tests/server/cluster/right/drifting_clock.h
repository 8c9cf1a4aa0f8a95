// A machine's clock in a simulation.

#ifndef OSPREY_TESTS_SERVER_CLUSTER_RIGHT_DRIFTING_CLOCK_H_
#define OSPREY_TESTS_SERVER_CLUSTER_RIGHT_DRIFTING_CLOCK_H_

#include <cstdint>

#include "absl/time/time.h"
#include "tests/support/split_mix64.h"

namespace osprey {

// It runs up to a tenth too fast or too slow, and that may change.
class DriftingClock {
 public:
  void Pass(absl::Duration time, SplitMix64& random) {
    if (random.Chance(1)) {
      // Often one of the ends.
      const uint64_t drawn = random.Below(41);
      percent_ = drawn < 10 ? 90 : drawn < 20 ? 110 : 70 + static_cast<int64_t>(drawn);
    }
    now_ += time * percent_ / 100;
  }
  absl::Time now() const { return now_; }

 private:
  absl::Time now_ = absl::UnixEpoch();
  int64_t percent_ = 100;
};

}  // namespace osprey

#endif  // OSPREY_TESTS_SERVER_CLUSTER_RIGHT_DRIFTING_CLOCK_H_
