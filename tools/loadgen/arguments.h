// What the command line of kvbench says beside gflags' flags, and the values of some of those.
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
#include "tools/loadgen/pacing.h"
#include "tools/loadgen/properties.h"

namespace osprey::loadgen {

// What -p, -P and -s ask for, in their order, taken out of a command line.
struct YcsbArguments {
  Properties files;
  Properties given;
  std::vector<std::string> rest;  // -s is --status there
};

// All errors here: INVALID_ARGUMENT.
absl::StatusOr<YcsbArguments> TakeYcsbArguments(absl::Span<const std::string> args);

// Seconds, or a number with its unit.
absl::StatusOr<absl::Duration> ParseTimeFlag(absl::string_view flag, const std::string& text,
                                             absl::Duration least, absl::Duration most);
absl::StatusOr<Arrivals> ParseArrivals(absl::string_view text);
absl::StatusOr<WaitMode> ParseWait(absl::string_view text);

}  // namespace osprey::loadgen

#endif  // OSPREY_TOOLS_LOADGEN_ARGUMENTS_H_
