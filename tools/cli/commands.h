// kvcli's commands: one table for execution, checks, completion and `help`. A new command is an
// entry in table.cc and a function in commands/. Functions on one key are in keys.cc, on its time
// to live in lifetime.cc, on many keys in many.cc; others have their own file.
//
// Thread rule: one thread at a time.

#ifndef OSPREY_TOOLS_CLI_COMMANDS_H_
#define OSPREY_TOOLS_CLI_COMMANDS_H_

#include <cstddef>
#include <cstdint>
#include <istream>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "client/client.h"
#include "server/cluster/etcd/etcd_flags.h"
#include "tools/common/exit_status.h"
#include "tools/terminal/output.h"

namespace osprey {

// The flags of doctor, as given.
struct DoctorFlags {
  std::optional<std::string> peer = std::nullopt;
  // "here", "serve", or the other host's HOST[:PORT].
  std::optional<std::string> self_test = std::nullopt;
  std::optional<std::string> bind = std::nullopt;  // HOST[:PORT]
  std::optional<std::string> device = std::nullopt;
  std::optional<int> ib_port = std::nullopt;
  std::optional<int> gid_index = std::nullopt;
  std::optional<std::string> cluster = std::nullopt;  // etcd://…
};

// The flags of cluster, as given.
struct ClusterCommandFlags {
  std::optional<uint64_t> shards = std::nullopt;
  std::optional<uint64_t> replicas = std::nullopt;
  std::optional<uint64_t> min_in_sync = std::nullopt;
  EtcdFlags etcd = {};  // also of doctor --cluster. Without its URI
};

// The flags of single commands, as given.
struct CommandOptions {
  bool if_absent = false;
  std::optional<uint64_t> if_version = std::nullopt;
  std::optional<std::string> ttl = std::nullopt;
  std::optional<std::string> prefix = std::nullopt;
  std::optional<uint64_t> limit = std::nullopt;
  std::optional<std::string> cursor = std::nullopt;  // as printed by an earlier scan
  bool values = false;
  bool literal = false;  // VALUE is stored as written
  bool yes = false;
  std::optional<std::string> format = std::nullopt;
  bool resume = false;
  std::optional<uint64_t> skip = std::nullopt;
  std::optional<uint64_t> top = std::nullopt;
  std::optional<uint64_t> size = std::nullopt;
  std::optional<uint64_t> count = std::nullopt;
  std::optional<std::string> duration = std::nullopt;
  std::optional<std::string> memory = std::nullopt;
  DoctorFlags doctor = {};
  ClusterCommandFlags cluster = {};
  // For any command: the number of runs (-1: until it is interrupted), and the time in between.
  std::optional<int64_t> repeat = std::nullopt;
  std::optional<absl::Duration> interval = std::nullopt;
};

// The environment of a command. It owns nothing.
struct CommandContext {
  Client* client = nullptr;  // null for commands that need no server
  std::string server;        // as given
  // For commands that connect on their own.
  absl::Duration timeout = absl::Seconds(5);
  std::string auth_key_file;
  CommandOptions options;
  // Every given flag, as "--name=value", except --server, -r and -i: for messages that print a
  // command.
  std::vector<std::string> given_flags;
  bool in_shell = false;       // on a terminal: the user types suggested commands there
  std::istream* in = nullptr;  // standard input; null in the shell, which reads commands from it
  Output* out = nullptr;
  bool may_ask = false;    // the user can be asked for confirmation
  bool draws_out = false;  // standard output is a terminal that can redraw lines
  bool draws_err = false;  // likewise standard error
};

using Arguments = absl::Span<const std::string>;

// The CommandOptions that a command accepts.
enum CommandFlag : unsigned {
  kNoFlags = 0,
  kIfAbsent = 1,
  kIfVersion = 2,
  kPrefix = 4,
  kLimit = 8,
  kCursor = 16,
  kValues = 32,
  kTtl = 64,
  kYes = 128,
  kFormat = 256,
  kResume = 512,
  kSkip = 1024,
  kTop = 2048,
  kSize = 4096,
  kSamples = 8192,
  kDuration = 16384,
  kPeer = 32768,
  kMemory = 65536,
  kSelfTest = 131072,
  kBind = 262144,
  kDevice = 524288,
  kIbPort = 1048576,
  kGidIndex = 2097152,
  kLiteral = 4194304,
  kReplicas = 8388608,
  kMinInSync = 16777216,
  kCaFile = 33554432,
  kCertificateFile = 67108864,
  kCertificateKeyFile = 134217728,
  kUser = 268435456,
  kPasswordFile = 536870912,
  kCluster = 1073741824,
  kShards = 2147483648,
};

// The spelling of a CommandFlag.
struct FlagName {
  unsigned flag;
  const char* name;   // "--ttl"
  const char* value;  // the text behind its =, for help: "SECONDS"; "": it is a switch
};
absl::Span<const FlagName> FlagNames();

inline constexpr size_t kAnyNumber = SIZE_MAX;

struct Command {
  const char* name;
  const char* arguments;  // for help: "KEY VALUE"
  const char* summary;    // one line
  const char* example;    // without "kvcli "
  size_t arguments_min;
  size_t arguments_max;
  bool needs_server;
  unsigned flags;  // of CommandFlag
  // Checks the arguments before there is a connection. May be null. Errors: INVALID_ARGUMENT: a
  // usage error; any other: the command would fail.
  absl::Status (*check)(Arguments arguments, const CommandOptions& options);
  // REQUIRES: CheckUsage is OK. Prints its result, or its error.
  ExitStatus (*run)(CommandContext& context, Arguments arguments);
  bool repeats_itself = false;  // the command handles -r and -i itself
};

absl::Span<const Command> Commands();

// Ignores case, as redis-cli does. Null if there is no such command.
const Command* FindCommand(absl::string_view name);

// The error for an unknown name: INVALID_ARGUMENT, with a suggestion if one is close.
absl::Status NoSuchCommand(absl::string_view name);

// "put KEY VALUE".
std::string CommandLine(const Command& command);

// `help` and `help COMMAND`, as text and as JSON: the name, arguments, effect, flags, and an
// example of a command.
std::string HelpText();
std::string HelpText(const Command& command);
Json HelpJson(const Command& command);

// Errors: INVALID_ARGUMENT: too few or too many arguments, or a flag that the command does not
// have; and those of Command::check.
absl::Status CheckUsage(const Command& command, Arguments arguments, const CommandOptions& options);

}  // namespace osprey

#endif  // OSPREY_TOOLS_CLI_COMMANDS_H_
