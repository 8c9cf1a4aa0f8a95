// The commit of this program's sources.

#ifndef OSPREY_SERVER_PROGRAM_BUILD_COMMIT_H_
#define OSPREY_SERVER_PROGRAM_BUILD_COMMIT_H_

#include "absl/strings/string_view.h"

namespace osprey {

// The output of `git describe --always --dirty` when the program was linked. kvbench and the
// programs of tools/package have it (`bazel build --stamp`). Other builds have an empty string,
// because they would otherwise be linked again at every commit. It is also empty without a git
// checkout.
absl::string_view BuildCommit();

}  // namespace osprey

#endif  // OSPREY_SERVER_PROGRAM_BUILD_COMMIT_H_
