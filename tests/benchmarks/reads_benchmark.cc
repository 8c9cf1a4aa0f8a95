// The table of READs per GET.
//
//   bazel run //tests/benchmarks:reads_benchmark -- --keys=1000000
//   tools/lab -- bazel-bin/tests/benchmarks/reads_benchmark.runfiles/osprey/tests/benchmarks/reads_benchmark   # RDMA

#include <cstdio>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "gflags/gflags.h"
#include "server/program/flags.h"
#include "tests/support/reads_count.h"

DEFINE_uint64(keys, osprey::ReadsOptions().keys, "keys at the end of a fill");
DEFINE_uint64(samples, osprey::ReadsOptions().samples, "GETs at each moment of a fill");
DEFINE_uint64(seed, osprey::ReadsOptions().seed, "of keys and samples");
DEFINE_string(memory, osprey::ReadsOptions().memory, "of the server");

int main(int argc, char** argv) {
  const absl::StatusOr<std::vector<std::string>> words =
      osprey::ParseFlags(osprey::ArgumentsOf(argc, argv));
  if (!words.ok()) {
    std::fprintf(stderr, "reads_benchmark: %s\n", std::string(words.status().message()).c_str());
    return 2;
  }
  bool all_met = true;
  for (const osprey::ReadsRow& row :
       osprey::CountReads({FLAGS_keys, FLAGS_samples, FLAGS_seed, FLAGS_memory})) {
    const bool met = row.value <= row.target;
    all_met = all_met && met;
    std::printf("%-44s %8.4f  at most %5.2f %-15s %s\n", row.name.c_str(), row.value, row.target,
                row.unit, met ? "met" : "MISSED");
  }
  return all_met ? 0 : 1;
}
