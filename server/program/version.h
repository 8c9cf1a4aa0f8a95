// The version of the project's programs.

#ifndef OSPREY_SERVER_PROGRAM_VERSION_H_
#define OSPREY_SERVER_PROGRAM_VERSION_H_

#include <string>

#include "absl/strings/string_view.h"

namespace osprey {

inline constexpr absl::string_view kVersion = "0.2.0";

// The output of --version: "kvcli 0.2.0 (protocol 5, layout 4)", and the commit if known
// (build_commit.h). Programs of the same protocol and layout work together. Thread rule: any.
std::string VersionLine(absl::string_view program);

}  // namespace osprey

#endif  // OSPREY_SERVER_PROGRAM_VERSION_H_
