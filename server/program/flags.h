// Command lines of the programs, kvserver's and the tools'. gflags' definitions are parsed so that
// a mistake is a status and not an exit.
//
// gflags' own parser ends the process with status 1, which for the tools means "not found". It also
// rejects --if-absent for --if_absent. This one sets the same flags through gflags' registry:
//
//   --name=value  --name value  --switch  --noswitch  -name…     - and _ in names are alike
//   --flagfile=F  lines of the same flags; # starts a comment. A file may name another
//   --            ends the flags: all that follows are arguments, even if it starts with -
//   -  -5         are arguments (standard input, a number)
//
//   -h            --help, unless the program has an -h of its own
//
// Flags and arguments may be mixed. Of gflags' own flags only --help and --version are accepted;
// the program must act on them.
//
// Thread rule: before other threads start.

#ifndef OSPREY_SERVER_PROGRAM_FLAGS_H_
#define OSPREY_SERVER_PROGRAM_FLAGS_H_

#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace osprey {

// Sets the flags and returns the arguments, in order. `args` is without the program's name. Errors:
// INVALID_ARGUMENT: an unknown flag, a value that is missing or wrong, a flagfile that cannot be
// read. The message names the flag, and for an unknown flag a suggestion. Flags before the wrong
// one are set.
absl::StatusOr<std::vector<std::string>> ParseFlags(absl::Span<const std::string> args);

// For flags whose value "" means that they were not given. Errors: INVALID_ARGUMENT: the flag was
// given and is empty, as by --auth-key-file=$NAME without a NAME. Such a flag must not be ignored
// silently.
absl::Status CheckNotEmpty(const char* name);

// Whether --help, or --version, was given.
bool AsksForHelp();
bool AsksForVersion();

// argv[1 …], the argument of ParseFlags.
std::vector<std::string> ArgumentsOf(int argc, char** argv);

// Help lines "  --if-version=N     what it does", one flag after the other, sorted, at most 100
// columns wide. They are the flags defined in files whose name contains `file_part`, then `more`,
// which are not gflags' (name and description). If a description begins with values, "on|off: …",
// they follow the name: "  --flag=on|off     …".
std::string DescribeFlags(absl::string_view file_part,
                          std::vector<std::pair<std::string, std::string>> more = {});

}  // namespace osprey

#endif  // OSPREY_SERVER_PROGRAM_FLAGS_H_
