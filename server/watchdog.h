// Tells the service manager again and again that the server lives, as long as it does (systemd's
// WatchdogSec=): when it has not been told for so long, it ends the server and starts another.

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
  // After how long without a word the manager acts, as the environment's WATCHDOG_USEC says;
  // infinite: it does not watch this process.
  static absl::Duration Patience();

  // Tells twice in each `patience`, unless check() says why not: that is logged, once. With an
  // infinite one it does nothing. `check` is called on a thread of this one's own.
  // Errors: RESOURCE_EXHAUSTED, there is no thread to be had.
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
