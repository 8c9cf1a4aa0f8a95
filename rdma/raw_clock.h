// The clock that servers and clients run by: CLOCK_MONOTONIC_RAW, the machine's oscillator as it
// is.
//
// Keys expire by the server's clock, of which a client extrapolates an estimate between answers
// (client/server_clock.h). That is sound only as far as the rates of both clocks are known.
// CLOCK_MONOTONIC has no such bound: adjtimex may slew it by 10 % (its tick), and time daemons do
// by 5 %. What NTP corrects, 500 ppm at most, bounds the error of the raw clock.
//
// The kernel's timers (poll, ppoll, condition variables) run by CLOCK_MONOTONIC: a wait of `d` may
// last 10 % more or less than `d` by this clock. So a deadline is judged by this clock, after the
// wait.
//
// As cheap as CLOCK_MONOTONIC from Linux 5.3 on (both are read in the vDSO), a system call before.

#ifndef OSPREY_RDMA_RAW_CLOCK_H_
#define OSPREY_RDMA_RAW_CLOCK_H_

#include <time.h>

#include "absl/time/time.h"

namespace osprey {

// Since the machine started: only differences mean something. Never goes back; it is neither set
// nor slewed. Thread-safe.
inline absl::Duration RawClock() {
  timespec now = {};
  clock_gettime(CLOCK_MONOTONIC_RAW, &now);
  return absl::DurationFromTimespec(now);
}

}  // namespace osprey

#endif  // OSPREY_RDMA_RAW_CLOCK_H_
