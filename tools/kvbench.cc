// kvbench: YCSB's core workloads on an Osprey server. `kvbench --help` explains it.

#include <signal.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstdint>
#include <cstdlib>
#include <iostream>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"
#include "absl/time/time.h"
#include "client/client.h"
#include "gflags/gflags.h"
#include "rdma/address.h"
#include "server/program/flags.h"
#include "server/program/out_of_memory.h"
#include "server/program/printable.h"
#include "server/program/size_flag.h"
#include "server/program/version.h"
#include "tools/common/exit_status.h"
#include "tools/common/server_uri.h"
#include "tools/kvbench_help.h"
#include "tools/loadgen/arguments.h"
#include "tools/loadgen/environment.h"
#include "tools/loadgen/reports/outputs.h"
#include "tools/loadgen/reports/text.h"
#include "tools/loadgen/result.h"
#include "tools/loadgen/runner.h"
#include "tools/loadgen/workload/workload.h"

DEFINE_string(server, "",
              "rdma://HOST[:PORT] or shm://PATH; else the environment's OSPREY_SERVER, else the "
              "installed service of this host. null: measures the load itself, without a server");
DEFINE_bool(await_server, false,
            "if no server listens, wait up to 5 s for one instead of failing at once");
DEFINE_string(auth_key_file, "", "file with the server's key");
DEFINE_string(
    workload, "",
    "a|b|c|d|e|f|etc: YCSB's core workloads; etc: sizes and mix of the Facebook ETC pool");
DEFINE_uint64(records, 100000,
              "number of records that exist, or that load writes (recordcount); default 100000");
DEFINE_uint64(operations, 1000000,
              "operations of a run, after the warm-up (operationcount); default 1000000, with "
              "--duration as many as fit");
DEFINE_string(duration, "", "bound of a run's time, in seconds or as 5m (maxexecutiontime)");
DEFINE_string(warmup, "0",
              "time of a run before the measurement, in seconds or as 500ms; default 0");
DEFINE_uint64(threads, 1, "threads, each with a client of its own (threadcount); default 1");
DEFINE_uint32(depth, 1, "operations in flight in each thread; default 1");
DEFINE_string(
    value_size, "",
    "a value of one field of this length, as 64 or 4KiB, instead of 10 fields of 100 bytes");
DEFINE_double(target, 0,
              "operations a second of all threads, each started at its time (open loop); 0: each "
              "starts when another has ended (closed loop)");
DEFINE_string(arrivals, "poisson",
              "poisson|fixed|etc: intended starts of an open loop's operations; default poisson; "
              "etc: gaps of the Facebook ETC pool, scaled to the target");
DEFINE_bool(verify, false,
            "check that kvbench wrote each value that is read, for this key, and that it is not "
            "older than one that the thread has read (dataintegrity)");
DEFINE_uint64(seed, 0, "seed of the random numbers, which the report has; 0: a random seed");
DEFINE_string(timeout, "1", "deadline of an operation, in seconds or as 200ms; default 1");
DEFINE_string(wait, "adaptive",
              "adaptive|spin|event: how a client waits; default adaptive; spin: lowest latency, "
              "for a core a thread");
DEFINE_string(
    slot_cache, "16MiB",
    "memory of each client's location cache; default 16MiB. 0: every GET begins at the index");
DEFINE_string(json, "", "file for all results with the full histograms, which merge reads");
DEFINE_string(hdr, "",
              "HdrHistogram percentile files: --hdr=out.hdr writes out.READ.hdr, out.UPDATE.hdr …");
DEFINE_string(series, "", "file for a line a second (CSV)");
DEFINE_string(plot, "", "file for a picture (SVG): latency by percentile; rate and p99 over time");
DEFINE_bool(status, false,
            "print a line a second on standard error, even if it is not a terminal; also -s");

namespace osprey {
namespace {

using loadgen::Facts;
using loadgen::Properties;
using loadgen::RunResult;

constexpr uint32_t kDepthMax = 16'384;
constexpr uint64_t kBufferBytesMax = uint64_t{4} << 30;
constexpr uint64_t kSlotCacheBytesMax = uint64_t{1} << 40;
constexpr char kNullServer[] = "null:";

std::atomic<bool> interrupted = false;

// The first signal requests the report; a later one ends the process at once. A second signal
// directly after the first counts as the same: timeout(1), for instance, signals a process and its
// group.
void Interrupt(int signal) {
  constexpr int64_t kSameNs = 500'000'000;
  static std::atomic<int64_t> first_ns = 0;
  timespec now = {};
  clock_gettime(CLOCK_MONOTONIC, &now);
  const int64_t now_ns = now.tv_sec * 1'000'000'000 + now.tv_nsec;
  if (!interrupted.exchange(true)) {
    first_ns = now_ns;
  } else if (now_ns - first_ns > kSameNs) {
    _exit(128 + signal);
  }
}

// Prints one line, whatever a message quotes.
int Fail(ExitStatus status, absl::string_view message) {
  std::cerr << "kvbench: " << Printable(message) << '\n';
  return static_cast<int>(status);
}

bool IsGiven(const char* flag) { return !gflags::GetCommandLineFlagInfoOrDie(flag).is_default; }

// In the order of precedence: the workload, then files, then -p, then flags.
absl::StatusOr<Properties> AllProperties(bool load, const loadgen::YcsbArguments& ycsb) {
  Properties all;
  if (!FLAGS_workload.empty()) {
    absl::StatusOr<Properties> preset = loadgen::PresetWorkload(FLAGS_workload);
    if (!preset.ok()) return preset.status();
    all = *std::move(preset);
  } else if (!load && ycsb.files.empty() && ycsb.given.empty()) {
    return absl::InvalidArgumentError(
        "no workload given; use --workload=a (to f, or etc), -P FILE or -p NAME=VALUE");
  }
  for (const Properties* more : {&ycsb.files, &ycsb.given}) {
    for (const auto& [name, value] : *more) all[name] = value;
  }
  const auto flag = [&](const char* name, const char* property, const std::string& value,
                        bool by_default) {
    if (IsGiven(name) || (by_default && all.count(property) == 0)) all[property] = value;
  };
  flag("records", "recordcount", absl::StrCat(FLAGS_records), true);
  flag("threads", "threadcount", absl::StrCat(FLAGS_threads), false);
  flag("target", "target", absl::StrCat(FLAGS_target), false);
  flag("verify", "dataintegrity", FLAGS_verify ? "true" : "false", false);
  flag("status", "status", FLAGS_status ? "true" : "false", false);
  if (IsGiven("duration")) {
    const absl::StatusOr<absl::Duration> duration = loadgen::ParseTimeFlag(
        "duration", FLAGS_duration, absl::Milliseconds(1), absl::Hours(7 * 24));
    if (!duration.ok()) return duration.status();
    all["maxexecutiontime"] = absl::StrCat(absl::ToDoubleSeconds(*duration));
  }
  flag("operations", "operationcount", absl::StrCat(FLAGS_operations),
       all.count("maxexecutiontime") == 0);
  if (IsGiven("value_size")) {
    const absl::StatusOr<uint64_t> bytes = server::ParseSize(FLAGS_value_size);
    if (!bytes.ok())
      return absl::InvalidArgumentError(absl::StrCat("--value-size: ", bytes.status().message()));
    all["fieldcount"] = "1";
    all["fieldlength"] = absl::StrCat(*bytes);
    all["fieldlengthdistribution"] = "constant";
    all["sizes"] = "ycsb";
  }
  return all;
}

struct Plan {
  loadgen::RunnerOptions run;
  Options client;
  std::string server;
  loadgen::OutputPaths outputs;
  std::vector<std::string> notes;
};

absl::StatusOr<Options> ClientOptions(const loadgen::Workload& workload) {
  Options options;
  const absl::StatusOr<absl::Duration> timeout =
      loadgen::ParseTimeFlag("timeout", FLAGS_timeout, absl::Milliseconds(1), kDeadlineMax());
  if (!timeout.ok()) return timeout.status();
  options.deadline = *timeout;
  options.await_listener = FLAGS_await_server;
  options.auth_key_file = FLAGS_auth_key_file;
  const absl::StatusOr<WaitMode> wait = loadgen::ParseWait(FLAGS_wait);
  if (!wait.ok()) return wait.status();
  options.wait = *wait;
  const absl::StatusOr<uint64_t> cache = server::ParseSize(FLAGS_slot_cache);
  if (!cache.ok())
    return absl::InvalidArgumentError(absl::StrCat("--slot-cache: ", cache.status().message()));
  if (*cache > kSlotCacheBytesMax)
    return absl::InvalidArgumentError(
        absl::StrCat("--slot-cache=", FLAGS_slot_cache, " is above 1TiB"));
  options.slot_cache_bytes = *cache;
  // An ending operation and its successor may overlap.
  options.operations_max = static_cast<int>(2 * FLAGS_depth);
  const uint64_t buffers =
      2 * FLAGS_depth * std::bit_ceil(std::max<uint64_t>(1, workload.value_bytes_max()));
  // Values of the ETC pool have 1 MiB at most, and nearly always less.
  if (buffers > kBufferBytesMax && workload.sizes != loadgen::Sizes::kEtc) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "--depth=%d with values of %d bytes needs %s of buffers in each thread; at most %s are had",
        FLAGS_depth, workload.value_bytes_max(), server::FormatSize(buffers),
        server::FormatSize(kBufferBytesMax)));
  }
  options.buffer_bytes_max = std::clamp(buffers, options.buffer_bytes_max, kBufferBytesMax);
  return options;
}

absl::StatusOr<std::string> ServerUri() {
  absl::StatusOr<std::string> server = ServerUriOf(FLAGS_server);
  if (!server.ok() || *server == kNullServer) return server;
  const absl::Status address = rdma::ParseAddresses(*server).status();
  if (!address.ok())
    return absl::InvalidArgumentError(absl::StrCat(address.message(), ", or null:"));
  return server;
}

loadgen::OutputPaths Outputs() { return {FLAGS_json, FLAGS_hdr, FLAGS_series, FLAGS_plot}; }

// The whole command line, checked before any connection.
absl::StatusOr<Plan> MakePlan(bool load, const loadgen::YcsbArguments& ycsb) {
  Plan plan;
  for (const char* flag : {"auth_key_file", "json", "hdr", "series", "plot"}) {
    if (const absl::Status status = CheckNotEmpty(flag); !status.ok()) return status;
  }
  absl::StatusOr<Properties> properties = AllProperties(load, ycsb);
  if (!properties.ok()) return properties.status();
  absl::StatusOr<loadgen::Workload> workload = loadgen::ParseWorkload(*properties, plan.notes);
  if (!workload.ok()) return workload.status();
  plan.run.workload = *std::move(workload);
  plan.run.workload.name = FLAGS_workload.empty() ? "custom" : FLAGS_workload;
  plan.run.phase =
      load ? loadgen::OperationSource::Phase::kLoad : loadgen::OperationSource::Phase::kRun;
  if (FLAGS_depth < 1 || FLAGS_depth > kDepthMax) {
    return absl::InvalidArgumentError(
        absl::StrFormat("--depth=%d is not 1 to %d", FLAGS_depth, kDepthMax));
  }
  if (FLAGS_depth * plan.run.workload.threads > loadgen::InsertCounter::kWindow / 2) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "--threads × --depth is %d; at most %d operations can be in flight",
        FLAGS_depth * plan.run.workload.threads, loadgen::InsertCounter::kWindow / 2));
  }
  plan.run.depth = FLAGS_depth;
  const absl::StatusOr<loadgen::Arrivals> arrivals = loadgen::ParseArrivals(FLAGS_arrivals);
  if (!arrivals.ok()) return arrivals.status();
  plan.run.arrivals = *arrivals;
  const absl::StatusOr<absl::Duration> warm_up =
      loadgen::ParseTimeFlag("warmup", FLAGS_warmup, absl::ZeroDuration(), absl::Hours(24));
  if (!warm_up.ok()) return warm_up.status();
  plan.run.warm_up = load ? absl::ZeroDuration() : *warm_up;
  plan.run.seed = FLAGS_seed != 0 ? FLAGS_seed : 1 + std::random_device{}();
  plan.run.interrupted = &interrupted;
  absl::StatusOr<Options> client = ClientOptions(plan.run.workload);
  if (!client.ok()) return client.status();
  plan.client = *std::move(client);
  absl::StatusOr<std::string> server = ServerUri();
  if (!server.ok()) return server.status();
  plan.server = *std::move(server);
  if (plan.server == kNullServer && plan.run.workload.verify)
    return absl::InvalidArgumentError("--verify needs a server; null: returns no values");
  plan.outputs = Outputs();
  if (const absl::Status files = loadgen::CheckOutputs(plan.outputs); !files.ok()) return files;
  return plan;
}

Facts Settings(const Plan& plan) {
  const loadgen::Workload& workload = plan.run.workload;
  const bool load = plan.run.phase == loadgen::OperationSource::Phase::kLoad;
  Facts facts = {
      {"workload", workload.name},
      {"records", absl::StrCat(workload.records)},
      {"value_bytes",
       workload.sizes == loadgen::Sizes::kEtc ? "etc" : absl::StrCat(workload.value_bytes_max())},
      {"threads", absl::StrCat(workload.threads)},
      {"depth", absl::StrCat(plan.run.depth)},
      {"loop", workload.target > 0
                   ? absl::StrCat("open target=", workload.target, "/s arrivals=", FLAGS_arrivals)
                   : "closed"},
      {"wait", FLAGS_wait},
      {"slot_cache", FLAGS_slot_cache},
      {"verify", workload.verify ? "true" : "false"},
      {"seed", absl::StrCat(plan.run.seed)}};
  if (load) return facts;
  facts.emplace_back("operations",
                     workload.operations == 0 ? "unbounded" : absl::StrCat(workload.operations));
  if (workload.duration > absl::ZeroDuration())
    facts.emplace_back("duration", absl::FormatDuration(workload.duration));
  facts.emplace_back("warmup", absl::FormatDuration(plan.run.warm_up));
  return facts;
}

// Facts that readers of the numbers need.
void AddNotes(const Plan& plan, RunResult& result) {
  const loadgen::Workload& workload = plan.run.workload;
  result.notes = plan.notes;
  if (plan.run.phase == loadgen::OperationSource::Phase::kLoad) return;
  if (workload.share(loadgen::OperationKind::kScan) > 0) {
    result.notes.push_back(
        "SCAN: keys have no order here, so a scan goes on where the thread's last one ended, and "
        "not from a chosen key");
  }
  if (workload.share(loadgen::OperationKind::kUpdate) +
          workload.share(loadgen::OperationKind::kReadModifyWrite) >
      0) {
    result.notes.push_back(workload.write_all_fields
                               ? "UPDATE: writes the whole value"
                               : "UPDATE: reads the value, changes one field, writes it back");
  }
}

// Prints the report and the errors.
int Report(const RunResult& result, const loadgen::OutputPaths& outputs) {
  // Files first: the reader of standard output may close it early, like `head`.
  const absl::Status files = loadgen::WriteOutputs(result, outputs);
  std::cout << loadgen::YcsbText(result) << std::flush;
  const bool written = std::cout.good();
  const loadgen::Measurements& measured = result.measured;
  if (!written) return Fail(ExitStatus::kFailed, "standard output cannot be written");
  if (!files.ok()) return Fail(ExitStatus::kFailed, files.message());
  if (const uint64_t wrong = measured.wrong + measured.stale; wrong > 0) {
    return Fail(ExitStatus::kFailed,
                absl::StrFormat(
                    "%d of %d values were wrong (%d were not what kvbench wrote, %d too "
                    "old); the first: %s",
                    wrong, measured.checked, measured.wrong, measured.stale, measured.first_wrong));
  }
  if (measured.failed() > 0) {
    return Fail(ExitStatus::kFailed, absl::StrFormat("%d operations failed; the first: %s",
                                                     measured.failed(), measured.first_failure));
  }
  if (const uint64_t missing = measured.Returned(absl::StatusCode::kNotFound); missing > 0) {
    std::cerr << absl::StreamFormat(
        "kvbench: %d operations found no value; was the table loaded with the same --records?\n",
        missing);
  }
  return static_cast<int>(ExitStatus::kDone);
}

int RunPlan(Plan& plan) {
  plan.run.connect = [&]() -> absl::StatusOr<std::unique_ptr<loadgen::Store>> {
    if (plan.server == kNullServer) return loadgen::NullStore();
    return loadgen::ConnectStore(plan.server, plan.client);
  };
  if (plan.run.workload.status || isatty(STDERR_FILENO) != 0)
    plan.run.status = [](const std::string& line) { std::cerr << Printable(line) << std::endl; };
  struct sigaction action = {};
  action.sa_handler = Interrupt;
  action.sa_flags = SA_RESTART;
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
  const Facts machine = loadgen::DescribeMachine();
  absl::StatusOr<RunResult> result = loadgen::RunWorkload(plan.run);
  if (ReasonOf(result.status()) == Reason::kBadAuthKey)
    return Fail(ExitStatus::kUsage, absl::StrCat("--auth-key-file: ", result.status().message()));
  if (!result.ok()) {
    return Fail(ExitStatus::kCannotConnect,
                absl::StrCat("cannot connect to ", plan.server, ": ", result.status().message()));
  }
  result->environment.insert(result->environment.end(), machine.begin(), machine.end());
  result->settings = Settings(plan);
  AddNotes(plan, *result);
  const int status = Report(*result, plan.outputs);
  if (status != static_cast<int>(ExitStatus::kDone) || !result->interrupted) return status;
  const uint64_t done = result->measured.operations;
  if (plan.run.phase != loadgen::OperationSource::Phase::kLoad)
    return Fail(ExitStatus::kFailed, absl::StrCat("interrupted after ", done, " operations"));
  return Fail(ExitStatus::kFailed,
              absl::StrFormat("interrupted after %d of %d records; load them again", done,
                              plan.run.workload.insert_count));
}

// Refuses flags that apply only to a run, or only to load and run.
absl::Status CheckFlagsOf(absl::string_view command, const loadgen::YcsbArguments& ycsb) {
  if (command == "load") {
    for (const char* flag : {"operations", "warmup"}) {
      if (IsGiven(flag)) {
        return absl::InvalidArgumentError(
            absl::StrCat("--", flag, " means nothing to load, which writes --records of them"));
      }
    }
    return absl::OkStatus();
  }
  if (command != "merge") return absl::OkStatus();
  if (!ycsb.files.empty() || !ycsb.given.empty())
    return absl::InvalidArgumentError("-p and -P mean nothing to merge");
  std::vector<gflags::CommandLineFlagInfo> flags;
  gflags::GetAllFlags(&flags);
  for (const gflags::CommandLineFlagInfo& flag : flags) {
    const bool is_output =
        flag.name == "json" || flag.name == "hdr" || flag.name == "series" || flag.name == "plot";
    if (flag.is_default || is_output || !absl::StrContains(flag.filename, "kvbench.cc")) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("--", absl::StrReplaceAll(flag.name, {{"_", "-"}}),
                     " means nothing to merge, which takes --json, --hdr, --series and --plot"));
  }
  return absl::OkStatus();
}

int MergeFiles(const std::vector<std::string>& paths) {
  for (const char* flag : {"json", "hdr", "series", "plot"}) {
    if (const absl::Status status = CheckNotEmpty(flag); !status.ok())
      return Fail(ExitStatus::kUsage, status.message());
  }
  if (paths.empty()) return Fail(ExitStatus::kUsage, "merge: which results? Name their JSON files");
  std::vector<RunResult> results;
  for (const std::string& path : paths) {
    absl::StatusOr<RunResult> result = loadgen::ReadResult(path);
    if (!result.ok()) return Fail(ExitStatus::kUsage, result.status().message());
    results.push_back(*std::move(result));
  }
  const absl::StatusOr<RunResult> merged = loadgen::Merge(results);
  if (!merged.ok()) return Fail(ExitStatus::kUsage, merged.status().message());
  if (const absl::Status files = loadgen::CheckOutputs(Outputs()); !files.ok())
    return Fail(ExitStatus::kUsage, files.message());
  return Report(*merged, Outputs());
}

int Main(int argc, char** argv) {
  const absl::StatusOr<loadgen::YcsbArguments> ycsb =
      loadgen::TakeYcsbArguments(ArgumentsOf(argc, argv));
  if (!ycsb.ok()) return Fail(ExitStatus::kUsage, ycsb.status().message());
  const absl::StatusOr<std::vector<std::string>> words = ParseFlags(ycsb->rest);
  if (!words.ok()) return Fail(ExitStatus::kUsage, words.status().message());
  if (AsksForVersion()) {
    std::cout << VersionLine("kvbench") << std::endl;
    return static_cast<int>(std::cout.good() ? ExitStatus::kDone : ExitStatus::kFailed);
  }
  if (AsksForHelp() || (words->size() == 1 && words->front() == "help")) {
    std::cout << kUsage
              << DescribeFlags("kvbench.cc",
                               {{"-p NAME=VALUE", "a property; may be given again"},
                                {"-P FILE", "a file of properties; may be given again"},
                                {"--flagfile=FILE", "flags, one a line"},
                                {"--help", "print this and end; also -h"},
                                {"--version", "print the version and end"}})
              << kMoreHelp << std::flush;
    return static_cast<int>(std::cout.good() ? ExitStatus::kDone : ExitStatus::kFailed);
  }
  if (words->empty())
    return Fail(ExitStatus::kUsage, "load, run or merge? `kvbench --help` shows how");
  const std::string& command = words->front();
  if (const absl::Status flags = CheckFlagsOf(command, *ycsb); !flags.ok())
    return Fail(ExitStatus::kUsage, flags.message());
  if (command == "merge") return MergeFiles({words->begin() + 1, words->end()});
  if (command != "load" && command != "run") {
    return Fail(ExitStatus::kUsage,
                absl::StrCat("there is no command '", command, "'; it is load, run or merge"));
  }
  if (words->size() > 1) {
    return Fail(ExitStatus::kUsage,
                absl::StrCat(command, " takes flags alone; what is '", (*words)[1], "'?"));
  }
  absl::StatusOr<Plan> plan = MakePlan(command == "load", *ycsb);
  if (!plan.ok()) return Fail(ExitStatus::kUsage, plan.status().message());
  return RunPlan(*plan);
}

}  // namespace
}  // namespace osprey

int main(int argc, char** argv) {
  osprey::EndWhenOutOfMemory("kvbench");
  return osprey::Main(argc, argv);
}
