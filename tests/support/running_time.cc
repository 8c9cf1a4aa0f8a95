#include "tests/support/running_time.h"

#include "absl/time/clock.h"

namespace osprey {
namespace {

constexpr absl::Duration kNap = absl::Milliseconds(5);
constexpr absl::Duration kUsualLateness = absl::Milliseconds(5);  // on a machine that runs

}  // namespace

RunningTime::RunningTime() : start_(absl::Now()), watcher_([this] { Watch(); }) {}

RunningTime::~RunningTime() {
  ends_ = true;
  watcher_.join();
}

absl::Duration RunningTime::Passed() const {
  return absl::Now() - start_ - absl::Nanoseconds(late_ns_.load());
}

void RunningTime::Watch() {
  absl::Time last = start_;
  while (!ends_) {
    absl::SleepFor(kNap);
    const absl::Time now = absl::Now();
    if (now - last > kNap + kUsualLateness) late_ns_ += absl::ToInt64Nanoseconds(now - last - kNap);
    last = now;
  }
}

}  // namespace osprey
