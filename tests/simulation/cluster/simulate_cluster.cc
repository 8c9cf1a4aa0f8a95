// Runs many seeds of tests/simulation/cluster/cluster_simulation.h:
//
//   simulate_cluster --first-seed=1 --seeds=1000 --operations=400
//
// Prints the progress on stderr, and at the end what happened. Fails at the first wrong answer, with the command that
// repeats it, and if too few events occurred to prove anything.
//   --verbose=1  what servers log, and the faults
//   --mistake=N  with the N-th mistake of server/cluster/replication/test_hooks.h
//   --faults=0   without faults

#include <cstdint>
#include <iostream>
#include <string>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "tests/simulation/cluster/cluster_simulation.h"

namespace osprey {
namespace {

struct Flags {
  uint64_t first_seed = 1, seeds = 100, verbose = 0, mistake = 0, faults = 1;
  int operations = 400;
};

bool Parse(absl::string_view argument, Flags& flags) {
  const auto number = [&](absl::string_view name, auto& value) {
    absl::string_view rest = argument;
    return absl::ConsumePrefix(&rest, name) && absl::SimpleAtoi(rest, &value);
  };
  return number("--first-seed=", flags.first_seed) || number("--seeds=", flags.seeds) ||
         number("--operations=", flags.operations) || number("--verbose=", flags.verbose) ||
         number("--mistake=", flags.mistake) || number("--faults=", flags.faults);
}

int Main(int count, char** arguments) {
  Flags flags;
  for (int i = 1; i < count; ++i) {
    if (Parse(arguments[i], flags)) continue;
    std::cerr << "unknown flag " << arguments[i] << "; the head of simulate_cluster.cc has them\n";
    return 2;
  }
  ClusterCounts counts;
  for (uint64_t seed = flags.first_seed; seed < flags.first_seed + flags.seeds; ++seed) {
    ClusterSimulationOptions options{.seed = seed,
                                     .operations = flags.operations,
                                     .has_faults = flags.faults != 0,
                                     .mistake = static_cast<ReplicationMistake>(flags.mistake)};
    if (flags.verbose != 0)
      options.log = [](absl::string_view line) { std::cout << line << std::endl; };
    const ClusterReport report = SimulateCluster(options);
    counts.Add(report);
    if (!report.wrong.empty()) {
      std::cout << "WRONG: " << report.wrong
                << "\nagain: bazel run //tests/simulation/cluster:simulate_cluster -- --first-seed="
                << seed << " --seeds=1 --operations=" << flags.operations << std::endl;
      return 1;
    }
    if (flags.seeds == 1) std::cout << "trace " << report.trace_hash << std::endl;
    if ((seed - flags.first_seed) % 50 == 49)
      std::cerr << "all seeds up to " << seed << " are right" << std::endl;
  }
  std::cout << counts.ToString() << std::endl;
  const std::string nothing = flags.faults == 0 || flags.seeds < 50 ? "" : counts.Void();
  if (!nothing.empty()) std::cout << "VOID: " << nothing << std::endl;
  return nothing.empty() ? 0 : 1;
}

}  // namespace
}  // namespace osprey

int main(int count, char** arguments) { return osprey::Main(count, arguments); }
