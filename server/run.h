// The threads of a server: each drives one engine, sleeps when there is nothing to do, and ends
// when all are asked to.

#ifndef OSPREY_SERVER_RUN_H_
#define OSPREY_SERVER_RUN_H_

#include <atomic>
#include <functional>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "server/config.h"
#include "server/engine.h"
#include "server/pulse.h"

namespace osprey::server {

// Asks every thread of the server to end. Once rung it stays so. Thread-safe, and Ring may be
// called by a signal handler.
class StopBell {
 public:
  StopBell();  // with no descriptor to be had it is not valid(), and good for nothing
  ~StopBell();
  StopBell(const StopBell&) = delete;
  StopBell& operator=(const StopBell&) = delete;

  bool valid() const { return fd_ >= 0; }
  void Ring();
  bool rung() const { return rung_.load(std::memory_order_relaxed); }
  // Readable from then on.
  int fd() const { return fd_; }

 private:
  // Relaxed: it guards no other memory, and the descriptor ends the sleep.
  std::atomic<bool> rung_{false};
  static_assert(std::atomic<bool>::is_always_lock_free, "a signal handler may use nothing else");
  const int fd_;
};

// Drives the engines, each with the pulse of its number, until `bell` rings (which one of them does
// if it fails) and all are done: the first on this thread, each other on one of its own. `now` is
// thread-safe and never goes back. `started` is called once all threads are there. OK when the end
// was asked for; else why one failed, or RESOURCE_EXHAUSTED (no thread to be had; `started` was not
// called).
absl::Status RunEngines(absl::Span<Engine* const> engines, absl::Span<Pulse> pulses, PollMode mode,
                        const std::function<absl::Time()>& now,
                        const std::function<void()>& started, StopBell& bell);

}  // namespace osprey::server

#endif  // OSPREY_SERVER_RUN_H_
