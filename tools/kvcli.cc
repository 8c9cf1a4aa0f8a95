// kvcli: runs one command on an Osprey server, or a shell. `kvcli help` lists the commands.

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <iostream>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/time/time.h"
#include "client/client.h"
#include "gflags/gflags.h"
#include "rdma/address.h"
#include "server/program/flags.h"
#include "server/program/out_of_memory.h"
#include "server/program/version.h"
#include "tools/cli/commands.h"
#include "tools/cli/connection.h"
#include "tools/cli/shell.h"
#include "tools/common/exit_status.h"
#include "tools/common/server_uri.h"
#include "tools/common/time_flag.h"
#include "tools/terminal/interrupt.h"
#include "tools/terminal/output.h"

DEFINE_string(server, "",
              "rdma://HOST[:PORT] or shm://PATH; else the environment's OSPREY_SERVER, else the "
              "installed service of this host");
DEFINE_string(
    auth_key_file, "",
    "file with the server's key; without it, kvcli connects only to servers without a key");
DEFINE_string(timeout, "5",
              "deadline of connecting, and of an operation, in seconds (or as 200ms)");
DEFINE_bool(await_server, false,
            "if no server listens, wait for one, up to --timeout, instead of failing at once");
DEFINE_bool(json, false, "print JSON, errors too");
DEFINE_int64(r, 1, "run the command N times; -1: until Ctrl-C");
DEFINE_string(i, "0", "with -r: seconds (or as 200ms) between two runs; with --stat 1 by default");
DEFINE_bool(stat, false, "as the command stat");
DEFINE_bool(latency, false, "as the command latency");
DEFINE_bool(bigkeys, false, "as the command bigkeys");
DEFINE_bool(scan, false, "as the command scan");
DEFINE_bool(if_absent, false, "put, mput, import: only if the key does not exist");
DEFINE_uint64(if_version, 0,
              "put, del, incr, append, expire, persist: only if the key has version N");
DEFINE_bool(literal, false,
            "put, mput, append: store VALUE literally, even if it is - or begins with @");
DEFINE_string(ttl, "", "put, mput: time to live of the keys, in seconds (or as 200ms, 24h)");
DEFINE_string(prefix, "", "scan, count, bigkeys, export: only keys that begin with this");
DEFINE_uint64(limit, 0, "scan: at most N keys, and then the cursor that continues");
DEFINE_string(cursor, "", "scan: continue an earlier scan");
DEFINE_bool(values, false, "scan: print values, too");
DEFINE_uint64(top, 10, "bigkeys: N of each kind");
DEFINE_string(format, "",
              "csv|jsonl|binary: import, export; by default by the file's ending: .csv, .jsonl, "
              ".bin or .osprey; jsonl without an ending");
DEFINE_bool(resume, false, "export: continue an interrupted export");
DEFINE_uint64(skip, 0, "import: skip the first N records");
DEFINE_string(peer, "", "doctor: probe the server at this URI, at 64 B to 1 MiB");
DEFINE_string(cluster, "",
              "doctor: check the cluster at this etcd://HOST:2379[,HOST:2379]/NAME, or "
              "etcds:// for TLS");
DEFINE_string(
    memory, "1GiB",
    "doctor: the --memory that kvserver will have; cluster create: for one copy of all keys");
DEFINE_uint64(
    shards, 1,
    "cluster create: into how many parts the keys are divided, each with a primary of its "
    "own: a power of two up to 64");
DEFINE_uint64(replicas, 3, "cluster create: how many servers shall have a copy of each key");
DEFINE_uint64(min_in_sync, 2,
              "cluster create: with fewer copies in sync, writes are refused (of fewer than 3 "
              "replicas: 1)");
DEFINE_string(cluster_ca_file, "",
              "cluster, doctor --cluster, with etcds://: file with the certificates of the "
              "authority that signed etcd's, in PEM; else the system's authorities");
DEFINE_string(cluster_certificate_file, "",
              "cluster, doctor --cluster, with etcds://: file with a certificate for etcd, in PEM");
DEFINE_string(cluster_certificate_key_file, "",
              "cluster, doctor --cluster: file with the key of --cluster-certificate-file, in PEM");
DEFINE_string(cluster_user, "", "cluster, doctor --cluster, with etcds://: the user at etcd");
DEFINE_string(
    cluster_password_file, "",
    "cluster, doctor --cluster: file with the password of --cluster-user, a line, of mode 0600");
DEFINE_bool(yes, false,
            "flush, cluster accept-loss: do not ask; cluster rebalance, drain: begin the moves");
DEFINE_uint64(size, 64, "latency: length of the values in bytes");
DEFINE_uint64(count, 0, "latency: measure N of each");
DEFINE_string(duration, "5", "latency: measure for this time, in seconds (or as 200ms)");
DEFINE_string(self_test, "",
              "doctor: move bytes by every layer of RDMA: within this process (no value), as the "
              "waiting end (serve), or with the end that waits at HOST[:PORT]");
DEFINE_string(bind, "", "doctor --self-test=serve: the HOST[:PORT] of this machine to wait at");
DEFINE_string(device, "", "doctor --self-test: the RDMA device, as `rdma link` shows it");
DEFINE_int32(ib_port, 0, "doctor --self-test: the port of the device");
DEFINE_int32(gid_index, 0, "doctor --self-test: index of the port's GID");

namespace osprey {
namespace {

// The longest value, 1 GiB, takes up to twice that on its way. Memory is allocated on demand.
constexpr uint64_t kBufferBytesMax = uint64_t{4} << 30;
// The limit of -i.
constexpr absl::Duration kIntervalMax() { return absl::Hours(24); }

absl::StatusOr<absl::Duration> ParseSeconds(absl::string_view name, const std::string& text) {
  const absl::optional<absl::Duration> time = ParseTime(text);
  if (time.has_value()) return *time;
  return absl::InvalidArgumentError(
      absl::StrCat(name, text, " is no time; examples: 5, 0.5, 200ms"));
}

absl::StatusOr<absl::Duration> ParseTimeout(const std::string& text) {
  const absl::StatusOr<absl::Duration> timeout = ParseSeconds("--timeout=", text);
  if (!timeout.ok()) return timeout;
  // This form refuses NaN as well.
  if (!(*timeout > absl::ZeroDuration() && *timeout <= kDeadlineMax())) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--timeout=", text, " is not above 0 and at most ", absl::FormatDuration(kDeadlineMax())));
  }
  return timeout;
}

absl::StatusOr<absl::Duration> ParseInterval(const std::string& text) {
  const absl::StatusOr<absl::Duration> interval = ParseSeconds("-i ", text);
  if (!interval.ok()) return interval;
  if (!(*interval >= absl::ZeroDuration() && *interval <= kIntervalMax()))
    return absl::InvalidArgumentError(absl::StrCat("-i ", text, " is not from 0 to 24 hours"));
  return interval;
}

bool IsGiven(const char* flag) { return !gflags::GetCommandLineFlagInfoOrDie(flag).is_default; }

// Errors: INVALID_ARGUMENT: a flag that is given and empty.
absl::StatusOr<ClusterCommandFlags> ClusterFlagsGiven() {
  for (const char* flag :
       {"cluster_ca_file", "cluster_certificate_file", "cluster_certificate_key_file",
        "cluster_user", "cluster_password_file"}) {
    if (absl::Status status = CheckNotEmpty(flag); !status.ok()) return status;
  }
  ClusterCommandFlags flags;
  if (IsGiven("shards")) flags.shards = FLAGS_shards;
  if (IsGiven("replicas")) flags.replicas = FLAGS_replicas;
  if (IsGiven("min_in_sync")) flags.min_in_sync = FLAGS_min_in_sync;
  flags.etcd.ca_file = FLAGS_cluster_ca_file;
  flags.etcd.certificate_file = FLAGS_cluster_certificate_file;
  flags.etcd.certificate_key_file = FLAGS_cluster_certificate_key_file;
  flags.etcd.user = FLAGS_cluster_user;
  flags.etcd.password_file = FLAGS_cluster_password_file;
  return flags;
}

absl::StatusOr<CommandOptions> OptionsFromFlags() {
  CommandOptions options;
  options.if_absent = FLAGS_if_absent;
  options.values = FLAGS_values;
  options.literal = FLAGS_literal;
  options.yes = FLAGS_yes;
  options.resume = FLAGS_resume;
  if (IsGiven("if_version")) options.if_version = FLAGS_if_version;
  if (IsGiven("ttl")) options.ttl = FLAGS_ttl;
  if (IsGiven("prefix")) options.prefix = FLAGS_prefix;
  if (IsGiven("limit")) options.limit = FLAGS_limit;
  if (IsGiven("cursor")) options.cursor = FLAGS_cursor;
  if (IsGiven("format")) options.format = FLAGS_format;
  if (IsGiven("skip")) options.skip = FLAGS_skip;
  if (IsGiven("top")) options.top = FLAGS_top;
  if (IsGiven("size")) options.size = FLAGS_size;
  if (IsGiven("count")) options.count = FLAGS_count;
  if (IsGiven("duration")) options.duration = FLAGS_duration;
  if (IsGiven("peer")) options.doctor.peer = FLAGS_peer;
  if (IsGiven("memory")) options.memory = FLAGS_memory;
  if (IsGiven("r")) options.repeat = FLAGS_r;
  if (IsGiven("i")) {
    const absl::StatusOr<absl::Duration> interval = ParseInterval(FLAGS_i);
    if (!interval.ok()) return interval.status();
    options.interval = *interval;
  }
  if (IsGiven("self_test")) options.doctor.self_test = FLAGS_self_test;
  if (IsGiven("bind")) options.doctor.bind = FLAGS_bind;
  if (IsGiven("device")) options.doctor.device = FLAGS_device;
  if (IsGiven("ib_port")) options.doctor.ib_port = FLAGS_ib_port;
  if (IsGiven("gid_index")) options.doctor.gid_index = FLAGS_gid_index;
  if (IsGiven("cluster")) options.doctor.cluster = FLAGS_cluster;
  absl::StatusOr<ClusterCommandFlags> cluster = ClusterFlagsGiven();
  if (!cluster.ok()) return cluster.status();
  options.cluster = *std::move(cluster);
  return options;
}

// The value of CommandContext::given_flags.
std::vector<std::string> GivenFlags() {
  std::vector<gflags::CommandLineFlagInfo> flags;
  gflags::GetAllFlags(&flags);
  std::vector<std::string> given;
  for (const gflags::CommandLineFlagInfo& flag : flags) {
    const bool is_own = absl::StrContains(flag.filename, "kvcli.cc") && flag.name.size() > 1;
    if (flag.is_default || !is_own || flag.name == "server") continue;
    const std::string name = absl::StrReplaceAll(flag.name, {{"_", "-"}});
    if (flag.type != "bool") {
      given.push_back(absl::StrCat("--", name, "=", flag.current_value));
    } else if (flag.current_value == "true") {
      given.push_back(absl::StrCat("--", name));
    }
  }
  return given;
}

// "": none.
std::string ServerFromFlags() { return ServerUriOf(FLAGS_server).value_or(""); }

absl::StatusOr<std::string> ServerUri() {
  absl::StatusOr<std::string> server = ServerUriOf(FLAGS_server);
  if (!server.ok()) return server;
  // A mistake of the user, not of the network.
  const absl::Status address = rdma::ParseAddresses(*server).status();
  if (!address.ok()) return address;
  return server;
}

// Makes an unconnected object. Errors: INVALID_ARGUMENT.
absl::StatusOr<KvcliConnection> ConnectionFromFlags() {
  const absl::StatusOr<absl::Duration> timeout = ParseTimeout(FLAGS_timeout);
  if (!timeout.ok()) return timeout.status();
  if (absl::Status key = CheckNotEmpty("auth_key_file"); !key.ok()) return key;
  absl::StatusOr<std::string> server = ServerUri();
  if (!server.ok()) return server.status();
  Options options;
  options.connect_timeout = *timeout;
  options.await_listener = FLAGS_await_server;
  options.deadline = *timeout;
  options.buffer_bytes_max = kBufferBytesMax;
  options.auth_key_file = FLAGS_auth_key_file;
  return KvcliConnection(*std::move(server), options);
}

Output OutputFromFlags() {
  const bool people = isatty(STDOUT_FILENO) != 0;
  return Output(
      FLAGS_json ? Output::Form::kJson : (people ? Output::Form::kPeople : Output::Form::kPlain),
      std::cout, std::cerr);
}

ExitStatus UsageError(Output& out, absl::string_view what, const absl::Status& status) {
  out.Error(what, status, "`kvcli help` shows how");
  return ExitStatus::kUsage;
}

ExitStatus ConnectError(Output& out, absl::string_view what, const std::string& server,
                        const absl::Status& status) {
  if (ReasonOf(status) == Reason::kBadAuthKey) {
    out.Error("--auth-key-file", status, "");
    return ExitStatus::kUsage;
  }
  out.Error(absl::StrCat(what, what.empty() ? "" : ": ", "cannot connect to ", server), status, "");
  return ExitStatus::kCannotConnect;
}

// Runs the command -r times; returns the highest exit status.
ExitStatus Repeat(const Command& command, CommandContext& context, Arguments arguments) {
  const int64_t times = command.repeats_itself ? 1 : context.options.repeat.value_or(1);
  if (times == 1) return command.run(context, arguments);
  const CatchInterrupts catching;
  ExitStatus worst = ExitStatus::kDone;
  for (int64_t i = 0; (times < 0 || i < times) && !Interrupted(); ++i) {
    if (i > 0) SleepUnlessInterrupted(context.options.interval.value_or(absl::ZeroDuration()));
    if (Interrupted()) break;
    worst = std::max(worst, command.run(context, arguments));
    if (!context.out->Flush()) break;
  }
  return worst;
}

// The command for --help, or for a flag that stands for a command, of which redis-cli has some.
// Errors: INVALID_ARGUMENT.
absl::StatusOr<std::vector<std::string>> WordsOf(std::vector<std::string> words) {
  // `put planet saturn --help`: the other arguments do not matter.
  if (AsksForHelp() && words.empty()) return std::vector<std::string>{"help"};
  if (AsksForHelp()) return std::vector<std::string>{"help", words[0]};
  const std::pair<bool, const char*> asked[] = {{FLAGS_stat, "stat"},
                                                {FLAGS_latency, "latency"},
                                                {FLAGS_bigkeys, "bigkeys"},
                                                {FLAGS_scan, "scan"}};
  for (const auto& [is_asked, command] : asked) {
    if (!is_asked) continue;
    if (!words.empty()) {
      return absl::InvalidArgumentError(absl::StrCat("--", command, " stands for the command ",
                                                     command, "; leave out '", words[0], "'"));
    }
    words = {command};
  }
  return words;
}

ExitStatus PrintVersion(Output& out) {
  const std::string line = VersionLine("kvcli");
  out.Result(line, line, Json{{"version", kVersion}});
  return ExitStatus::kDone;
}

// Runs one command, whose flags are set. `connection` may be null: then it is made if necessary.
ExitStatus RunCommand(const std::vector<std::string>& words, KvcliConnection* connection,
                      std::istream* in, Output& out) {
  const Command* command = FindCommand(words.front());
  if (command == nullptr) return UsageError(out, "", NoSuchCommand(words.front()));
  const Arguments arguments = Arguments(words).subspan(1);
  CommandContext context;
  context.in = in;
  context.out = &out;
  const absl::StatusOr<CommandOptions> options =
      AsksForHelp() ? CommandOptions() : OptionsFromFlags();
  if (!options.ok()) return UsageError(out, command->name, options.status());
  context.options = *options;
  context.draws_out = out.form() == Output::Form::kPeople;
  context.in_shell = in == nullptr && isatty(STDIN_FILENO) != 0 && isatty(STDOUT_FILENO) != 0;
  context.draws_err = isatty(STDERR_FILENO) != 0 && !FLAGS_json;
  context.may_ask = isatty(STDIN_FILENO) != 0 && isatty(STDERR_FILENO) != 0 &&
                    out.form() == Output::Form::kPeople;
  if (absl::Status usage = CheckUsage(*command, arguments, context.options); !usage.ok()) {
    if (absl::IsInvalidArgument(usage)) return UsageError(out, command->name, usage);
    out.Error(command->name, usage, "");
    return ExitStatus::kFailed;
  }
  const absl::StatusOr<absl::Duration> timeout = ParseTimeout(FLAGS_timeout);
  if (!timeout.ok()) return UsageError(out, command->name, timeout.status());
  if (absl::Status key = CheckNotEmpty("auth_key_file"); !key.ok())
    return UsageError(out, command->name, key);
  context.server = ServerFromFlags();
  context.timeout = *timeout;
  context.auth_key_file = FLAGS_auth_key_file;
  context.given_flags = GivenFlags();
  std::optional<KvcliConnection> own;
  if (command->needs_server) {
    if (connection == nullptr) {
      absl::StatusOr<KvcliConnection> made = ConnectionFromFlags();
      if (!made.ok()) return UsageError(out, command->name, made.status());
      connection = &own.emplace(*std::move(made));
    }
    connection->TellBefore(out);
    const absl::StatusOr<Client*> client = connection->Connect();
    if (!client.ok())
      return ConnectError(out, command->name, connection->server(), client.status());
    context.client = *client;
    context.server = connection->server();
  }
  const ExitStatus status = Repeat(*command, context, arguments);
  if (command->needs_server) connection->TellAfter(out);
  return status;
}

// gflags has no flags with an optional value.
std::vector<std::string> WithSelfTestValue(std::vector<std::string> arguments) {
  for (std::string& argument : arguments) {
    if (argument == "--") break;
    if (argument == "--self-test" || argument == "--self_test") argument += "=here";
  }
  return arguments;
}

// Runs one line of the shell. Flags of the line apply to it alone, and override those of kvcli's
// start.
ExitStatus RunLine(const std::vector<std::string>& words, KvcliConnection& connection) {
  const gflags::FlagSaver flags_of_start;
  const auto of_start = [] {
    return absl::StrCat(ServerFromFlags(), FLAGS_auth_key_file, FLAGS_timeout, FLAGS_await_server);
  };
  const std::string before = of_start();
  // Pages and messages write `kvcli` before a command.
  const size_t skipped = words.size() > 1 && words[0] == "kvcli" ? 1 : 0;
  absl::StatusOr<std::vector<std::string>> rest =
      ParseFlags(WithSelfTestValue({words.begin() + skipped, words.end()}));
  Output out = OutputFromFlags();
  out.set_values_are_lines();
  if (rest.ok() && of_start() != before) {
    rest = absl::InvalidArgumentError(
        "--server, --auth-key-file, --timeout and --await-server belong to the start of kvcli, not "
        "into a line");
  }
  if (rest.ok()) rest = WordsOf(*std::move(rest));
  if (!rest.ok()) return UsageError(out, "", rest.status());
  if (AsksForVersion()) return PrintVersion(out);
  if (rest->empty()) return UsageError(out, "", absl::InvalidArgumentError("no command given"));
  return RunCommand(*rest, &connection, nullptr, out);
}

ExitStatus RunShell(Output& out) {
  absl::StatusOr<KvcliConnection> connection = ConnectionFromFlags();
  if (!connection.ok()) return UsageError(out, "", connection.status());
  const auto run = [&](const std::vector<std::string>& words) {
    return RunLine(words, *connection);
  };
  const auto prompt = [&]() -> std::string {
    if (connection->client() != nullptr) connection->client()->Poll();
    return connection->is_connected() ? "osprey> " : "osprey (not connected)> ";
  };
  if (isatty(STDIN_FILENO) == 0 || isatty(STDOUT_FILENO) == 0)
    return RunLines({run, prompt, out}, std::cin);
  if (const absl::StatusOr<Client*> client = connection->Connect(); client.ok()) {
    std::cout << Printable((*client)->Describe()) << "\n`help` lists the commands; Ctrl-D ends\n"
              << std::flush;
  } else {
    ConnectError(out, "", connection->server(), client.status());
  }
  return RunOnTerminal({run, prompt, out});
}

int Main(int argc, char** argv) {
  absl::StatusOr<std::vector<std::string>> words =
      ParseFlags(WithSelfTestValue(ArgumentsOf(argc, argv)));
  Output out = OutputFromFlags();
  if (words.ok()) words = WordsOf(*std::move(words));
  if (!words.ok()) return static_cast<int>(UsageError(out, "", words.status()));
  const ExitStatus status = AsksForVersion() ? PrintVersion(out)
                            : words->empty() ? RunShell(out)
                                             : RunCommand(*words, nullptr, &std::cin, out);
  if (!out.Flush() && status == ExitStatus::kDone) {
    std::cerr << "kvcli: " << (words->empty() ? "" : Printable(words->front()) + ": ")
              << "standard output cannot be written; is the disk full?\n";
    return static_cast<int>(ExitStatus::kFailed);
  }
  return static_cast<int>(status);
}

}  // namespace
}  // namespace osprey

int main(int argc, char** argv) {
  osprey::EndWhenOutOfMemory("kvcli");
  return osprey::Main(argc, argv);
}
