// All that there is to say about a run, or about several that were merged: what every report is
// made from, and what JSON keeps in full.
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

// Names and values in the order in which they are to be shown.
using Facts = std::vector<std::pair<std::string, std::string>>;

// Of anything that is counted: what a number of JSON holds exactly wherever it is read.
constexpr uint64_t kCountMax = uint64_t{1} << 53;

struct RunResult {
  std::string phase;               // "load" or "run"
  Facts environment;               // machine, transport, versions
  Facts settings;                  // of the workload and the loop
  std::vector<std::string> notes;  // what a reader of the figures has to know
  absl::Time began;                // of the measurement
  double seconds = 0;              // to the end of the last operation
  bool open_loop = false;
  bool interrupted = false;
  int64_t behind_ns = 0;   // open loop: how late the latest thread was at the end
  uint64_t processes = 1;  // whose results these are
  // What the text shows.
  std::vector<double> percentiles;
  bool show_service = true;
  bool show_intended = false;

  Measurements measured;
  std::vector<SeriesRow> series;

  double throughput() const {
    return seconds > 0 ? static_cast<double>(measured.operations) / seconds : 0;
  }
};

// Several processes' results as one. They are taken to have run side by side: operations and
// histograms are added, the time is that of the longest, and a second's percentiles are the
// greatest of all. Settings and environment are the first's, with "(differs)" where others' are not
// the same. Errors: INVALID_ARGUMENT: none, or loads and runs mixed, or more than kCountMax of
// something together.
absl::StatusOr<RunResult> Merge(absl::Span<const RunResult> results);

}  // namespace osprey::loadgen

#endif  // OSPREY_TOOLS_LOADGEN_RESULT_H_
