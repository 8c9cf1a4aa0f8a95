// The server's clock, by which keys expire. It never decreases, but for Restart. It starts near the
// wall clock. If the clock of an earlier life, or of another server of the cluster, has ended later, it
// goes on from there. It runs at the raw clock's rate, which is bounded, unlike the rate of a slewed
// clock.

#ifndef OSPREY_SERVER_CLOCK_H_
#define OSPREY_SERVER_CLOCK_H_

#include <atomic>
#include <cstdint>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "rdma/raw_clock.h"

namespace osprey::server {

// Thread-safe.
class Clock {
 public:
  absl::Time Now() const { return Started() + (RawClock() - raw_at_start_); }
  absl::Time Started() const {
    const int64_t ahead_ns = ahead_ns_.load(std::memory_order_relaxed);
    return ahead_ns == 0 ? started_ : started_ + absl::Nanoseconds(ahead_ns);
  }
  // As a new clock: it may be earlier from now on. For what has not used it. REQUIRES: as AdvanceTo.
  void Restart() { ahead_ns_.store(0, std::memory_order_relaxed); }
  // Not earlier than that from now on, on threads that synchronise with this one. REQUIRES: no other
  // thread does so at the same time.
  void AdvanceTo(absl::Time earliest) {
    const absl::Duration missing = earliest - Now();
    if (missing <= absl::ZeroDuration()) return;
    const int64_t ahead_ns = ahead_ns_.load(std::memory_order_relaxed);
    // A nanosecond more, for what the conversion cuts off.
    ahead_ns_.store(ahead_ns + absl::ToInt64Nanoseconds(missing) + 1, std::memory_order_relaxed);
  }

 private:
  const absl::Time started_ = absl::Now();
  const absl::Duration raw_at_start_ = RawClock();
  std::atomic<int64_t> ahead_ns_{0};  // of started_
};

}  // namespace osprey::server

#endif  // OSPREY_SERVER_CLOCK_H_
