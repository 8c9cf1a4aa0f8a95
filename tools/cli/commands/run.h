// The functions of kvcli's commands, for the table in commands.cc, and their common helpers.
// Each function prints its result, or its error. REQUIRES for each: CheckUsage is OK.
//
// Thread rule: one thread at a time.

#ifndef OSPREY_TOOLS_CLI_COMMANDS_RUN_H_
#define OSPREY_TOOLS_CLI_COMMANDS_RUN_H_

#include <chrono>
#include <cstdint>
#include <istream>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "tools/cli/commands.h"
#include "tools/common/exit_status.h"

namespace osprey {

// keys.cc
ExitStatus RunPut(CommandContext& context, Arguments arguments);
ExitStatus RunGet(CommandContext& context, Arguments arguments);
ExitStatus RunExists(CommandContext& context, Arguments arguments);
ExitStatus RunIncrement(CommandContext& context, Arguments arguments);
ExitStatus RunAppend(CommandContext& context, Arguments arguments);

// trace.cc
absl::Status CheckTrace(Arguments arguments, const CommandOptions& options);
ExitStatus RunTrace(CommandContext& context, Arguments arguments);

// lifetime.cc
ExitStatus RunExpire(CommandContext& context, Arguments arguments);
ExitStatus RunPersist(CommandContext& context, Arguments arguments);
ExitStatus RunTouch(CommandContext& context, Arguments arguments);
ExitStatus RunTtl(CommandContext& context, Arguments arguments);

// Parses a time to live: seconds, or a duration with its unit. `name` is its name in errors.
// Errors: INVALID_ARGUMENT.
absl::StatusOr<absl::Duration> ParseTtl(absl::string_view name, const std::string& text);

// server.cc
ExitStatus RunPing(CommandContext& context, Arguments arguments);
ExitStatus RunStats(CommandContext& context, Arguments arguments);
ExitStatus RunHelp(CommandContext& context, Arguments arguments);

// log.cc, backup.cc, cluster.cc
ExitStatus RunLog(CommandContext& context, Arguments arguments);
ExitStatus RunBackup(CommandContext& context, Arguments arguments);
ExitStatus RunCluster(CommandContext& context, Arguments arguments);

// 64 random bits, never 0.
uint64_t DrawWord();

// Splits a list of "name=value" with `separator` between them.
std::vector<std::pair<std::string, std::string>> SplitPairs(absl::string_view text, char separator);

// stat.cc, latency.cc, big_keys.cc, export.cc, import.cc
ExitStatus RunStat(CommandContext& context, Arguments arguments);
ExitStatus RunLatency(CommandContext& context, Arguments arguments);
ExitStatus RunBigKeys(CommandContext& context, Arguments arguments);
ExitStatus RunExport(CommandContext& context, Arguments arguments);
ExitStatus RunImport(CommandContext& context, Arguments arguments);

// The functions for Command::check.
absl::Status CheckPut(Arguments arguments, const CommandOptions& options);
absl::Status CheckMultiPut(Arguments arguments, const CommandOptions& options);
absl::Status CheckLog(Arguments arguments, const CommandOptions& options);
absl::Status CheckBackup(Arguments arguments, const CommandOptions& options);
absl::Status CheckCluster(Arguments arguments, const CommandOptions& options);
absl::Status CheckIncrement(Arguments arguments, const CommandOptions& options);
absl::Status CheckExpire(Arguments arguments, const CommandOptions& options);
absl::Status CheckLatency(Arguments arguments, const CommandOptions& options);
absl::Status CheckExport(Arguments arguments, const CommandOptions& options);
absl::Status CheckImport(Arguments arguments, const CommandOptions& options);

// The limit of --top.
inline constexpr uint64_t kTopMax = 10'000;

// many.cc
ExitStatus RunDelete(CommandContext& context, Arguments arguments);
ExitStatus RunMultiGet(CommandContext& context, Arguments arguments);
ExitStatus RunMultiPut(CommandContext& context, Arguments arguments);
ExitStatus RunScan(CommandContext& context, Arguments arguments);
ExitStatus RunCount(CommandContext& context, Arguments arguments);
ExitStatus RunFlush(CommandContext& context, Arguments arguments);

// doctor.cc
ExitStatus RunDoctor(CommandContext& context, Arguments arguments);
// Errors: INVALID_ARGUMENT.
absl::Status CheckDoctorFlags(const CommandOptions& options);
absl::Status CheckDoctor(Arguments arguments, const CommandOptions& options);

// `word` quoted for a shell, on one line for any contents (bash alone accepts the form of a line
// end).
std::string ShellQuoted(absl::string_view word);

// The command that resumes an interrupted one on `path`: all given flags, except those in
// `without`, and `more`. It is for a shell, or for kvcli's shell if the command was typed there.
std::string ContinueWith(const CommandContext& context, absl::string_view command,
                         const std::string& path, absl::Span<const absl::string_view> without,
                         absl::string_view more);

// The fix for errors whose message does not name one; otherwise empty.
absl::string_view FixOf(const absl::Status& status);

// Prints the failure of `what` with the server, the reason and the fix.
ExitStatus Fail(CommandContext& context, absl::string_view what, const absl::Status& status);

// "VERB KEY", with the key cut to fit on a line.
std::string Quoted(absl::string_view verb, absl::string_view key);

// Resolves VALUE: itself, - (standard input) or @FILE; with --literal always itself. Errors:
// INVALID_ARGUMENT: - without a standard input.
absl::StatusOr<std::string> ReadValue(const CommandContext& context, const std::string& argument);

// Prints that `what` stored nothing because its VALUE could not be read.
ExitStatus FailToRead(CommandContext& context, absl::string_view what, const absl::Status& status);

// Runs a blocking call of the Client, and records its cost for the printed result.
template <typename Call>
auto Timed(CommandContext& context, Call call) {
  const Counters before = context.client->counters();
  const auto start = std::chrono::steady_clock::now();
  auto result = call(*context.client);
  const auto took = std::chrono::steady_clock::now() - start;
  const Counters& after = context.client->counters();
  Cost cost;
  cost.reads = after.reads + after.scan_reads - before.reads - before.scan_reads;
  cost.messages = after.messages - before.messages;
  cost.time = absl::Nanoseconds(std::chrono::duration_cast<std::chrono::nanoseconds>(took).count());
  context.out->set_cost(cost);
  return result;
}

// REQUIRES: CheckUsage was OK with these options.
WriteOptions WriteOptionsOf(const CommandOptions& options);

// Prints the result of a write; in plain form the version alone, as --if-version takes it.
void PrintWritten(CommandContext& context, absl::string_view people, const std::string& key,
                  uint64_t version);

}  // namespace osprey

#endif  // OSPREY_TOOLS_CLI_COMMANDS_RUN_H_
