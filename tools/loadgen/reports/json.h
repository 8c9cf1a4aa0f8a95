// A complete result as JSON, which `kvbench merge` reads back. Times carry their unit in their
// name; histograms are lists of [greatest nanoseconds of the bucket, count].
//
// Thread rule: plain functions.

#ifndef OSPREY_TOOLS_LOADGEN_REPORTS_JSON_H_
#define OSPREY_TOOLS_LOADGEN_REPORTS_JSON_H_

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "tools/loadgen/result.h"

namespace osprey::loadgen {

// The limit for a file that is read: a week of seconds takes less.
constexpr size_t kJsonBytesMax = size_t{256} << 20;

std::string ToJson(const RunResult& result);

// Errors: INVALID_ARGUMENT: not JSON, or not of kvbench; the message names the defect.
absl::StatusOr<RunResult> FromJson(absl::string_view text);

}  // namespace osprey::loadgen

#endif  // OSPREY_TOOLS_LOADGEN_REPORTS_JSON_H_
