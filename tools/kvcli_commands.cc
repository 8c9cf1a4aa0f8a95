#include "tools/kvcli_commands.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <iterator>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "absl/time/time.h"
#include "server/flags.h"

namespace osprey {
namespace {

// No server takes a longer value (1 GiB); more is not read from a file that may have no end.
constexpr size_t kValueBytesMax = size_t{1} << 30;

// What helps, where the message does not say so itself.
absl::string_view MendOf(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kNotFound:
      return "check the key, or put it first";
    case absl::StatusCode::kAlreadyExists:
      return "leave out --if-absent to replace the value";
    case absl::StatusCode::kFailedPrecondition:
      return "get its version with `kvcli --json get KEY`, and try again";
    case absl::StatusCode::kDeadlineExceeded:
      return "give it more time with --timeout=SECONDS";
    case absl::StatusCode::kResourceExhausted:
      return "delete something, or start the server with more --memory";
    case absl::StatusCode::kUnavailable:
      return "look whether kvserver is running there";
    default:
      return "";
  }
}

ExitStatus Fail(CommandContext& context, absl::string_view what, const absl::Status& status) {
  const std::string place = context.server.empty() ? "" : absl::StrCat(" at ", context.server);
  context.out->Error(absl::StrCat(what, place), status, MendOf(status));
  return ExitStatusOf(status);
}

std::string Quoted(absl::string_view verb, absl::string_view key) {
  const std::string shown = ForTerminal(key);
  return absl::StrCat(verb, " ",
                      shown.size() > 100 ? absl::StrCat(shown.substr(0, 100), "…") : shown);
}

absl::StatusOr<std::string> ReadAll(std::istream& in, absl::string_view name) {
  std::string bytes;
  char piece[65536];
  while (in.read(piece, sizeof(piece)) || in.gcount() > 0) {
    bytes.append(piece, static_cast<size_t>(in.gcount()));
    if (bytes.size() > kValueBytesMax)
      return absl::OutOfRangeError(absl::StrCat(name, " has more than 1 GiB; no value is longer"));
  }
  if (in.bad())
    return absl::DataLossError(absl::StrCat(name, " cannot be read: ", std::strerror(errno)));
  return bytes;
}

// VALUE as users write it: itself, - or @FILE.
absl::StatusOr<std::string> ReadValue(const std::string& argument, std::istream& in) {
  if (argument == "-") return ReadAll(in, "standard input");
  if (!absl::StartsWith(argument, "@")) return argument;
  const std::string path = argument.substr(1);
  std::ifstream file(path, std::ios::binary);
  // A directory opens, and only reading it fails.
  if (!file || (file.peek() == std::ifstream::traits_type::eof() && file.bad())) {
    return absl::UnknownError(
        absl::StrCat("file '", path, "' cannot be read: ", std::strerror(errno)));
  }
  file.clear();
  return ReadAll(file, path);
}

std::vector<std::pair<std::string, std::string>> SplitPairs(absl::string_view text,
                                                            char separator) {
  std::vector<std::pair<std::string, std::string>> pairs;
  for (absl::string_view part : absl::StrSplit(text, separator, absl::SkipWhitespace())) {
    std::pair<std::string, std::string> pair = absl::StrSplit(part, absl::MaxSplits('=', 1));
    pairs.push_back(std::move(pair));
  }
  return pairs;
}

WriteOptions WriteOptionsOf(const CommandOptions& options) {
  WriteOptions write;
  write.if_absent = options.if_absent;
  write.if_version = options.if_version.value_or(0);
  return write;
}

// The result of a write: plain, the version alone, as --if-version takes it.
void PrintWritten(CommandContext& context, absl::string_view people, const std::string& key,
                  uint64_t version) {
  Json json;
  SetBytes(json, "key", key);
  json["version"] = version;
  context.out->Result(absl::StrCat(people, ", version ", version), absl::StrCat(version), json);
}

ExitStatus RunPut(CommandContext& context, Arguments arguments) {
  const std::string& key = arguments[0];
  const absl::StatusOr<std::string> value = ReadValue(arguments[1], *context.in);
  if (!value.ok()) {
    context.out->Error(Quoted("put", key), value.status(), "nothing was stored");
    return ExitStatus::kFailed;
  }
  const absl::StatusOr<uint64_t> version =
      context.client->Put(key, *value, WriteOptionsOf(context.options));
  if (!version.ok()) return Fail(context, Quoted("put", key), version.status());
  PrintWritten(context, absl::StrCat("stored ", ForTerminal(key), ": ", value->size(), " bytes"),
               key, *version);
  return ExitStatus::kDone;
}

ExitStatus RunGet(CommandContext& context, Arguments arguments) {
  const std::string& key = arguments[0];
  const absl::StatusOr<Value> value = context.client->Get(key);
  if (!value.ok()) return Fail(context, Quoted("get", key), value.status());
  context.out->Value(key, value->bytes, value->version);
  return ExitStatus::kDone;
}

ExitStatus RunDelete(CommandContext& context, Arguments arguments) {
  const std::string& key = arguments[0];
  const absl::StatusOr<uint64_t> version =
      context.client->Delete(key, WriteOptionsOf(context.options));
  if (!version.ok()) return Fail(context, Quoted("del", key), version.status());
  PrintWritten(context, absl::StrCat("deleted ", ForTerminal(key)), key, *version);
  return ExitStatus::kDone;
}

ExitStatus RunExists(CommandContext& context, Arguments arguments) {
  const std::string& key = arguments[0];
  const absl::StatusOr<bool> exists = context.client->Exists(key);
  if (!exists.ok()) return Fail(context, Quoted("exists", key), exists.status());
  Json json;
  SetBytes(json, "key", key);
  json["exists"] = *exists;
  const absl::string_view answer = *exists ? "yes" : "no";
  context.out->Result(answer, answer, json);
  return *exists ? ExitStatus::kDone : ExitStatus::kNo;
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
    absl::StrAppendFormat(&text, "  %-18s %s\n", CommandLine(command), command.summary);
  }
  absl::StrAppend(&text, "\nflags, before or after the command (-- ends them):\n",
                  DescribeFlags("kvcli"),
                  "  --flagfile=FILE    more flags, one a line\n"
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
     .summary = "store VALUE; with --if-absent or --if-version=N only then",
     .arguments_min = 2,
     .arguments_max = 2,
     .needs_server = true,
     .takes_if_absent = true,
     .takes_if_version = true,
     .run = RunPut},
    {.name = "get",
     .arguments = "KEY",
     .summary = "print the value; piped, exactly its bytes",
     .arguments_min = 1,
     .arguments_max = 1,
     .needs_server = true,
     .takes_if_absent = false,
     .takes_if_version = false,
     .run = RunGet},
    {.name = "del",
     .arguments = "KEY",
     .summary = "delete it; with --if-version=N only that version",
     .arguments_min = 1,
     .arguments_max = 1,
     .needs_server = true,
     .takes_if_absent = false,
     .takes_if_version = true,
     .run = RunDelete},
    {.name = "exists",
     .arguments = "KEY",
     .summary = "print yes or no; no is exit status 1",
     .arguments_min = 1,
     .arguments_max = 1,
     .needs_server = true,
     .takes_if_absent = false,
     .takes_if_version = false,
     .run = RunExists},
    {.name = "ping",
     .arguments = "",
     .summary = "the time of one message there and back",
     .arguments_min = 0,
     .arguments_max = 0,
     .needs_server = true,
     .takes_if_absent = false,
     .takes_if_version = false,
     .run = RunPing},
    {.name = "stats",
     .arguments = "",
     .summary = "the connection's transport and device, and the server's counters",
     .arguments_min = 0,
     .arguments_max = 0,
     .needs_server = true,
     .takes_if_absent = false,
     .takes_if_version = false,
     .run = RunStats},
    {.name = "help",
     .arguments = "[COMMAND]",
     .summary = "this text",
     .arguments_min = 0,
     .arguments_max = 1,
     .needs_server = false,
     .takes_if_absent = false,
     .takes_if_version = false,
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
  if (options.if_absent && !command.takes_if_absent)
    return absl::InvalidArgumentError("--if-absent means nothing here");
  if (options.if_version && !command.takes_if_version)
    return absl::InvalidArgumentError("--if-version means nothing here");
  if (options.if_absent && options.if_version) {
    return absl::InvalidArgumentError("--if-absent and --if-version cannot both hold");
  }
  if (options.if_version == uint64_t{0})
    return absl::InvalidArgumentError("--if-version=0: versions start at 1");
  return absl::OkStatus();
}

}  // namespace osprey
