// A result as JSON, in full: `kvbench merge` reads it back. Times carry their unit in their name;
// histograms are lists of [greatest nanoseconds of the bucket, count].
//
// Thread rule: plain functions.

#ifndef OSPREY_TOOLS_LOADGEN_REPORT_JSON_H_
#define OSPREY_TOOLS_LOADGEN_REPORT_JSON_H_

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "tools/loadgen/result.h"

namespace osprey::loadgen {

// Of a file that is read back: a week of seconds takes less.
constexpr size_t kJsonBytesMax = size_t{256} << 20;

std::string ToJson(const RunResult& result);

// Errors: INVALID_ARGUMENT: no JSON, or not kvbench's; says what is wrong with it.
absl::StatusOr<RunResult> FromJson(absl::string_view text);

}  // namespace osprey::loadgen

#endif  // OSPREY_TOOLS_LOADGEN_REPORT_JSON_H_
