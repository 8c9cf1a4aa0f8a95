// The commit that this program was built from.

#ifndef OSPREY_SERVER_BUILD_COMMIT_H_
#define OSPREY_SERVER_BUILD_COMMIT_H_

#include "absl/strings/string_view.h"

namespace osprey {

// As `git describe --always --dirty` told it when the program was linked. Known to kvbench and to
// what tools/package builds (`bazel build --stamp`). Empty in other builds, which would else be
// linked anew at every commit, and where the sources are no checkout.
absl::string_view BuildCommit();

}  // namespace osprey

#endif  // OSPREY_SERVER_BUILD_COMMIT_H_
