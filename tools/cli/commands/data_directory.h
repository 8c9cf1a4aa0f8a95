// Common to the commands on data directories: log verify, log dump, backup.
//
// Thread rule: one thread at a time.

#ifndef OSPREY_TOOLS_CLI_COMMANDS_DATA_DIRECTORY_H_
#define OSPREY_TOOLS_CLI_COMMANDS_DATA_DIRECTORY_H_

#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "server/wal/format/format.h"
#include "tools/cli/commands/run.h"

namespace osprey {

// In the form of a UUID.
std::string TextOf(const server::wal::DirectoryId& id);

// `name`: of the argument. An empty path is a script's variable without a value. Errors:
// INVALID_ARGUMENT.
absl::Status CheckPath(absl::string_view name, const std::string& path);

// Prints the failure of `what`. Statuses of an operation on a server do not apply.
ExitStatus FailLocally(CommandContext& context, absl::string_view what, const absl::Status& status);

}  // namespace osprey

#endif  // OSPREY_TOOLS_CLI_COMMANDS_DATA_DIRECTORY_H_
