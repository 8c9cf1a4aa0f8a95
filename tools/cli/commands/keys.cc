#include <cerrno>
#include <cstring>
#include <fstream>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "client/reasons.h"
#include "tools/cli/commands/run.h"

namespace osprey {
namespace {

// No server accepts a longer value (1 GiB). The limit also bounds the read of a file without end.
constexpr size_t kValueBytesMax = size_t{1} << 30;

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

// A directory can be opened; only the read fails.
absl::Status Opened(std::ifstream& file, const std::string& path) {
  if (!file || (file.peek() == std::ifstream::traits_type::eof() && file.bad())) {
    return absl::UnknownError(absl::StrCat("file '", path,
                                           "' cannot be read: ", std::strerror(errno),
                                           "; with --literal, the value is @", path, " itself"));
  }
  file.clear();
  return absl::OkStatus();
}

}  // namespace

absl::string_view FixOf(const absl::Status& status) {
  switch (ReasonOf(status)) {
    case Reason::kAbsent:
      return "check the key, or put it first";
    case Reason::kPresent:
      return "leave out --if-absent to replace the value";
    case Reason::kWrongVersion:
      return "get its version with `kvcli --json get KEY`, and try again";
    case Reason::kNotANumber:
      return "put a whole number there first";
    case Reason::kDeadline:
      return "give it more time with --timeout=SECONDS";
    case Reason::kServerFull:
      return "delete something, or start the server with more --memory";
    case Reason::kChainFull:
      return "use another key; other keys are not affected";
    case Reason::kNoConnection:
    case Reason::kPeerGone:
      return "look whether kvserver is running there";
    default:
      return "";  // the message has the fix
  }
}

ExitStatus Fail(CommandContext& context, absl::string_view what, const absl::Status& status) {
  const std::string place = context.server.empty() ? "" : absl::StrCat(" at ", context.server);
  context.out->Error(absl::StrCat(what, place), status, FixOf(status));
  return ExitStatusOf(status);
}

std::string Quoted(absl::string_view verb, absl::string_view key) {
  const std::string shown = ForTerminal(key);
  return absl::StrCat(verb, " ",
                      shown.size() > 100 ? absl::StrCat(shown.substr(0, 100), "…") : shown);
}

absl::StatusOr<std::string> ReadValue(const CommandContext& context, const std::string& argument) {
  if (context.options.literal) return argument;
  if (argument == "-") {
    if (context.in == nullptr) {
      return absl::InvalidArgumentError(
          "- is standard input, where the shell reads its commands; write the value, @FILE, or "
          "with --literal the - itself");
    }
    return ReadAll(*context.in, "standard input");
  }
  if (!absl::StartsWith(argument, "@")) return argument;
  const std::string path = argument.substr(1);
  std::ifstream file(path, std::ios::binary);
  if (absl::Status opened = Opened(file, path); !opened.ok()) return opened;
  return ReadAll(file, path);
}

ExitStatus FailToRead(CommandContext& context, absl::string_view what, const absl::Status& status) {
  context.out->Error(what, status, "nothing was stored");
  return absl::IsInvalidArgument(status) ? ExitStatus::kUsage : ExitStatus::kFailed;
}

absl::Status CheckPut(Arguments arguments, const CommandOptions& options) {
  const std::string& value = arguments[1];
  if (options.literal || !absl::StartsWith(value, "@")) return absl::OkStatus();
  std::ifstream file(value.substr(1), std::ios::binary);
  return Opened(file, value.substr(1));
}

absl::Status CheckIncrement(Arguments arguments, const CommandOptions& /*options*/) {
  int64_t by = 0;
  if (arguments.size() < 2 || absl::SimpleAtoi(arguments[1], &by)) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("N is '", arguments[1], "', which is no whole number of 64 bits"));
}

WriteOptions WriteOptionsOf(const CommandOptions& options) {
  WriteOptions write;
  write.if_absent = options.if_absent;
  write.if_version = options.if_version.value_or(0);
  if (options.ttl.has_value()) write.ttl = ParseTtl("--ttl=", *options.ttl).value();
  return write;
}

void PrintWritten(CommandContext& context, absl::string_view people, const std::string& key,
                  uint64_t version) {
  Json json;
  SetBytes(json, "key", key);
  json["version"] = version;
  context.out->Result(absl::StrCat(people, ", version ", version), absl::StrCat(version), json);
}

ExitStatus RunPut(CommandContext& context, Arguments arguments) {
  const std::string& key = arguments[0];
  const absl::StatusOr<std::string> value = ReadValue(context, arguments[1]);
  if (!value.ok()) return FailToRead(context, Quoted("put", key), value.status());
  const absl::StatusOr<uint64_t> version = Timed(context, [&](Client& client) {
    return client.Put(key, *value, WriteOptionsOf(context.options));
  });
  if (!version.ok()) return Fail(context, Quoted("put", key), version.status());
  PrintWritten(context, absl::StrCat("stored ", ForTerminal(key), ": ", value->size(), " bytes"),
               key, *version);
  return ExitStatus::kDone;
}

ExitStatus RunGet(CommandContext& context, Arguments arguments) {
  const std::string& key = arguments[0];
  const absl::StatusOr<Value> value =
      Timed(context, [&](Client& client) { return client.Get(key); });
  if (!value.ok()) return Fail(context, Quoted("get", key), value.status());
  context.out->Value(key, value->bytes, value->version, value->ttl);
  return ExitStatus::kDone;
}

ExitStatus RunExists(CommandContext& context, Arguments arguments) {
  const std::string& key = arguments[0];
  const absl::StatusOr<bool> exists =
      Timed(context, [&](Client& client) { return client.Exists(key); });
  if (!exists.ok()) return Fail(context, Quoted("exists", key), exists.status());
  Json json;
  SetBytes(json, "key", key);
  json["exists"] = *exists;
  const absl::string_view answer = *exists ? "yes" : "no";
  context.out->Result(answer, answer, json);
  return *exists ? ExitStatus::kDone : ExitStatus::kNo;
}

ExitStatus RunIncrement(CommandContext& context, Arguments arguments) {
  const std::string& key = arguments[0];
  int64_t by = 1;
  // CheckIncrement has checked it.
  if (arguments.size() > 1) (void)absl::SimpleAtoi(arguments[1], &by);
  const absl::StatusOr<Number> counted = Timed(context, [&](Client& client) {
    return client.Increment(key, by, WriteOptionsOf(context.options));
  });
  if (!counted.ok()) return Fail(context, Quoted("incr", key), counted.status());
  Json json;
  SetBytes(json, "key", key);
  json["value"] = counted->value;
  json["version"] = counted->version;
  context.out->Result(
      absl::StrCat(ForTerminal(key), " is ", counted->value, ", version ", counted->version),
      absl::StrCat(counted->value), json);
  return ExitStatus::kDone;
}

ExitStatus RunAppend(CommandContext& context, Arguments arguments) {
  const std::string& key = arguments[0];
  const absl::StatusOr<std::string> value = ReadValue(context, arguments[1]);
  if (!value.ok()) return FailToRead(context, Quoted("append", key), value.status());
  const absl::StatusOr<uint64_t> version = Timed(context, [&](Client& client) {
    return client.Append(key, *value, WriteOptionsOf(context.options));
  });
  if (!version.ok()) return Fail(context, Quoted("append", key), version.status());
  PrintWritten(context,
               absl::StrCat("appended to ", ForTerminal(key), ": ", value->size(), " bytes"), key,
               *version);
  return ExitStatus::kDone;
}

}  // namespace osprey
