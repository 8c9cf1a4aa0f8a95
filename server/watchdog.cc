#include "server/watchdog.h"

#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <string>
#include <system_error>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "server/log.h"
#include "server/monitoring/signals_blocked.h"
#include "server/service_manager.h"

namespace osprey::server {

absl::Duration Watchdog::Patience() {
  const char* const usec = std::getenv("WATCHDOG_USEC");
  int64_t patience_us = 0;
  if (usec == nullptr || !absl::SimpleAtoi(usec, &patience_us) || patience_us <= 0)
    return absl::InfiniteDuration();
  // The environment may address another process of the service.
  const char* const pid = std::getenv("WATCHDOG_PID");
  if (pid != nullptr && absl::StrCat(getpid()) != pid) return absl::InfiniteDuration();
  return absl::Microseconds(patience_us);
}

absl::StatusOr<std::unique_ptr<Watchdog>> Watchdog::Start(absl::Duration patience,
                                                          std::function<absl::Status()> check) {
  std::unique_ptr<Watchdog> watchdog(new Watchdog(std::move(check)));
  if (patience == absl::InfiniteDuration()) return watchdog;
  const SignalsBlocked blocked;
  try {
    watchdog->thread_ =
        std::thread([patience, started = watchdog.get()] { started->Run(patience / 2); });
  } catch (const std::system_error& error) {
    return absl::ResourceExhaustedError(
        absl::StrCat("cannot start the thread that notifies the service manager: ", error.what(),
                     "; allow more threads (TasksMax=, ulimit -u)"));
  }
  return watchdog;
}

Watchdog::~Watchdog() {
  if (!thread_.joinable()) return;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    ends_ = true;
  }
  ended_.notify_one();
  thread_.join();
}

void Watchdog::Run(absl::Duration every) {
  bool was_well = true;
  std::unique_lock<std::mutex> lock(mutex_);
  while (!ends_) {
    const absl::Status status = check_();
    if (status.ok()) TellServiceManager("WATCHDOG=1");
    if (!status.ok() && was_well)
      Log(absl::StrCat(status.message(), "; the service manager is not notified"));
    was_well = status.ok();
    ended_.wait_for(lock, absl::ToChronoNanoseconds(every), [this] { return ends_; });
  }
}

}  // namespace osprey::server
