// The arguments of kvbench that are not gflags' flags, and the values of some flags.
//
// Thread rule: plain functions.

#ifndef OSPREY_TOOLS_LOADGEN_ARGUMENTS_H_
#define OSPREY_TOOLS_LOADGEN_ARGUMENTS_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "client/client.h"
#include "tools/loadgen/workload/pacing.h"
#include "tools/loadgen/workload/properties.h"

namespace osprey::loadgen {

// The arguments -p, -P and -s in their order, removed from a command line.
struct YcsbArguments {
  Properties files;
  Properties given;
  std::vector<std::string> rest;  // -s is --status there
};

// All errors here are INVALID_ARGUMENT.
absl::StatusOr<YcsbArguments> TakeYcsbArguments(absl::Span<const std::string> args);

// Seconds, or a number with its unit.
absl::StatusOr<absl::Duration> ParseTimeFlag(absl::string_view flag, const std::string& text,
                                             absl::Duration least, absl::Duration most);
absl::StatusOr<Arrivals> ParseArrivals(absl::string_view text);
absl::StatusOr<WaitMode> ParseWait(absl::string_view text);

}  // namespace osprey::loadgen

#endif  // OSPREY_TOOLS_LOADGEN_ARGUMENTS_H_
