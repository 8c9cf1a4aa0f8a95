#include "tools/doctor/checks.h"

#include <algorithm>

namespace osprey::doctor {

const char* NameOf(Outcome outcome) {
  switch (outcome) {
    case Outcome::kPass:
      return "PASS";
    case Outcome::kSkip:
      return "SKIP";
    case Outcome::kWarn:
      return "WARN";
    case Outcome::kFail:
      return "FAIL";
  }
  return "";
}

std::vector<Finding> CheckMachine(const Machine& machine, const CheckOptions& options) {
  std::vector<Finding> findings;
  CheckDevices(machine, findings);
  const std::vector<Port> ports = PortsOf(machine);
  CheckPorts(machine, ports, findings);
  CheckLimits(machine, ports, options, findings);
  return findings;
}

Outcome WorstOf(const std::vector<Finding>& findings) {
  Outcome worst = Outcome::kPass;
  for (const Finding& finding : findings) {
    if (finding.outcome != Outcome::kSkip) worst = std::max(worst, finding.outcome);
  }
  return worst;
}

}  // namespace osprey::doctor
