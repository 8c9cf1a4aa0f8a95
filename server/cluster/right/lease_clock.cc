#include "server/cluster/right/lease_clock.h"

#include <time.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <iterator>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "rdma/raw_clock.h"

namespace osprey {
namespace {

constexpr absl::Duration kAnchorMoves = absl::Seconds(1);
constexpr absl::Duration kMeasuredFor = absl::Milliseconds(20);
constexpr int kMeasurements = 3;
constexpr int kAttempts = 3;
// A reading of both clocks in which the thread was not interrupted.
constexpr absl::Duration kReadingMax = absl::Microseconds(2);
constexpr int kReadings = 1000;
constexpr double kDifferenceMax = 0.001;
// Of any CPU.
constexpr double kTicksPerSecondMin = 1e8, kTicksPerSecondMax = 2e10;

class Machine final : public ClockSources {
 public:
  absl::Duration BootTime() override {
    timespec now;
    clock_gettime(CLOCK_BOOTTIME, &now);
    return absl::DurationFromTimespec(now);
  }
  absl::Duration RawTime() override { return RawClock(); }
  uint64_t Tsc() override {
#if defined(__x86_64__)
    return __builtin_ia32_rdtsc();
#else
    return 0;
#endif
  }
  bool HasInvariantTsc() override {
#if defined(__x86_64__)
    std::ifstream file("/proc/cpuinfo");
    return SaysInvariantTsc(std::string(std::istreambuf_iterator<char>(file), {}));
#else
    return false;
#endif
  }
  void Sleep(absl::Duration time) override { absl::SleepFor(time); }
};

struct Reading {
  absl::Duration raw_time;
  uint64_t tsc = 0;
  absl::Duration took;
};

// The best of several: the TSC was read in the middle of `took`.
Reading ReadBoth(ClockSources& sources) {
  Reading best{absl::ZeroDuration(), 0, absl::InfiniteDuration()};
  for (int i = 0; i < kReadings && best.took > kReadingMax; ++i) {
    const absl::Duration before = sources.RawTime();
    const uint64_t tsc = sources.Tsc();
    const absl::Duration took = sources.RawTime() - before;
    if (took < best.took) best = {before + took / 2, tsc, took};
  }
  return best;
}

}  // namespace

std::unique_ptr<ClockSources> MachineClocks() { return std::make_unique<Machine>(); }

bool SaysInvariantTsc(absl::string_view cpuinfo) {
  bool any = false;
  for (const absl::string_view line : absl::StrSplit(cpuinfo, '\n')) {
    if (!absl::StartsWith(line, "flags")) continue;
    any = true;
    const std::string flags = std::string(line) + ' ';
    if (!absl::StrContains(flags, " constant_tsc ") || !absl::StrContains(flags, " nonstop_tsc "))
      return false;
  }
  return any;
}

LeaseClock::LeaseClock(std::unique_ptr<ClockSources> sources) : sources_(std::move(sources)) {
  constexpr char kAdvice[] =
      "leases last by CLOCK_BOOTTIME alone. In a virtual machine drain this server before the "
      "guest "
      "is paused or migrated";
  if (!sources_->HasInvariantTsc()) {
    warning_ = std::string("this machine has no invariant TSC: ") + kAdvice;
  } else {
    for (int i = 0; i < kAttempts && ticks_per_second_ == 0; ++i) ticks_per_second_ = MeasureTsc();
    if (ticks_per_second_ == 0)
      warning_ = std::string("the frequency of this machine's TSC cannot be measured: ") + kAdvice;
    else
      anchor_tsc_ = sources_->Tsc();
  }
  anchor_boot_time_ = sources_->BootTime();
}

double LeaseClock::MeasureTsc() {
  std::array<double, kMeasurements> rates;
  for (double& rate : rates) {
    const Reading first = ReadBoth(*sources_);
    sources_->Sleep(kMeasuredFor);
    const Reading last = ReadBoth(*sources_);
    const absl::Duration time = last.raw_time - first.raw_time;
    // Shorter: the clock that it is measured by does not run.
    if (time < kMeasuredFor / 2 || last.tsc <= first.tsc ||
        std::max(first.took, last.took) > kReadingMax)
      return 0;
    rate = static_cast<double>(last.tsc - first.tsc) / absl::ToDoubleSeconds(time);
  }
  const auto [least, most] = std::minmax_element(rates.begin(), rates.end());
  if (*least < kTicksPerSecondMin || *most > kTicksPerSecondMax ||
      *most - *least > *most * kDifferenceMax)
    return 0;
  // Too high a rate makes the TSC's time shorter, so that it does not hurry others' ends.
  return *most;
}

absl::Duration LeaseClock::SinceAnchor(absl::Duration boot_time, uint64_t tsc) const {
  absl::Duration since = std::max(boot_time - anchor_boot_time_, absl::ZeroDuration());
  if (ticks_per_second_ != 0 && tsc > anchor_tsc_)
    since =
        std::max(since, absl::Seconds(static_cast<double>(tsc - anchor_tsc_) / ticks_per_second_));
  return since;
}

absl::Time LeaseClock::Now() {
  const std::lock_guard<std::mutex> lock(mutex_);
  const absl::Duration boot_time = sources_->BootTime();
  const uint64_t tsc = ticks_per_second_ == 0 ? 0 : sources_->Tsc();
  const absl::Duration since = SinceAnchor(boot_time, tsc);
  latest_ = std::max(latest_, anchor_ + since);
  // One that went back counts from where it is now.
  if (since >= kAnchorMoves || boot_time < anchor_boot_time_ || tsc < anchor_tsc_) {
    anchor_ = latest_;
    anchor_boot_time_ = boot_time;
    anchor_tsc_ = tsc;
  }
  return latest_;
}

}  // namespace osprey
