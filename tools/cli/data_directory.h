// Common to the commands on data directories: log verify, log dump, backup.
//
// Thread rule: one thread at a time.

#ifndef OSPREY_TOOLS_CLI_DATA_DIRECTORY_H_
#define OSPREY_TOOLS_CLI_DATA_DIRECTORY_H_

#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "server/wal/format/format.h"
#include "tools/cli/run.h"

namespace osprey {

// In the form of a UUID.
inline std::string TextOf(const server::wal::DirectoryId& id) {
  const std::string digits = absl::StrFormat("%016x%016x", id.words[0], id.words[1]);
  return absl::StrJoin({digits.substr(0, 8), digits.substr(8, 4), digits.substr(12, 4),
                        digits.substr(16, 4), digits.substr(20)},
                       "-");
}

// An empty path is a variable of a script that has no value. Errors: INVALID_ARGUMENT.
inline absl::Status CheckPath(absl::string_view name, const std::string& path) {
  if (!path.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(name, " is empty; name a data directory"));
}

// Prints the failure of `what`. Statuses of an operation on a server do not apply.
inline ExitStatus FailLocally(CommandContext& context, absl::string_view what,
                              const absl::Status& status) {
  context.out->Error(what, status, "");
  return absl::IsInvalidArgument(status) ? ExitStatus::kUsage : ExitStatus::kFailed;
}

}  // namespace osprey

#endif  // OSPREY_TOOLS_CLI_DATA_DIRECTORY_H_
