// kvcli: one command on an Osprey server. `kvcli help` says which.

#include <unistd.h>

#include <cstdlib>
#include <iostream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "client/client.h"
#include "gflags/gflags.h"
#include "server/flags.h"
#include "tools/exit_status.h"
#include "tools/kvcli_commands.h"
#include "tools/kvcli_output.h"

DEFINE_string(server, "", "rdma://HOST[:PORT] or shm://PATH; else the environment's OSPREY_SERVER");
DEFINE_string(
    auth_key_file, "",
    "file with the key that the server has, too; without it, only servers that want none");
DEFINE_string(timeout, "5", "for connecting and for the operation, in seconds (or as 200ms)");
DEFINE_bool(json, false, "print JSON");
DEFINE_bool(if_absent, false, "put, mput: only if there is no such key");
DEFINE_uint64(if_version, 0,
              "put, del, incr, append, expire, persist: only if this is the present version");
DEFINE_string(ttl, "", "put, mput: how long the keys live, in seconds (or as 200ms, 24h)");
DEFINE_string(prefix, "", "scan, count: only keys that start so");
DEFINE_uint64(limit, 0, "scan: so many keys at most; then the cursor to go on with is told");
DEFINE_string(cursor, "", "scan: go on where an earlier one ended");
DEFINE_bool(values, false, "scan: print values, too");
DEFINE_string(peer, "", "doctor: probe the server at this URI, at 64 B to 1 MiB");
DEFINE_string(memory, "1GiB", "doctor: what kvserver --memory would be");

namespace osprey {
namespace {

// The longest value, 1 GiB, takes up to twice that on its way. Only what is needed is taken.
constexpr uint64_t kBufferBytesMax = uint64_t{4} << 30;

absl::StatusOr<absl::Duration> ParseTimeout(const std::string& text) {
  double seconds = 0;
  absl::Duration timeout;
  if (absl::SimpleAtod(text, &seconds)) {
    timeout = absl::Seconds(seconds);
  } else if (!absl::ParseDuration(text, &timeout)) {
    return absl::InvalidArgumentError(
        absl::StrCat("--timeout=", text, " is no time; examples: 5, 0.5, 200ms"));
  }
  // Written so that NaN is refused, too.
  if (!(timeout > absl::ZeroDuration() && timeout <= kDeadlineMax())) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--timeout=", text, " is not above 0 and at most ", absl::FormatDuration(kDeadlineMax())));
  }
  return timeout;
}

bool IsGiven(const char* flag) { return !gflags::GetCommandLineFlagInfoOrDie(flag).is_default; }

CommandOptions OptionsFromFlags() {
  CommandOptions options;
  options.if_absent = FLAGS_if_absent;
  options.values = FLAGS_values;
  if (IsGiven("if_version")) options.if_version = FLAGS_if_version;
  if (IsGiven("ttl")) options.ttl = FLAGS_ttl;
  if (IsGiven("prefix")) options.prefix = FLAGS_prefix;
  if (IsGiven("limit")) options.limit = FLAGS_limit;
  if (IsGiven("cursor")) options.cursor = FLAGS_cursor;
  if (IsGiven("peer")) options.doctor.peer = FLAGS_peer;
  if (IsGiven("memory")) options.doctor.memory = FLAGS_memory;
  return options;
}

std::string ServerFromFlags() {
  if (!FLAGS_server.empty()) return FLAGS_server;
  const char* server = std::getenv("OSPREY_SERVER");
  return server == nullptr ? "" : server;
}

absl::StatusOr<std::string> ServerUri() {
  std::string server = ServerFromFlags();
  if (server.empty()) {
    return absl::InvalidArgumentError(
        "no server given; use --server=rdma://HOST:7411 or --server=shm://PATH, or set "
        "OSPREY_SERVER");
  }
  // The rest of the address is the client's to judge; but a name without a scheme is a slip of the
  // user's, not of the network's.
  if (!absl::StartsWith(server, "rdma://") && !absl::StartsWith(server, "shm://")) {
    return absl::InvalidArgumentError(
        absl::StrCat("server '", server, "' starts neither with rdma:// nor with shm://"));
  }
  return server;
}

int UsageError(Output& out, absl::string_view what, const absl::Status& status) {
  out.Error(what, status, "`kvcli help` shows how");
  return static_cast<int>(ExitStatus::kUsage);
}

int Run(const Command& command, Arguments arguments, Output& out) {
  CommandContext context;
  context.options = OptionsFromFlags();
  context.in = &std::cin;
  context.out = &out;
  if (absl::Status usage = CheckUsage(command, arguments, context.options); !usage.ok()) {
    return UsageError(out, command.name, usage);
  }
  absl::StatusOr<absl::Duration> timeout = ParseTimeout(FLAGS_timeout);
  if (!timeout.ok()) return UsageError(out, command.name, timeout.status());
  if (absl::Status key = CheckNotEmpty("auth_key_file"); !key.ok())
    return UsageError(out, command.name, key);
  context.server = ServerFromFlags();
  context.timeout = *timeout;
  context.auth_key_file = FLAGS_auth_key_file;
  std::unique_ptr<Client> client;
  if (command.needs_server) {
    absl::StatusOr<std::string> server = ServerUri();
    if (!server.ok()) return UsageError(out, command.name, server.status());

    Options options;
    options.connect_timeout = *timeout;
    options.deadline = *timeout;
    options.buffer_bytes_max = kBufferBytesMax;
    options.auth_key_file = FLAGS_auth_key_file;
    absl::StatusOr<std::unique_ptr<Client>> connected = Client::Connect(*server, options);
    if (ReasonOf(connected.status()) == Reason::kBadAuthKey) {
      out.Error("--auth-key-file", connected.status(), "");
      return static_cast<int>(ExitStatus::kUsage);
    }
    if (!connected.ok()) {
      out.Error(absl::StrCat(command.name, ": cannot connect to ", *server), connected.status(),
                "");
      return static_cast<int>(ExitStatus::kCannotConnect);
    }
    client = *std::move(connected);
    context.client = client.get();
    context.server = *std::move(server);
  }
  return static_cast<int>(command.run(context, arguments));
}

int Main(int argc, char** argv) {
  absl::StatusOr<std::vector<std::string>> words = ParseFlags(ArgumentsOf(argc, argv));
  const bool people = isatty(STDOUT_FILENO) != 0;
  Output out(
      FLAGS_json ? Output::Form::kJson : (people ? Output::Form::kPeople : Output::Form::kPlain),
      std::cout, std::cerr);
  if (!words.ok()) return UsageError(out, "", words.status());
  if (gflags::GetCommandLineFlagInfoOrDie("help").current_value == "true") *words = {"help"};
  if (words->empty()) return UsageError(out, "", absl::InvalidArgumentError("no command given"));

  const Command* command = FindCommand(words->front());
  if (command == nullptr)
    return UsageError(
        out, "",
        absl::InvalidArgumentError(absl::StrCat("there is no command '", words->front(), "'")));
  const int status = Run(*command, Arguments(*words).subspan(1), out);
  if (!out.Flush() && status == 0) {
    std::cerr << "kvcli: " << command->name
              << ": standard output cannot be written; is the disk full?\n";
    return static_cast<int>(ExitStatus::kFailed);
  }
  return status;
}

}  // namespace
}  // namespace osprey

int main(int argc, char** argv) { return osprey::Main(argc, argv); }
