// Compiled again at each link of a program with it. Bazel defines BUILD_SCM_REVISION, by
// tools/bazel/workspace-status.

namespace osprey {

extern const char kBuildStamp[];
const char kBuildStamp[] = BUILD_SCM_REVISION;

}  // namespace osprey
