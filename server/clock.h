// The server's clock, by which keys expire. It never decreases. It starts near the wall clock, or
// where the clock of an earlier life ended, if that is later. It runs at the raw clock's rate, which
// is bounded, unlike the rate of a slewed clock.

#ifndef OSPREY_SERVER_CLOCK_H_
#define OSPREY_SERVER_CLOCK_H_

#include <algorithm>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "rdma/raw_clock.h"

namespace osprey::server {

// Thread-safe.
class Clock {
 public:
  absl::Time Now() const { return started_ + (RawClock() - raw_at_start_); }
  absl::Time Started() const { return started_; }
  // Not earlier than that from now on. REQUIRES: no other thread uses it yet.
  void StartAt(absl::Time earliest) {
    started_ += std::max(earliest - Now(), absl::ZeroDuration());
  }

 private:
  absl::Time started_ = absl::Now();
  const absl::Duration raw_at_start_ = RawClock();
};

}  // namespace osprey::server

#endif  // OSPREY_SERVER_CLOCK_H_
