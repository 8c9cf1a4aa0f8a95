#include <algorithm>
#include <cmath>
#include <optional>

#include "absl/strings/str_format.h"
#include "rdma/lease_clock.h"
#include "rdma/lease_time.h"
#include "tools/doctor/cluster.h"

namespace osprey::doctor {
namespace {

constexpr char kClock[] = "clock";
// Servers assume that no clock gains or loses so much.
constexpr double kRateMax = kClockDriftPercent / 100.0;
// A half is left for what the kernel does not tell, as the crystal's own error.
constexpr double kRateWarned = kRateMax / 2;

void CheckTsc(const Machine& machine, std::vector<Finding>& findings) {
  const std::optional<std::string> cpuinfo = machine.Read("/proc/cpuinfo");
  if (!cpuinfo.has_value()) {
    findings.push_back({Outcome::kSkip, kClock, "/proc/cpuinfo cannot be read", {}});
  } else if (SaysInvariantTsc(*cpuinfo)) {
    findings.push_back({Outcome::kPass, kClock, "this machine has an invariant TSC", {}});
  } else {
    findings.push_back(
        {Outcome::kWarn,
         kClock,
         "this machine has no invariant TSC: while a guest is paused, the leases of its server "
         "last on",
         {"kill -TERM PID   # the server, before its guest is paused or migrated",
          "qemu-system-x86_64 -cpu host,migratable=no,+invtsc …   # gives the guest one"}});
  }
}

void CheckRate(const KernelClock& clock, std::vector<Finding>& findings) {
  const std::string text =
      absl::StrFormat("the kernel's clock is set to gain %.4f %%", clock.gain * 100);
  const double gain = std::abs(clock.gain);
  if (gain < kRateWarned) {
    findings.push_back({Outcome::kPass, kClock, text, {}});
    return;
  }
  findings.push_back({gain < kRateMax ? Outcome::kWarn : Outcome::kFail,
                      kClock,
                      text + ", and servers trust leases to a tenth",
                      {"adjtimex --tick 10000 --frequency 0   # then restart the NTP service"}});
}

void CheckTime(const KernelClock& clock, std::vector<Finding>& findings) {
  if (clock.is_synchronized) {
    findings.push_back({Outcome::kPass, "time", "NTP keeps this machine's time", {}});
    return;
  }
  findings.push_back(
      {Outcome::kWarn,
       "time",
       "no NTP service keeps this machine's time: after a failover keys expire early "
       "by as much as it is ahead",
       {"timedatectl set-ntp true", "apt-get install chrony   # on each host"}});
}

}  // namespace

void CheckClocks(const Machine& machine, std::vector<Finding>& findings) {
  CheckTsc(machine, findings);
  const std::optional<KernelClock> clock = machine.Clock();
  if (!clock.has_value()) {
    findings.push_back(
        {Outcome::kSkip, kClock, "the state of the kernel's clock cannot be read", {}});
    return;
  }
  CheckRate(*clock, findings);
  CheckTime(*clock, findings);
}

}  // namespace osprey::doctor
