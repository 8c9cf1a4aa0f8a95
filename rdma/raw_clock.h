// The clock of servers and clients: CLOCK_MONOTONIC_RAW, the machine's oscillator without
// corrections.
//
// Keys expire by the server's clock. A client extrapolates an estimate of it between answers
// (client/common/server_clock.h), which is sound only if the rates of both clocks have a bound.
// CLOCK_MONOTONIC has no such bound: adjtimex may slew it by 10 % (its tick), and time daemons do
// by 5 %. The error of the raw clock has one: NTP's largest correction, 500 ppm.
//
// The kernel's timers (poll, ppoll, condition variables) run by CLOCK_MONOTONIC. A wait of `d` may
// last 10 % more or less than `d` by this clock. So a deadline is judged by this clock, after the
// wait.
//
// It is as cheap as CLOCK_MONOTONIC from Linux 5.3 on (both are read in the vDSO), and a system
// call before.

#ifndef OSPREY_RDMA_RAW_CLOCK_H_
#define OSPREY_RDMA_RAW_CLOCK_H_

#include <time.h>

#include <cstdint>

#include "absl/time/time.h"

namespace osprey {

// Time since the machine started; only differences are meaningful. Never goes back; it is neither
// set nor slewed. Thread-safe.
inline int64_t RawClockNs() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC_RAW, &now);
  return now.tv_sec * int64_t{1'000'000'000} + now.tv_nsec;
}
inline absl::Duration RawClock() { return absl::Nanoseconds(RawClockNs()); }

}  // namespace osprey

#endif  // OSPREY_RDMA_RAW_CLOCK_H_
