// The heartbeat of a poller: whether it turns, and how much of its time it is busy. Its thread
// writes it once a turn; other threads read it without delaying it.
//
//   heartbeat.Turns(now, worked)      begins each turn; `worked`: the one before had work
//   heartbeat.Sleeps(until)           before the poller sleeps; the next turn ends the sleep
//   heartbeat.Idle(now)               how long it has had no work
//   heartbeat.Read(now).late          how long its next turn has been overdue
//
// Thread rule: Turns, Sleeps and Idle on the poller's thread, Read on any.

#ifndef OSPREY_SERVER_MONITORING_POLLER_HEARTBEAT_H_
#define OSPREY_SERVER_MONITORING_POLLER_HEARTBEAT_H_

#include <algorithm>
#include <atomic>
#include <cstdint>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "absl/types/span.h"

namespace osprey::server {

// On its own cache lines.
class alignas(128) PollerHeartbeat {
 public:
  struct Reading {
    uint64_t turns = 0;
    absl::Duration busy;  // of all its turns so far that had work
    absl::Duration late;  // since a turn should have begun; includes the current turn
  };

  void Turns(absl::Time now, bool worked) {
    const int64_t now_ns = absl::ToUnixNanos(now);
    // One thread writes, so it can read its own last value without ordering.
    const int64_t begun_ns = begun_ns_.load(std::memory_order_relaxed);
    if (worked) Add(busy_ns_, now_ns - begun_ns);
    if (worked || begun_ns == kNotBegun) idle_since_ns_ = now_ns;
    Add(turns_, 1);
    begun_ns_.store(now_ns, std::memory_order_relaxed);
    // Release, with Read's acquire: a reader that sees kAwake also sees the begin of this turn.
    wakes_ns_.store(kAwake, std::memory_order_release);
  }
  void Sleeps(absl::Time until) {
    const int64_t until_ns = until == absl::InfiniteFuture() ? kWhenever : absl::ToUnixNanos(until);
    wakes_ns_.store(until_ns, std::memory_order_relaxed);
  }

  // The time since the end of the last turn with work, when its answers were sent; before one,
  // since the first turn. For the poller itself.
  absl::Duration Idle(absl::Time now) const {
    return absl::Nanoseconds(absl::ToUnixNanos(now) - idle_since_ns_);
  }

  Reading Read(absl::Time now) const {
    const int64_t wakes_ns = wakes_ns_.load(std::memory_order_acquire);
    const int64_t due_ns =
        wakes_ns == kAwake ? begun_ns_.load(std::memory_order_relaxed) : wakes_ns;
    Reading reading;
    reading.turns = static_cast<uint64_t>(turns_.load(std::memory_order_relaxed));
    reading.busy = absl::Nanoseconds(busy_ns_.load(std::memory_order_relaxed));
    if (due_ns != kNotBegun && due_ns != kWhenever)
      reading.late = std::max(now - absl::FromUnixNanos(due_ns), absl::ZeroDuration());
    return reading;
  }

 private:
  static constexpr int64_t kNotBegun = 0;
  static constexpr int64_t kAwake = 0;
  static constexpr int64_t kWhenever = INT64_MAX;

  static void Add(std::atomic<int64_t>& sum, int64_t more) {
    sum.store(sum.load(std::memory_order_relaxed) + more, std::memory_order_relaxed);
  }

  std::atomic<int64_t> begun_ns_{kNotBegun};  // of the present or last turn
  std::atomic<int64_t> wakes_ns_{kAwake};     // the latest end of its sleep
  std::atomic<int64_t> busy_ns_{0};
  std::atomic<int64_t> turns_{0};
  int64_t idle_since_ns_ = 0;  // of the poller's thread alone
};

// A turn takes some hundred microseconds. A machine that is short of processors may stop it for
// much longer, but not for this long.
inline constexpr absl::Duration kStuckAfter() { return absl::Seconds(5); }

// The latest end of a sleep from `now` on for a timer. The kernel's timers run by a clock that may
// be slewed by 10 % (rdma/raw_clock.h). A sleep as long as sessions are kept would end so late that
// the poller counted as stuck.
inline absl::Time SleepEnd(absl::Time timer, absl::Time now) {
  constexpr absl::Duration kSleepMax = absl::Seconds(10);
  return std::clamp(timer, now, now + kSleepMax);
}

// UNAVAILABLE, with its number, if a poller's turn has been overdue for kStuckAfter.
inline absl::Status CheckTurning(absl::Span<const PollerHeartbeat> heartbeats, absl::Time now) {
  for (size_t i = 0; i < heartbeats.size(); ++i) {
    const absl::Duration late = heartbeats[i].Read(now).late;
    if (late < kStuckAfter()) continue;
    return absl::UnavailableError(absl::StrCat("poller ", i, " has not turned for ",
                                               absl::ToInt64Seconds(late),
                                               " s; what it hangs in is in its stack (gdb -p)"));
  }
  return absl::OkStatus();
}

}  // namespace osprey::server

#endif  // OSPREY_SERVER_MONITORING_POLLER_HEARTBEAT_H_
