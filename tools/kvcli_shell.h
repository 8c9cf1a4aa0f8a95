// kvcli's shell: command after command, from a terminal or a pipe.
//
// Thread rule: one thread.

#ifndef OSPREY_TOOLS_KVCLI_SHELL_H_
#define OSPREY_TOOLS_KVCLI_SHELL_H_

#include <istream>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "tools/exit_status.h"
#include "tools/kvcli_output.h"

namespace osprey {

struct Shell {
  // Runs one command; prints its errors. kCannotConnect: also if there is no connection to run it
  // on.
  absl::FunctionRef<ExitStatus(const std::vector<std::string>& words)> run;
  // "osprey> ", or what tells that there is no connection.
  absl::FunctionRef<std::string()> prompt;
  Output& out;
};

// On a terminal: until Ctrl-D, `exit` or `quit`. Ctrl-C drops the line, or ends the command.
// Always kDone: the user has seen what failed.
ExitStatus RunOnTerminal(Shell shell);

// Lines of `in` until its end; no prompt. Goes on after errors, and ends with the highest exit
// status of all commands; only when the server cannot be reached (kCannotConnect) it ends there.
ExitStatus RunLines(Shell shell, std::istream& in);

}  // namespace osprey

#endif  // OSPREY_TOOLS_KVCLI_SHELL_H_
