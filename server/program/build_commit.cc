#include "server/program/build_commit.h"

namespace osprey {

extern const char kBuildStamp[];  // build_stamp.cc

absl::string_view BuildCommit() {
  // Bazel's value in builds without a stamp.
  constexpr absl::string_view kNone = "0";
  const absl::string_view stamp = kBuildStamp;
  return stamp == kNone ? absl::string_view() : stamp;
}

}  // namespace osprey
