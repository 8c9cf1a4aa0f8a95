// Functions on all commands: their syntax, their help, and errors of their arguments.

#include "tools/cli/commands.h"

#include <algorithm>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/time.h"
#include "server/program/flags.h"
#include "server/program/size_flag.h"
#include "tools/cli/commands/run.h"
#include "tools/common/server_uri.h"

namespace osprey {
namespace {

// "--ttl=SECONDS"
std::string Written(const FlagName& flag) {
  return absl::StrCat(flag.name, flag.value[0] == '\0' ? "" : "=", flag.value);
}

std::vector<std::string> FlagsOf(const Command& command) {
  std::vector<std::string> flags;
  for (const FlagName& flag : FlagNames()) {
    if ((command.flags & flag.flag) != 0) flags.push_back(Written(flag));
  }
  return flags;
}

// The flags that are set in `options`.
unsigned GivenFlags(const CommandOptions& options) {
  unsigned given = kNoFlags;
  const auto add = [&given](bool is_given, unsigned flag) { given |= is_given ? flag : kNoFlags; };
  add(options.if_absent, kIfAbsent);
  add(options.if_version.has_value(), kIfVersion);
  add(options.ttl.has_value(), kTtl);
  add(options.prefix.has_value(), kPrefix);
  add(options.limit.has_value(), kLimit);
  add(options.cursor.has_value(), kCursor);
  add(options.values, kValues);
  add(options.literal, kLiteral);
  add(options.yes, kYes);
  add(options.format.has_value(), kFormat);
  add(options.resume, kResume);
  add(options.skip.has_value(), kSkip);
  add(options.top.has_value(), kTop);
  add(options.size.has_value(), kSize);
  add(options.count.has_value(), kSamples);
  add(options.duration.has_value(), kDuration);
  add(options.doctor.peer.has_value(), kPeer);
  add(options.memory.has_value(), kMemory);
  add(options.doctor.self_test.has_value(), kSelfTest);
  add(options.doctor.bind.has_value(), kBind);
  add(options.doctor.device.has_value(), kDevice);
  add(options.doctor.ib_port.has_value(), kIbPort);
  add(options.doctor.gid_index.has_value(), kGidIndex);
  add(options.cluster.shards.has_value(), kShards);
  add(options.cluster.replicas.has_value(), kReplicas);
  add(options.cluster.min_in_sync.has_value(), kMinInSync);
  add(options.doctor.cluster.has_value(), kCluster);
  add(!options.cluster.etcd.ca_file.empty(), kCaFile);
  add(!options.cluster.etcd.certificate_file.empty(), kCertificateFile);
  add(!options.cluster.etcd.certificate_key_file.empty(), kCertificateKeyFile);
  add(!options.cluster.etcd.user.empty(), kUser);
  add(!options.cluster.etcd.password_file.empty(), kPasswordFile);
  return given;
}

absl::Status CheckValues(const Command& command, Arguments arguments,
                         const CommandOptions& options) {
  if (options.if_absent && options.if_version) {
    return absl::InvalidArgumentError("--if-absent and --if-version cannot both hold");
  }
  if (options.if_version == uint64_t{0})
    return absl::InvalidArgumentError("--if-version=0: no version is 0");
  if (options.if_version && command.arguments_max == kAnyNumber && arguments.size() > 1)
    return absl::InvalidArgumentError("--if-version is of one key; give one");
  if (options.ttl.has_value()) {
    const absl::StatusOr<absl::Duration> ttl = ParseTtl("--ttl=", *options.ttl);
    if (!ttl.ok()) return ttl.status();
  }
  if (options.limit == uint64_t{0})
    return absl::InvalidArgumentError("--limit=0: ask for 1 at least");
  if (options.top == uint64_t{0} || options.top > uint64_t{kTopMax})
    return absl::InvalidArgumentError(absl::StrCat("--top: from 1 to ", kTopMax));
  if (options.repeat.has_value() && (*options.repeat == 0 || *options.repeat < -1))
    return absl::InvalidArgumentError(
        absl::StrCat("-r ", *options.repeat, ": give 1 or more; -1 is until Ctrl-C"));
  const bool again = options.repeat.value_or(1) != 1;
  if (again && !options.literal && std::count(arguments.begin(), arguments.end(), "-") > 0)
    return absl::InvalidArgumentError("-r: standard input (-) can be read only once");
  if (options.memory.has_value()) {
    const absl::StatusOr<uint64_t> size = server::ParseSize(*options.memory);
    if (!size.ok())
      return absl::InvalidArgumentError(absl::StrCat("--memory: ", size.status().message()));
    if (*size == 0)
      return absl::InvalidArgumentError("--memory=0 is no table; write what kvserver gets");
  }
  return CheckDoctorFlags(options);
}

}  // namespace

std::string CommandLine(const Command& command) {
  return absl::StrCat(command.name, command.arguments[0] == '\0' ? "" : " ", command.arguments);
}

Json HelpJson(const Command& command) {
  Json json;
  json["command"] = command.name;
  json["arguments"] = command.arguments;
  json["summary"] = command.summary;
  json["flags"] = FlagsOf(command);
  json["example"] = absl::StrCat("kvcli ", command.example);
  return json;
}

std::string HelpText(const Command& command) {
  std::string text = absl::StrCat("kvcli ", CommandLine(command), "\n  ", command.summary);
  const std::vector<std::string> flags = FlagsOf(command);
  if (!flags.empty()) absl::StrAppend(&text, "\n  flags:  ");
  for (const std::string& flag : flags) absl::StrAppend(&text, " ", flag);
  absl::StrAppend(&text, "\n  example: kvcli ", command.example);
  return text;
}

std::string HelpText() {
  std::string text =
      "usage: kvcli [--server=URI] COMMAND …   URI: rdma://HOST[:7411] or shm://PATH\n"
      "       kvcli [--server=URI]             a shell, or the commands that standard input has\n\n"
      "commands (`kvcli help COMMAND` has an example of each):\n";
  for (const Command& command : Commands()) {
    const std::string line = CommandLine(command);
    // printf counts bytes, a terminal characters: the difference is the bytes of "…" after its
    // first.
    const auto unseen =
        std::count_if(line.begin(), line.end(), [](char c) { return (c & 0xC0) == 0x80; });
    absl::StrAppendFormat(&text, "  %-*s %s\n", static_cast<int>(19 + unseen), line,
                          command.summary);
  }
  absl::StrAppend(
      &text, "\nflags, before or after the command (-- ends them):\n",
      DescribeFlags("kvcli", {{"--flagfile=FILE", "more flags, one a line"},
                              {"--help",
                               "print this, or behind a command what it "
                               "takes, and end; also -h"},
                              {"--version", "print the version and end"}}),
      "\nVALUE may be - (standard input) or @FILE; with --literal it is stored as it is written.\n"
      "In the shell, words are quoted as \"a b\\n\\x00\" or 'a b', and Tab completes.\n"
      "environment: OSPREY_SERVER, where --server is not given; with neither, the installed "
      "service at\n",
      kInstalledSocket,
      "; OSPREY_HISTORY, the file of the shell's history, else\n~/.osprey_history (empty: none).\n"
      "exit status: 0 done; 1 not found or condition not met; 2 usage; 3 cannot "
      "connect; 4 anything else;\n"
      "of several commands from standard input, the highest of theirs");
  return text;
}

absl::Status CheckUsage(const Command& command, Arguments arguments,
                        const CommandOptions& options) {
  if (arguments.size() < command.arguments_min || arguments.size() > command.arguments_max) {
    return absl::InvalidArgumentError(absl::StrFormat("got %d arguments; it is: kvcli %s",
                                                      arguments.size(), CommandLine(command)));
  }
  const unsigned unknown = GivenFlags(options) & ~command.flags;
  for (const FlagName& flag : FlagNames()) {
    if ((unknown & flag.flag) != 0)
      return absl::InvalidArgumentError(absl::StrCat(flag.name, " is not for this command"));
  }
  if (absl::Status values = CheckValues(command, arguments, options); !values.ok()) return values;
  return command.check == nullptr ? absl::OkStatus() : command.check(arguments, options);
}

}  // namespace osprey
