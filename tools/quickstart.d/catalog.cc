// catalog: stores a Debian package index in Osprey (put), or reads it back and compares every byte
// (verify).
//
//   apt-cache dumpavail > index.txt
//   catalog put index.txt --server=rdma://192.168.1.5:7411 > put.json
//   catalog verify index.txt --server=rdma://192.168.1.5:7411 > verify.json
//
// The result is one JSON object of plain fields on standard output, one a line. Times are in
// microseconds. Exit status: 0 done, and every byte equal; 1 a value is missing or different; 2
// usage; 3 cannot connect; 4 any other failure.

#include <unistd.h>

#include <cstdint>
#include <fstream>
#include <iostream>
#include <iterator>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "absl/time/time.h"
#include "client/client.h"
#include "gflags/gflags.h"
#include "nlohmann/json.hpp"
#include "rdma/address.h"
#include "server/program/flags.h"
#include "server/program/out_of_memory.h"
#include "server/program/printable.h"
#include "server/program/version.h"
#include "tools/common/exit_status.h"
#include "tools/quickstart.d/catalog_job.h"
#include "tools/quickstart.d/deb_index.h"

DEFINE_string(server, "", "rdma://HOST[:PORT] or shm://PATH; else the environment's OSPREY_SERVER");
DEFINE_string(auth_key_file, "", "file with the server's key");
DEFINE_int32(depth, 32, "operations in flight");
DEFINE_uint64(samples, 2000, "operations done one at a time, for their latency");
// A whole pass is one burst, and the server may be busy with other clients.
DEFINE_int32(deadline_s, 10, "seconds that an operation may take; a restart of the server counts");
// The latencies are of the transport then, without the time to wake this process.
DEFINE_bool(spin, true, "poll all the time; false: leave the processor to others meanwhile");
DEFINE_bool(progress, false, "show progress even if standard error is no terminal");

namespace osprey {
namespace {

using Json = nlohmann::ordered_json;

constexpr char kUsage[] =
    "usage: catalog put|verify FILE --server=URI [FLAGS]\n"
    "Stores the Debian package index in FILE (`apt-cache dumpavail` prints one), a package a key,\n"
    "or reads it back and compares every byte. Prints one JSON object.\n"
    "Exit status: 0 done, and every byte equal; 1 something missing or different; 2 usage;\n"
    "3 cannot connect; 4 anything else.\n\n";

constexpr int kDepthMax = 4096;

using Numbers = std::map<std::string, double>;

struct Outcome {
  JobResult job;
  Counters before;
  Counters after;
  Numbers server_before;
  Numbers server_after;
  std::string description;
};

ExitStatus Fail(ExitStatus status, absl::string_view message) {
  std::cerr << "catalog: " << Printable(message) << '\n';
  return status;
}

absl::StatusOr<std::string> ReadFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::string bytes{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  if (!file.good() && !file.eof())
    return absl::NotFoundError(absl::StrCat("file '", path, "' cannot be read"));
  return bytes;
}

// The numeric counters of the server.
absl::StatusOr<Numbers> ServerNumbers(Client& client) {
  absl::StatusOr<std::string> text = client.ServerStats();
  if (!text.ok()) return text.status();
  Numbers numbers;
  for (absl::string_view line : absl::StrSplit(*text, '\n', absl::SkipWhitespace())) {
    const std::pair<std::string, std::string> field = absl::StrSplit(line, absl::MaxSplits('=', 1));
    double number = 0;
    if (absl::SimpleAtod(field.second, &number)) numbers[field.first] = number;
  }
  return numbers;
}

void ShowProgress(const char* verb, uint64_t done, uint64_t total) {
  std::cerr << absl::StreamFormat("\r%s %d of %d%s", verb, done, total, done == total ? "\n" : "");
}

absl::StatusOr<Outcome> RunJob(Client& client, bool verify, absl::Span<const Stanza> stanzas) {
  JobOptions options;
  options.depth = FLAGS_depth;
  options.samples = FLAGS_samples;
  if (FLAGS_progress || isatty(STDERR_FILENO) != 0) {
    const char* verb = verify ? "GET" : "PUT";
    options.progress = [verb](uint64_t done, uint64_t total) { ShowProgress(verb, done, total); };
  }
  absl::StatusOr<Numbers> server_before = ServerNumbers(client);
  if (!server_before.ok()) return server_before.status();
  const Counters before = client.counters();
  absl::StatusOr<JobResult> job =
      verify ? VerifyAll(client, stanzas, options) : PutAll(client, stanzas, options);
  if (!job.ok()) return job.status();
  const Counters after = client.counters();
  absl::StatusOr<Numbers> server_after = ServerNumbers(client);
  if (!server_after.ok()) return server_after.status();
  return Outcome{*std::move(job),          before,           after, *std::move(server_before),
                 *std::move(server_after), client.Describe()};
}

double Micros(uint64_t nanos) { return static_cast<double>(nanos) / 1000; }

void AddLatency(const Histogram& latency_ns, Json& json) {
  json["samples"] = latency_ns.count();
  json["p50_us"] = Micros(latency_ns.ValueAt(0.50));
  json["p99_us"] = Micros(latency_ns.ValueAt(0.99));
  json["max_us"] = Micros(latency_ns.max());
}

void AddReads(const Outcome& outcome, Json& json) {
  const uint64_t gets = outcome.after.gets - outcome.before.gets;
  const uint64_t reads = outcome.after.reads - outcome.before.reads;
  json["gets"] = gets;
  json["reads"] = reads;
  json["reads_per_get"] = gets == 0 ? 0 : static_cast<double>(reads) / static_cast<double>(gets);
  json["read_bytes"] = outcome.after.read_bytes - outcome.before.read_bytes;
  json["median_get_reads"] = outcome.job.median_get_reads;
  json["median_get_read_bytes"] = outcome.job.median_get_read_bytes;
  json["torn"] = outcome.after.torn - outcome.before.torn;
  json["retries"] = outcome.after.retries - outcome.before.retries;
  json["rpc_gets"] = outcome.after.rpc_gets - outcome.before.rpc_gets;
  json["missing"] = outcome.job.missing;
  json["different"] = outcome.job.different;
}

// The changes of the server's counters during this process' job. One request of this process lies
// between the two readings: one of the two that read the counters.
void AddServer(const Outcome& outcome, Json& json) {
  for (const auto& [name, after] : outcome.server_after) {
    const auto before = outcome.server_before.find(name);
    if (before != outcome.server_before.end())
      json["server_" + name + "_change"] = after - before->second;
  }
}

Json Report(bool verify, const Outcome& outcome) {
  const double seconds = absl::ToDoubleSeconds(outcome.job.elapsed);
  Json json;
  json["mode"] = verify ? "verify" : "put";
  for (absl::string_view word : absl::StrSplit(outcome.description, ' ', absl::SkipWhitespace())) {
    const std::pair<std::string, std::string> field = absl::StrSplit(word, absl::MaxSplits('=', 1));
    json[field.first] = field.second;
  }
  json["keys"] = outcome.job.keys;
  json["bytes"] = outcome.job.bytes;
  json["depth"] = FLAGS_depth;
  json["seconds"] = seconds;
  json["operations_per_second"] = static_cast<double>(outcome.job.keys) / seconds;
  AddLatency(outcome.job.latency_ns, json);
  if (verify) AddReads(outcome, json);
  json["messages"] = outcome.after.messages - outcome.before.messages;
  AddServer(outcome, json);
  return json;
}

ExitStatus Run(bool verify, const std::string& path, const std::string& server) {
  absl::StatusOr<std::string> index = ReadFile(path);
  if (!index.ok()) return Fail(ExitStatus::kFailed, index.status().message());
  absl::StatusOr<std::vector<Stanza>> stanzas = ParseStanzas(*index);
  if (!stanzas.ok())
    return Fail(ExitStatus::kFailed,
                absl::StrCat("file '", path, "': ", stanzas.status().message()));

  Options options;
  options.deadline = absl::Seconds(FLAGS_deadline_s);
  options.connect_timeout = options.deadline / 2;
  options.operations_max = FLAGS_depth;
  options.auth_key_file = FLAGS_auth_key_file;
  options.wait = FLAGS_spin ? WaitMode::kSpin : WaitMode::kEvent;
  absl::StatusOr<std::unique_ptr<Client>> client = Client::Connect(server, options);
  if (ReasonOf(client.status()) == Reason::kBadAuthKey) {
    return Fail(ExitStatus::kUsage, absl::StrCat("--auth-key-file: ", client.status().message()));
  }
  if (!client.ok()) {
    return Fail(ExitStatus::kCannotConnect,
                absl::StrCat("cannot connect to ", server, ": ", client.status().message()));
  }
  absl::StatusOr<Outcome> outcome = RunJob(**client, verify, *stanzas);
  if (!outcome.ok())
    return Fail(ExitStatusOf(outcome.status()),
                absl::StrCat("at ", server, ": ", outcome.status().message()));

  std::cout << Report(verify, *outcome).dump(1) << std::endl;
  if (!std::cout.good()) return Fail(ExitStatus::kFailed, "standard output cannot be written");
  if (outcome->job.missing + outcome->job.different > 0) {
    return Fail(ExitStatus::kNo,
                absl::StrFormat("%d values missing, %d different; the first is that of %s",
                                outcome->job.missing, outcome->job.different,
                                outcome->job.first_wrong_key));
  }
  return ExitStatus::kDone;
}

ExitStatus Main(int argc, char** argv) {
  const absl::StatusOr<std::vector<std::string>> words = ParseFlags(ArgumentsOf(argc, argv));
  if (!words.ok()) return Fail(ExitStatus::kUsage, words.status().message());
  if (AsksForHelp() || AsksForVersion()) {
    std::cout << (AsksForVersion() ? VersionLine("catalog") + "\n"
                                   : absl::StrCat(kUsage, DescribeFlags("catalog.cc")))
              << std::flush;
    return std::cout.good() ? ExitStatus::kDone : ExitStatus::kFailed;
  }
  const bool verify = !words->empty() && words->front() == "verify";
  if (words->size() != 2 || !(verify || words->front() == "put")) {
    return Fail(ExitStatus::kUsage,
                "it is: catalog put|verify FILE [FLAGS]; `catalog --help` shows how");
  }
  if (FLAGS_depth < 1 || FLAGS_depth > kDepthMax) {
    return Fail(ExitStatus::kUsage,
                absl::StrFormat("--depth=%d is not 1 to %d", FLAGS_depth, kDepthMax));
  }
  if (FLAGS_deadline_s < 1 || absl::Seconds(FLAGS_deadline_s) > kDeadlineMax()) {
    return Fail(ExitStatus::kUsage,
                absl::StrFormat("--deadline-s=%d is not 1 to %d", FLAGS_deadline_s,
                                absl::ToInt64Seconds(kDeadlineMax())));
  }
  if (const absl::Status key = CheckNotEmpty("auth_key_file"); !key.ok())
    return Fail(ExitStatus::kUsage, key.message());
  const char* environment = std::getenv("OSPREY_SERVER");
  const std::string server =
      !FLAGS_server.empty() || environment == nullptr ? FLAGS_server : environment;
  if (server.empty())
    return Fail(ExitStatus::kUsage, "no server given; use --server=URI or set OSPREY_SERVER");
  if (const absl::Status address = rdma::ParseAddresses(server).status(); !address.ok())
    return Fail(ExitStatus::kUsage, address.message());
  return Run(verify, words->back(), server);
}

}  // namespace
}  // namespace osprey

int main(int argc, char** argv) {
  osprey::EndWhenOutOfMemory("catalog");
  return static_cast<int>(osprey::Main(argc, argv));
}
