// The complete result of a run, or of several merged ones. All reports come from it, and JSON keeps
// all of it.
//
// Thread rule: plain values and functions.

#ifndef OSPREY_TOOLS_LOADGEN_RESULT_H_
#define OSPREY_TOOLS_LOADGEN_RESULT_H_

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "tools/loadgen/measurements.h"

namespace osprey::loadgen {

// Names and values in their display order.
using Facts = std::vector<std::pair<std::string, std::string>>;

// The limit of all counts: JSON readers keep numbers up to this exactly.
constexpr uint64_t kCountMax = uint64_t{1} << 53;

struct RunResult {
  std::string phase;               // "load" or "run"
  Facts environment;               // machine, transport, versions
  Facts settings;                  // of the workload and the loop
  std::vector<std::string> notes;  // facts that readers of the numbers need
  absl::Time began;                // of the measurement
  double seconds = 0;              // to the end of the last operation
  bool open_loop = false;
  bool interrupted = false;
  int64_t behind_ns = 0;   // open loop: how late the latest thread was at the end
  uint64_t processes = 1;  // the number of processes with these results
  // The percentiles in the text.
  std::vector<double> percentiles;
  bool show_service = true;
  bool show_intended = false;

  Measurements measured;
  std::vector<SeriesRow> series;

  double throughput() const {
    return seconds > 0 ? static_cast<double>(measured.operations) / seconds : 0;
  }
};

// Merges the results of several processes that ran side by side: operations and histograms are
// added, and the longest time counts. A second's percentiles are the greatest of all. Settings and
// environment are the first's, with "(differs)" where others' differ. Errors: INVALID_ARGUMENT: no
// results, loads mixed with runs, or a sum above kCountMax.
absl::StatusOr<RunResult> Merge(absl::Span<const RunResult> results);

}  // namespace osprey::loadgen

#endif  // OSPREY_TOOLS_LOADGEN_RESULT_H_
