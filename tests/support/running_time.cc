#include "tests/support/running_time.h"

#include "absl/time/clock.h"

namespace osprey {
namespace {

constexpr absl::Duration kNap = absl::Milliseconds(5);
constexpr absl::Duration kUsualLateness = absl::Milliseconds(5);  // on a machine that runs

absl::Duration LatenessAfter(absl::Duration nap) {
  return nap > kNap + kUsualLateness ? nap - kNap : absl::ZeroDuration();
}

}  // namespace

RunningTime::RunningTime() : start_(absl::Now()), woke_(start_), watcher_([this] { Watch(); }) {}

RunningTime::~RunningTime() {
  ends_ = true;
  watcher_.join();
}

absl::Duration RunningTime::Passed() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  const absl::Time now = absl::Now();
  // The pause may have ended just now, and the caller run first.
  return now - start_ - late_ - LatenessAfter(now - woke_);
}

void RunningTime::Watch() {
  while (!ends_) {
    absl::SleepFor(kNap);
    const std::lock_guard<std::mutex> lock(mutex_);
    const absl::Time now = absl::Now();
    late_ += LatenessAfter(now - woke_);
    woke_ = now;
  }
}

}  // namespace osprey
