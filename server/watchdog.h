// Notifies the service manager regularly while the server is healthy (systemd's WatchdogSec=).
// Without a notice for that time, the manager ends the server and starts another.

#ifndef OSPREY_SERVER_WATCHDOG_H_
#define OSPREY_SERVER_WATCHDOG_H_

#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace osprey::server {

// Its thread ends with it.
class Watchdog {
 public:
  // The manager's time limit, from the environment's WATCHDOG_USEC; infinite: it does not watch
  // this process.
  static absl::Duration Patience();

  // Notifies twice in each `patience`, unless check() returns an error, which is logged once. No
  // effect with an infinite patience. `check` is called on a thread of this object. Errors:
  // RESOURCE_EXHAUSTED: no thread is available.
  static absl::StatusOr<std::unique_ptr<Watchdog>> Start(absl::Duration patience,
                                                         std::function<absl::Status()> check);
  ~Watchdog();
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

 private:
  explicit Watchdog(std::function<absl::Status()> check) : check_(std::move(check)) {}
  void Run(absl::Duration every);

  const std::function<absl::Status()> check_;
  std::mutex mutex_;
  std::condition_variable ended_;
  bool ends_ = false;  // under the mutex
  std::thread thread_;
};

}  // namespace osprey::server

#endif  // OSPREY_SERVER_WATCHDOG_H_
