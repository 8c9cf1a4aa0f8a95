// The server's clock, by which keys expire: never goes back, runs as the raw clock does (its rate
// is bounded, where that of a slewed clock is not), and is near the wall clock at the start.

#ifndef OSPREY_SERVER_CLOCK_H_
#define OSPREY_SERVER_CLOCK_H_

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "rdma/raw_clock.h"

namespace osprey::server {

// Thread-safe.
class Clock {
 public:
  absl::Time Now() const { return started_ + (RawClock() - raw_at_start_); }
  absl::Time Started() const { return started_; }

 private:
  const absl::Time started_ = absl::Now();
  const absl::Duration raw_at_start_ = RawClock();
};

}  // namespace osprey::server

#endif  // OSPREY_SERVER_CLOCK_H_
