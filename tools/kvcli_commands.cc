#include "tools/kvcli_commands.h"

#include <algorithm>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "absl/time/time.h"
#include "server/flags.h"
#include "tools/kvcli_run.h"

namespace osprey {
namespace {

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
  context.out->Result(absl::StrCat("pong after ", micros, " µs: ", description),
                      absl::StrCat("round_trip_us=", micros, " ", description), json);
  return ExitStatus::kDone;
}

ExitStatus RunStats(CommandContext& context, Arguments /*arguments*/) {
  const absl::StatusOr<std::string> stats = context.client->ServerStats();
  if (!stats.ok()) return Fail(context, "stats", stats.status());
  const std::string description = context.client->Describe();
  std::vector<std::pair<std::string, std::string>> rows = SplitPairs(description, ' ');
  // The server tells of this connection, too. A name is said once: here, as we see it.
  for (std::pair<std::string, std::string>& row : SplitPairs(*stats, '\n')) {
    const bool said = std::any_of(rows.begin(), rows.end(),
                                  [&](const auto& earlier) { return earlier.first == row.first; });
    if (!said) rows.push_back(std::move(row));
  }
  context.out->Table(description, rows);
  return ExitStatus::kDone;
}

std::string CommandLine(const Command& command) {
  return absl::StrCat(command.name, command.arguments[0] == '\0' ? "" : " ", command.arguments);
}

Json DescribeCommand(const Command& command) {
  Json json;
  json["command"] = command.name;
  json["arguments"] = command.arguments;
  json["summary"] = command.summary;
  return json;
}

std::string HelpText() {
  std::string text =
      "usage: kvcli [--server=URI] COMMAND …   URI: rdma://HOST[:7411] or "
      "shm://PATH\n\ncommands:\n";
  for (const Command& command : Commands()) {
    const std::string line = CommandLine(command);
    // printf counts bytes, a terminal characters: those of "…" that are not its first.
    const auto unseen =
        std::count_if(line.begin(), line.end(), [](char c) { return (c & 0xC0) == 0x80; });
    absl::StrAppendFormat(&text, "  %-*s %s\n", static_cast<int>(19 + unseen), line,
                          command.summary);
  }
  absl::StrAppend(&text, "\nflags, before or after the command (-- ends them):\n",
                  DescribeFlags("kvcli", {{"--flagfile=FILE", "more flags, one a line"}}),
                  "\nVALUE may be - (standard input) or @FILE.\n"
                  "exit status: 0 done; 1 not found or condition not met; 2 usage; 3 cannot "
                  "connect; 4 anything else");
  return text;
}

ExitStatus RunHelp(CommandContext& context, Arguments arguments) {
  if (!arguments.empty()) {
    const Command* command = FindCommand(arguments[0]);
    if (command == nullptr) {
      context.out->Error(
          "help", absl::InvalidArgumentError(absl::StrCat("there is no command ", arguments[0])),
          "`kvcli help` lists them");
      return ExitStatus::kUsage;
    }
    const std::string text =
        absl::StrCat("kvcli ", CommandLine(*command), "\n  ", command->summary);
    context.out->Result(text, text, DescribeCommand(*command));
    return ExitStatus::kDone;
  }
  Json json = Json::array();
  for (const Command& command : Commands()) json.push_back(DescribeCommand(command));
  const std::string text = HelpText();
  context.out->Result(text, text, json);
  return ExitStatus::kDone;
}

constexpr Command kCommands[] = {
    {.name = "put",
     .arguments = "KEY VALUE",
     .summary =
         "store VALUE, with --ttl=SECONDS for so long; with --if-absent or --if-version=N only "
         "then",
     .arguments_min = 2,
     .arguments_max = 2,
     .needs_server = true,
     .flags = kIfAbsent | kIfVersion | kTtl,
     .run = RunPut},
    {.name = "get",
     .arguments = "KEY",
     .summary = "print the value; piped, exactly its bytes",
     .arguments_min = 1,
     .arguments_max = 1,
     .needs_server = true,
     .flags = kNoFlags,
     .run = RunGet},
    {.name = "del",
     .arguments = "KEY…",
     .summary = "delete; with --if-version=N only that version of one key",
     .arguments_min = 1,
     .arguments_max = kAnyNumber,
     .needs_server = true,
     .flags = kIfVersion,
     .run = RunDelete},
    {.name = "exists",
     .arguments = "KEY",
     .summary = "print yes or no; no is exit status 1",
     .arguments_min = 1,
     .arguments_max = 1,
     .needs_server = true,
     .flags = kNoFlags,
     .run = RunExists},
    {.name = "incr",
     .arguments = "KEY [N]",
     .summary = "add N (1; may be negative) to a decimal number; an absent key counts as 0",
     .arguments_min = 1,
     .arguments_max = 2,
     .needs_server = true,
     .flags = kIfVersion,
     .run = RunIncrement},
    {.name = "append",
     .arguments = "KEY VALUE",
     .summary = "write VALUE behind what is there; an absent key counts as empty",
     .arguments_min = 2,
     .arguments_max = 2,
     .needs_server = true,
     .flags = kIfVersion,
     .run = RunAppend},
    {.name = "expire",
     .arguments = "KEY SECONDS",
     .summary = "let a key that is there live for so long from now on",
     .arguments_min = 2,
     .arguments_max = 2,
     .needs_server = true,
     .flags = kIfVersion,
     .run = RunExpire},
    {.name = "persist",
     .arguments = "KEY",
     .summary = "let a key that is there live until it is deleted",
     .arguments_min = 1,
     .arguments_max = 1,
     .needs_server = true,
     .flags = kIfVersion,
     .run = RunPersist},
    {.name = "ttl",
     .arguments = "KEY",
     .summary = "print how many seconds the key has left to live, or none: until it is deleted",
     .arguments_min = 1,
     .arguments_max = 1,
     .needs_server = true,
     .flags = kNoFlags,
     .run = RunTtl},
    {.name = "touch",
     .arguments = "KEY",
     .summary = "count as a use of the key, for a server that evicts what is not used",
     .arguments_min = 1,
     .arguments_max = 1,
     .needs_server = true,
     .flags = kNoFlags,
     .run = RunTouch},
    {.name = "mget",
     .arguments = "KEY…",
     .summary = "print keys and values that are there: piped, KEY, tab, VALUE, in C escapes",
     .arguments_min = 1,
     .arguments_max = kAnyNumber,
     .needs_server = true,
     .flags = kNoFlags,
     .run = RunMultiGet},
    {.name = "mput",
     .arguments = "KEY VALUE…",
     .summary = "store several; prints their versions, a line each",
     .arguments_min = 2,
     .arguments_max = kAnyNumber,
     .needs_server = true,
     .flags = kIfAbsent | kTtl,
     .run = RunMultiPut},
    {.name = "scan",
     .arguments = "",
     .summary =
         "print all keys, in no order, in C escapes: --prefix=P --values --limit=N --cursor=C",
     .arguments_min = 0,
     .arguments_max = 0,
     .needs_server = true,
     .flags = kPrefix | kLimit | kCursor | kValues,
     .run = RunScan},
    {.name = "count",
     .arguments = "",
     .summary = "how many keys there are; with --prefix=P that start so",
     .arguments_min = 0,
     .arguments_max = 0,
     .needs_server = true,
     .flags = kPrefix,
     .run = RunCount},
    {.name = "flush",
     .arguments = "",
     .summary = "delete every key that is there now; prints how many",
     .arguments_min = 0,
     .arguments_max = 0,
     .needs_server = true,
     .flags = kNoFlags,
     .run = RunFlush},
    {.name = "ping",
     .arguments = "",
     .summary = "the time of one message there and back",
     .arguments_min = 0,
     .arguments_max = 0,
     .needs_server = true,
     .flags = kNoFlags,
     .run = RunPing},
    {.name = "stats",
     .arguments = "",
     .summary = "the connection's transport and device, and the server's counters",
     .arguments_min = 0,
     .arguments_max = 0,
     .needs_server = true,
     .flags = kNoFlags,
     .run = RunStats},
    {.name = "doctor",
     .arguments = "",
     .summary = "whether RDMA works here, and what mends it; with --peer=URI how a server answers",
     .arguments_min = 0,
     .arguments_max = 0,
     .needs_server = false,
     .flags = kDoctor,
     .run = RunDoctor},
    {.name = "help",
     .arguments = "[COMMAND]",
     .summary = "this text",
     .arguments_min = 0,
     .arguments_max = 1,
     .needs_server = false,
     .flags = kNoFlags,
     .run = RunHelp},
};

}  // namespace

absl::Span<const Command> Commands() { return kCommands; }

const Command* FindCommand(absl::string_view name) {
  for (const Command& command : Commands()) {
    if (name == command.name) return &command;
  }
  return nullptr;
}

absl::Status CheckUsage(const Command& command, Arguments arguments,
                        const CommandOptions& options) {
  if (arguments.size() < command.arguments_min || arguments.size() > command.arguments_max) {
    return absl::InvalidArgumentError(absl::StrFormat("got %d arguments; it is: kvcli %s",
                                                      arguments.size(), CommandLine(command)));
  }
  const struct {
    unsigned flag;
    bool given;
    const char* name;
  } flags[] = {
      {kIfAbsent, options.if_absent, "--if-absent"},
      {kIfVersion, options.if_version.has_value(), "--if-version"},
      {kPrefix, options.prefix.has_value(), "--prefix"},
      {kLimit, options.limit.has_value(), "--limit"},
      {kCursor, options.cursor.has_value(), "--cursor"},
      {kValues, options.values, "--values"},
      {kTtl, options.ttl.has_value(), "--ttl"},
      {kDoctor, options.doctor.peer.has_value(), "--peer"},
      {kDoctor, options.doctor.memory.has_value(), "--memory"},
  };
  for (const auto& [flag, given, name] : flags) {
    if (given && (command.flags & flag) == 0)
      return absl::InvalidArgumentError(absl::StrCat(name, " means nothing here"));
  }
  if (options.if_absent && options.if_version) {
    return absl::InvalidArgumentError("--if-absent and --if-version cannot both hold");
  }
  if (options.if_version == uint64_t{0})
    return absl::InvalidArgumentError("--if-version=0: versions start at 1");
  if (options.if_version && command.arguments_max == kAnyNumber && arguments.size() > 1)
    return absl::InvalidArgumentError("--if-version is of one key; give one");
  if (options.ttl.has_value()) {
    const absl::StatusOr<absl::Duration> ttl = ParseTtl("--ttl=", *options.ttl);
    if (!ttl.ok()) return ttl.status();
  }
  if (options.limit == uint64_t{0})
    return absl::InvalidArgumentError("--limit=0: ask for 1 at least");
  return CheckDoctorFlags(options.doctor);
}

}  // namespace osprey
