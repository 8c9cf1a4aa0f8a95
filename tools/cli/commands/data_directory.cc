#include "tools/cli/commands/data_directory.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"

namespace osprey {

std::string TextOf(const server::wal::DirectoryId& id) {
  const std::string digits = absl::StrFormat("%016x%016x", id.words[0], id.words[1]);
  return absl::StrJoin({digits.substr(0, 8), digits.substr(8, 4), digits.substr(12, 4),
                        digits.substr(16, 4), digits.substr(20)},
                       "-");
}

absl::Status CheckPath(absl::string_view name, const std::string& path) {
  if (!path.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(name, " is empty; name a data directory"));
}

ExitStatus FailLocally(CommandContext& context, absl::string_view what,
                       const absl::Status& status) {
  context.out->Error(what, status, "");
  return absl::IsInvalidArgument(status) ? ExitStatus::kUsage : ExitStatus::kFailed;
}

}  // namespace osprey
