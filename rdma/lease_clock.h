// The clock by which rights and leases last: the larger of the time that CLOCK_BOOTTIME and the CPU's
// invariant TSC have measured.
//
//   LeaseClock clock(MachineClocks());           // SharedLeaseClock: for several threads
//   if (!clock.warning().empty()) log it
//   … clock.Now() < right.until() …
//
// A server whose clock stands still serves beyond its right, and a client answers beyond its lease.
// CLOCK_BOOTTIME goes on while the machine is suspended. But kvm-clock, on which it runs in a guest,
// stands still while the guest is paused. The TSC goes on then. So a jump of one of them is time that
// has passed.
//
// Both are compared since the last anchor, which moves at least every second of use, not since the
// start. *Else* one that has gained a minute over the months hides that it stands still: the other is
// a minute behind.
//
//        anchor                          anchor           now
//   ─────┼───────────────────────────────┼────────────────┼──>
//        the larger of both increments     the larger of both increments
//
// The TSC's frequency is measured against CLOCK_MONOTONIC_RAW at the start: three times, which may
// differ by a thousandth. *Else* a guest that is paused in between gets a wrong one. Without such a
// frequency, or an invariant TSC, only CLOCK_BOOTTIME counts, and warning() says so.

#ifndef OSPREY_RDMA_LEASE_CLOCK_H_
#define OSPREY_RDMA_LEASE_CLOCK_H_

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace osprey {

// What LeaseClock reads. Tests have their own.
class ClockSources {
 public:
  virtual ~ClockSources() = default;

  // CLOCK_BOOTTIME and CLOCK_MONOTONIC_RAW in nanoseconds, and the TSC: only differences count.
  // Thread-safe.
  virtual int64_t BootTimeNs() = 0;
  virtual int64_t RawTimeNs() = 0;
  virtual uint64_t Tsc() = 0;
  // Whether the TSC runs at one rate in all states of all CPUs. If not, Tsc is not called.
  virtual bool HasInvariantTsc() = 0;
  virtual void Sleep(absl::Duration time) = 0;
};

// Of this machine. Thread-safe.
std::unique_ptr<ClockSources> MachineClocks();

// Whether all processors in this text of /proc/cpuinfo have the flags constant_tsc and nonstop_tsc.
bool SaysInvariantTsc(absl::string_view cpuinfo);

// Thread rule: one thread.
class LeaseClock {
 public:
  // Takes 60 ms to measure the TSC, or 180 ms if the machine is disturbed.
  explicit LeaseClock(std::unique_ptr<ClockSources> sources);
  // A clock of its own with the frequency that `measured` has found, which takes no time. It is not
  // compared with other objects. REQUIRES: both sources are of one machine.
  LeaseClock(std::unique_ptr<ClockSources> sources, const LeaseClock& measured);

  // Time since some start; only differences are meaningful, and only of one object. Never goes back.
  absl::Time Now();

  // Why only CLOCK_BOOTTIME counts, and what to do; empty: both do.
  const std::string& warning() const { return warning_; }

 private:
  // Nanoseconds of a tick of the TSC; 0: it cannot be measured.
  double MeasureTsc();
  int64_t NsSinceAnchor(int64_t boot_time_ns, uint64_t tsc) const;

  const std::unique_ptr<ClockSources> sources_;
  double ns_per_tick_ = 0;  // 0: the TSC does not count
  std::string warning_;
  // The anchor is the values of both clocks, and what Now said then.
  int64_t anchor_boot_time_ns_ = 0;
  uint64_t anchor_tsc_ = 0;
  int64_t anchor_ns_ = 0;
  int64_t latest_ns_ = 0;
};

// The same for all threads together. Thread-safe, by a lock.
class SharedLeaseClock {
 public:
  explicit SharedLeaseClock(std::unique_ptr<ClockSources> sources) : clock_(std::move(sources)) {}

  absl::Time Now() {
    const std::lock_guard<std::mutex> lock(mutex_);
    return clock_.Now();
  }
  const std::string& warning() const { return clock_.warning(); }

 private:
  std::mutex mutex_;
  LeaseClock clock_;  // Now is guarded by mutex_
};

}  // namespace osprey

#endif  // OSPREY_RDMA_LEASE_CLOCK_H_
