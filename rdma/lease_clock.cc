#include "rdma/lease_clock.h"

#include <time.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <iterator>
#include <limits>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "rdma/raw_clock.h"

namespace osprey {
namespace {

constexpr int64_t kAnchorMovesNs = 1'000'000'000;
// Three years: a larger one would not fit.
constexpr double kJumpNsMax = 1e17;
constexpr int64_t kMeasuredForNs = 20'000'000;
constexpr int kMeasurements = 3;
constexpr int kAttempts = 3;
// A reading of both clocks in which the thread was not interrupted.
constexpr int64_t kReadingNsMax = 2000;
constexpr int kReadings = 1000;
constexpr double kDifferenceMax = 0.001;
// Of any CPU.
constexpr double kNsPerTickMin = 0.05, kNsPerTickMax = 10;

class Machine final : public ClockSources {
 public:
  int64_t BootTimeNs() override {
    timespec now;
    clock_gettime(CLOCK_BOOTTIME, &now);
    return now.tv_sec * int64_t{1'000'000'000} + now.tv_nsec;
  }
  int64_t RawTimeNs() override { return RawClockNs(); }
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
  int64_t raw_time_ns = 0;
  uint64_t tsc = 0;
  int64_t took_ns = 0;
};

// The best of several: the TSC was read in the middle of `took_ns`.
Reading ReadBoth(ClockSources& sources) {
  Reading best{0, 0, std::numeric_limits<int64_t>::max()};
  for (int i = 0; i < kReadings && best.took_ns > kReadingNsMax; ++i) {
    const int64_t before = sources.RawTimeNs();
    const uint64_t tsc = sources.Tsc();
    const int64_t took = sources.RawTimeNs() - before;
    if (took < best.took_ns) best = {before + took / 2, tsc, took};
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
      "guest is paused or migrated";
  if (!sources_->HasInvariantTsc()) {
    warning_ = std::string("this machine has no invariant TSC: ") + kAdvice;
  } else {
    for (int i = 0; i < kAttempts && ns_per_tick_ == 0; ++i) ns_per_tick_ = MeasureTsc();
    if (ns_per_tick_ == 0)
      warning_ = std::string("the frequency of this machine's TSC cannot be measured: ") + kAdvice;
    else
      anchor_tsc_ = sources_->Tsc();
  }
  anchor_boot_time_ns_ = sources_->BootTimeNs();
}

LeaseClock::LeaseClock(std::unique_ptr<ClockSources> sources, const LeaseClock& measured)
    : sources_(std::move(sources)),
      ns_per_tick_(measured.ns_per_tick_),
      warning_(measured.warning_) {
  if (ns_per_tick_ != 0) anchor_tsc_ = sources_->Tsc();
  anchor_boot_time_ns_ = sources_->BootTimeNs();
}

double LeaseClock::MeasureTsc() {
  std::array<double, kMeasurements> lengths;
  for (double& length : lengths) {
    const Reading first = ReadBoth(*sources_);
    sources_->Sleep(absl::Nanoseconds(kMeasuredForNs));
    const Reading last = ReadBoth(*sources_);
    const int64_t time_ns = last.raw_time_ns - first.raw_time_ns;
    // Shorter: the clock that it is measured by does not run.
    if (time_ns < kMeasuredForNs / 2 || last.tsc <= first.tsc ||
        std::max(first.took_ns, last.took_ns) > kReadingNsMax)
      return 0;
    length = static_cast<double>(time_ns) / static_cast<double>(last.tsc - first.tsc);
  }
  const auto [least, most] = std::minmax_element(lengths.begin(), lengths.end());
  if (*least < kNsPerTickMin || *most > kNsPerTickMax || *most - *least > *most * kDifferenceMax)
    return 0;
  // A tick that counts as shorter does not hurry the ends of others' rights.
  return *least;
}

int64_t LeaseClock::NsSinceAnchor(int64_t boot_time_ns, uint64_t tsc) const {
  int64_t since = std::max<int64_t>(boot_time_ns - anchor_boot_time_ns_, 0);
  if (tsc > anchor_tsc_) {
    const double ns = static_cast<double>(tsc - anchor_tsc_) * ns_per_tick_;
    since = std::max(since, static_cast<int64_t>(std::min(ns, kJumpNsMax)));
  }
  return since;
}

absl::Time LeaseClock::Now() {
  // First the one whose reading comes after the loads before it. The TSC alone may be read too early.
  const int64_t boot_time_ns = sources_->BootTimeNs();
  const uint64_t tsc = ns_per_tick_ == 0 ? 0 : sources_->Tsc();
  const int64_t since_ns = NsSinceAnchor(boot_time_ns, tsc);
  latest_ns_ = std::max(latest_ns_, anchor_ns_ + since_ns);
  // One that went back counts from where it is now.
  if (since_ns >= kAnchorMovesNs || boot_time_ns < anchor_boot_time_ns_ || tsc < anchor_tsc_) {
    anchor_ns_ = latest_ns_;
    anchor_boot_time_ns_ = boot_time_ns;
    anchor_tsc_ = tsc;
  }
  return absl::FromUnixNanos(latest_ns_);
}

}  // namespace osprey
