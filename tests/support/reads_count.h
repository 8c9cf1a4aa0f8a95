// The READs of a GET, and the server's work meanwhile, against targets. All but the server's CPU
// time are counts, which load on the machine does not change.
//
// Starts a kvserver: over RDMA if LAB_IP has an address (in the lab), else over shared memory. A
// growing table is as often nearly full as nearly empty. So each row is counted at several moments
// of a fill, and the mean is compared.

#ifndef OSPREY_TESTS_SUPPORT_READS_COUNT_H_
#define OSPREY_TESTS_SUPPORT_READS_COUNT_H_

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
  double target = 0;  // the largest allowed value
  const char* unit = "";
  // If false, only the benchmark judges it, since a slow machine may miss the target.
  bool is_count = true;
};

// Ends the process when an operation fails.
std::vector<ReadsRow> CountReads(const ReadsOptions& options);

}  // namespace osprey

#endif  // OSPREY_TESTS_SUPPORT_READS_COUNT_H_
