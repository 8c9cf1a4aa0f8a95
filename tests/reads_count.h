// How many READs a GET takes, and what the server does meanwhile, against targets. All but the
// server's CPU time are counts, which no load on the machine changes.
//
// Starts a kvserver: over RDMA where LAB_IP says an address (in the lab), else over shared memory.
// A growing table is as often nearly full as nearly empty, so each row of a fill is counted at
// several moments of it, and the mean is what counts.

#ifndef OSPREY_TESTS_READS_COUNT_H_
#define OSPREY_TESTS_READS_COUNT_H_

#include <cstdint>
#include <string>
#include <vector>

namespace osprey {

struct ReadsOptions {
  uint64_t keys = 30'000;    // at the end of a fill
  uint64_t samples = 2'000;  // GETs at each moment of it
  uint64_t seed = 1;
  std::string memory = "512MiB";  // of the server
};

struct ReadsRow {
  std::string name;
  double value = 0;
  double target = 0;  // the most that it may be
  const char* unit = "";
  bool is_count = true;  // else a slow machine may miss the target: the benchmark alone judges it
};

// Ends the process when an operation fails.
std::vector<ReadsRow> CountReads(const ReadsOptions& options);

}  // namespace osprey

#endif  // OSPREY_TESTS_READS_COUNT_H_
