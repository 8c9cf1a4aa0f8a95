#include "server/program/version.h"

#include "absl/strings/str_cat.h"
#include "index/layout/layout.h"
#include "rdma/handshake.h"
#include "server/program/build_commit.h"

namespace osprey {

std::string VersionLine(absl::string_view program) {
  const absl::string_view commit = BuildCommit();
  return absl::StrCat(program, " ", kVersion, " (protocol ", rdma::kProtocolVersion, ", layout ",
                      index::kLayoutVersion, commit.empty() ? "" : ", commit ", commit, ")");
}

}  // namespace osprey
