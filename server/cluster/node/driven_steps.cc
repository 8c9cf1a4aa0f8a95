#include "server/cluster/node/driven_steps.h"

#include <sched.h>

#include <algorithm>

#include "absl/time/clock.h"

namespace osprey::server {
namespace {

// Of one Commit. Then its poller may be asked for its sessions.
constexpr absl::Duration kDriveMax() { return absl::Milliseconds(10); }
// A sleeper tries again to get the lock.
constexpr absl::Duration kLockedStep() { return absl::Milliseconds(1); }

}  // namespace

bool Await(std::vector<pollfd>& waits, absl::Duration max) {
  const timespec timeout = absl::ToTimespec(std::max(max, absl::ZeroDuration()));
  return ppoll(waits.data(), waits.size(), &timeout, nullptr) > 0 && waits[0].revents != 0;
}

std::unique_lock<std::mutex> DrivenSteps::Lock() {
  is_wanted_ = true;
  std::unique_lock<std::mutex> lock(mutex_);
  is_wanted_ = false;
  return lock;
}

void DrivenSteps::WakeSleeper() {
  if (has_sleeper_) sleeper_wake_.Ring();
}

void DrivenSteps::Drive(absl::FunctionRef<bool()> is_over) {
  const absl::Time began = absl::Now();
  const bool sleeps = !has_sleeper_.exchange(true);
  bool over = false;
  if (spin_ > absl::ZeroDuration() && spins_.Begins()) {
    over = DriveUntil(began + spin_, is_over, [] { sched_yield(); });
    spins_.End(over);
  }
  if (!over && sleeps) over = DriveUntil(began + kDriveMax(), is_over, [this] { AwaitLinks(); });
  if (sleeps) {
    has_sleeper_ = false;
  } else {
    WakeSleeper();
  }
  if (over && !(sleeps && work_.IsAwaitedByOthers())) return;
  is_driven_ = false;
  wake_.Ring();
}

bool DrivenSteps::DriveUntil(absl::Time end, absl::FunctionRef<bool()> is_over,
                             absl::FunctionRef<void()> pause) {
  do {
    const bool worked = DriveStep();
    if (is_over()) return true;
    if (!worked) pause();
  } while (absl::Now() < end);
  return false;
}

bool DrivenSteps::DriveStep() {
  if (is_wanted_) return false;
  const std::unique_lock<std::mutex> lock(mutex_, std::try_to_lock);
  if (!lock.owns_lock()) return false;
  is_driven_ = true;
  return work_.DriveStep();
}

void DrivenSteps::AwaitLinks() {
  std::vector<pollfd> waits = {{sleeper_wake_.fd(), POLLIN, 0}};
  absl::Duration time = kLockedStep();
  {
    const std::unique_lock<std::mutex> lock(mutex_, std::try_to_lock);
    if (lock.owns_lock()) {
      if (!work_.ArmLinks(waits)) return;
      time = kDriveMax();
    }
  }
  if (Await(waits, time)) sleeper_wake_.Clear();
}

}  // namespace osprey::server
