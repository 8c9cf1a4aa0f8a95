// kvcli's commands on the server as a whole, and help.

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "absl/time/time.h"
#include "tools/cli/commands/run.h"

namespace osprey {

std::vector<std::pair<std::string, std::string>> SplitPairs(absl::string_view text,
                                                            char separator) {
  std::vector<std::pair<std::string, std::string>> pairs;
  for (absl::string_view part : absl::StrSplit(text, separator, absl::SkipWhitespace())) {
    std::pair<std::string, std::string> pair = absl::StrSplit(part, absl::MaxSplits('=', 1));
    pairs.push_back(std::move(pair));
  }
  return pairs;
}

ExitStatus RunPing(CommandContext& context, Arguments /*arguments*/) {
  const absl::StatusOr<absl::Duration> time = context.client->Ping();
  if (!time.ok()) return Fail(context, "ping", time.status());
  const std::string description = context.client->Describe();
  const std::string micros = absl::StrFormat("%.1f", absl::ToDoubleMicroseconds(*time));
  Json json;
  json["round_trip_us"] = absl::ToDoubleMicroseconds(*time);
  for (const auto& [name, value] : SplitPairs(description, ' ')) json[name] = value;
  context.out->Result(absl::StrCat("pong after ", micros, " µs: ", Printable(description)),
                      absl::StrCat("round_trip_us=", micros, " ", Printable(description)), json);
  return ExitStatus::kDone;
}

ExitStatus RunStats(CommandContext& context, Arguments /*arguments*/) {
  const absl::StatusOr<std::string> stats = context.client->ServerStats();
  if (!stats.ok()) return Fail(context, "stats", stats.status());
  const std::string description = context.client->Describe();
  std::vector<std::pair<std::string, std::string>> rows = SplitPairs(description, ' ');
  // The server's statistics describe this connection as well. Each name is printed once, with the
  // client's value.
  for (std::pair<std::string, std::string>& row : SplitPairs(*stats, '\n')) {
    const bool said = std::any_of(rows.begin(), rows.end(),
                                  [&](const auto& earlier) { return earlier.first == row.first; });
    if (!said) rows.push_back(std::move(row));
  }
  context.out->Table(description, rows);
  return ExitStatus::kDone;
}

ExitStatus RunHelp(CommandContext& context, Arguments arguments) {
  if (!arguments.empty()) {
    const Command* command = FindCommand(arguments[0]);
    if (command == nullptr) {
      context.out->Error("help", NoSuchCommand(arguments[0]), "`kvcli help` lists them");
      return ExitStatus::kUsage;
    }
    const std::string text = HelpText(*command);
    context.out->Result(text, text, HelpJson(*command));
    return ExitStatus::kDone;
  }
  Json json = Json::array();
  for (const Command& command : Commands()) json.push_back(HelpJson(command));
  const std::string text = HelpText();
  context.out->Result(text, text, json);
  return ExitStatus::kDone;
}

}  // namespace osprey
