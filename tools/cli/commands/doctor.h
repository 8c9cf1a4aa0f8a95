// kvcli doctor: its flags and its output.
//
//   people   PASS  devices   rxe0
//            FAIL  memlock   a table of 1GiB pins …
//            a line for each command that fixes it
//   plain    the same, with tabs between: outcome, check, reason, fixes
//   json     {"worst": "FAIL", "findings": [{"outcome", "check", "reason", "mends": []}]}
//
// Exit status: 0 nothing but PASS (and SKIP: not checkable); 1 a WARN; 4 a FAIL; 2 usage; 3 the
// server, or the other host of the self-test, cannot be reached.
//
// Thread rule: one thread at a time.

#ifndef OSPREY_TOOLS_CLI_COMMANDS_DOCTOR_H_
#define OSPREY_TOOLS_CLI_COMMANDS_DOCTOR_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "tools/common/exit_status.h"
#include "tools/doctor/checks.h"
#include "tools/terminal/output.h"

namespace osprey {

void PrintFindings(Output& out, const std::vector<doctor::Finding>& findings);
ExitStatus ExitStatusOf(doctor::Outcome worst);

}  // namespace osprey

#endif  // OSPREY_TOOLS_CLI_COMMANDS_DOCTOR_H_
