// The files of a result.
//
// Thread rule: plain functions.

#ifndef OSPREY_TOOLS_LOADGEN_REPORTS_OUTPUTS_H_
#define OSPREY_TOOLS_LOADGEN_REPORTS_OUTPUTS_H_

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "tools/loadgen/result.h"

namespace osprey::loadgen {

// Paths; "": not written.
struct OutputPaths {
  std::string json;
  std::string hdr;     // a file for each set of latencies: HdrPath
  std::string series;  // CSV
  std::string plot;    // SVG
};

// Whether all can be written; changes nothing. Before a long run. Errors: INVALID_ARGUMENT, with
// the path: its folder is missing or takes no files, or a file there is not to be replaced
// (tools/common/own_file.h).
absl::Status CheckOutputs(const OutputPaths& paths);

// Each is there when it is complete, and this user's alone (mode 0600). Errors: DATA_LOSS: one
// cannot be written, with its path; the others are.
absl::Status WriteOutputs(const RunResult& result, const OutputPaths& paths);

// "out.hdr" and "READ": "out.READ.hdr".
std::string HdrPath(absl::string_view path, absl::string_view name);

// Errors: INVALID_ARGUMENT, with the path.
absl::StatusOr<RunResult> ReadResult(const std::string& path);

}  // namespace osprey::loadgen

#endif  // OSPREY_TOOLS_LOADGEN_REPORTS_OUTPUTS_H_
