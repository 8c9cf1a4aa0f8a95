// kvcli's shell: one command after the other, from a terminal or a pipe.
//
// Thread rule: one thread.

#ifndef OSPREY_TOOLS_CLI_SHELL_H_
#define OSPREY_TOOLS_CLI_SHELL_H_

#include <istream>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "tools/common/exit_status.h"
#include "tools/terminal/output.h"

namespace osprey {

struct Shell {
  // Runs one command; prints its errors. kCannotConnect: also if there is no connection for it.
  absl::FunctionRef<ExitStatus(const std::vector<std::string>& words)> run;
  // "osprey> ", or a prompt that shows the loss of the connection.
  absl::FunctionRef<std::string()> prompt;
  Output& out;
};

// On a terminal: until Ctrl-D, `exit` or `quit`. Ctrl-C drops the line, or ends the command.
// Returns kDone in any case, because the user has seen the errors.
ExitStatus RunOnTerminal(Shell shell);

// Runs lines of `in` until its end, without a prompt. It continues after errors, and returns the
// highest exit status of all commands. A server that cannot be reached (kCannotConnect) ends it.
ExitStatus RunLines(Shell shell, std::istream& in);

}  // namespace osprey

#endif  // OSPREY_TOOLS_CLI_SHELL_H_
