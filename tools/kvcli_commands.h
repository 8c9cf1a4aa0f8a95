// kvcli's commands: one table, from which running, checking and `help` all come. A new command is
// an entry here and a function (kvcli_keys.cc: of one key; kvcli_lifetime.cc: of
// its time to live; kvcli_many.cc: of many).
//
// Thread rule: one thread at a time.

#ifndef OSPREY_TOOLS_KVCLI_COMMANDS_H_
#define OSPREY_TOOLS_KVCLI_COMMANDS_H_

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
#include "tools/exit_status.h"
#include "tools/kvcli_output.h"

namespace osprey {

// The flags of doctor, as the user gave them.
struct DoctorFlags {
  std::optional<std::string> peer = std::nullopt;
  std::optional<std::string> memory = std::nullopt;
};

// The flags that belong to single commands, as the user gave them.
struct CommandOptions {
  bool if_absent = false;
  std::optional<uint64_t> if_version = std::nullopt;
  std::optional<std::string> ttl = std::nullopt;
  std::optional<std::string> prefix = std::nullopt;
  std::optional<uint64_t> limit = std::nullopt;
  std::optional<std::string> cursor = std::nullopt;  // as an earlier scan printed it
  bool values = false;
  DoctorFlags doctor;
};

// What a command works with. Nothing is owned.
struct CommandContext {
  Client* client = nullptr;  // null for commands that need no server
  std::string server;        // as the user wrote it
  // For commands that connect by themselves.
  absl::Duration timeout = absl::Seconds(5);
  std::string auth_key_file;
  CommandOptions options;
  std::istream* in = nullptr;
  Output* out = nullptr;
};

using Arguments = absl::Span<const std::string>;

// Which of CommandOptions a command knows.
enum CommandFlag : unsigned {
  kNoFlags = 0,
  kIfAbsent = 1,
  kIfVersion = 2,
  kPrefix = 4,
  kLimit = 8,
  kCursor = 16,
  kValues = 32,
  kTtl = 64,
  kDoctor = 128,
};

inline constexpr size_t kAnyNumber = SIZE_MAX;

struct Command {
  const char* name;
  const char* arguments;  // for help: "KEY VALUE"
  const char* summary;    // one line
  size_t arguments_min;
  size_t arguments_max;
  bool needs_server;
  unsigned flags;  // of CommandFlag
  // REQUIRES: CheckUsage is OK. Prints its result, or its error.
  ExitStatus (*run)(CommandContext& context, Arguments arguments);
};

absl::Span<const Command> Commands();

// Null when there is none of that name.
const Command* FindCommand(absl::string_view name);

// Errors: INVALID_ARGUMENT: too few or too many arguments, or a flag that the command does not
// know.
absl::Status CheckUsage(const Command& command, Arguments arguments, const CommandOptions& options);

}  // namespace osprey

#endif  // OSPREY_TOOLS_KVCLI_COMMANDS_H_
