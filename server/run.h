// The threads of a server: each drives one engine, sleeps without work, and ends when all must end.

#ifndef OSPREY_SERVER_RUN_H_
#define OSPREY_SERVER_RUN_H_

#include <atomic>
#include <functional>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "server/config/config.h"
#include "server/engine/engine.h"
#include "server/monitoring/poller_heartbeat.h"

namespace osprey::server {

// Tells every thread of the server to end, for good. Thread-safe; a signal handler may call Ring.
class StopBell {
 public:
  StopBell();  // not valid(), and unusable, if there is no descriptor
  ~StopBell();
  StopBell(const StopBell&) = delete;
  StopBell& operator=(const StopBell&) = delete;

  bool valid() const { return fd_ >= 0; }
  void Ring();
  bool rung() const { return rung_.load(std::memory_order_relaxed); }
  // True after Ring; for work that polls it.
  const std::atomic<bool>& flag() const { return rung_; }
  // Readable after Ring.
  int fd() const { return fd_; }

 private:
  // Relaxed: it guards no other memory, and the descriptor ends the sleep.
  std::atomic<bool> rung_{false};
  static_assert(std::atomic<bool>::is_always_lock_free, "a signal handler may use nothing else");
  const int fd_;
};

// Drives the engines, each with the heartbeat of its number, until `bell` rings and all are done. A
// failing engine rings it, too. The first engine runs on this thread, each other on one of its own.
// `now` is thread-safe and never decreases. `started` is called once all threads exist, `ending` when
// they begin to end: not OK says why an engine fails, and may come from several of them. Returns OK
// after a requested end, otherwise the failure of an engine. RESOURCE_EXHAUSTED: no thread is
// available, and `started` was not called.
absl::Status RunEngines(absl::Span<Engine* const> engines, absl::Span<PollerHeartbeat> heartbeats,
                        PollMode mode, const std::function<absl::Time()>& now,
                        const std::function<void()>& started,
                        const std::function<void(const absl::Status&)>& ending, StopBell& bell);

}  // namespace osprey::server

#endif  // OSPREY_SERVER_RUN_H_
