#include "tools/common/server_uri.h"

#include <sys/stat.h>

#include <cerrno>
#include <cstdlib>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace osprey {

absl::StatusOr<std::string> ServerUriOf(absl::string_view flag,
                                        const std::string& installed_socket) {
  if (!flag.empty()) return std::string(flag);
  const char* environment = std::getenv("OSPREY_SERVER");
  if (environment != nullptr && *environment != '\0') return std::string(environment);
  struct stat info = {};
  const bool is_found = stat(installed_socket.c_str(), &info) == 0;
  // A folder that this user may not enter: the attempt to connect will return the error.
  if (is_found ? S_ISSOCK(info.st_mode) : errno == EACCES)
    return absl::StrCat("shm://", installed_socket);
  return absl::InvalidArgumentError(
      absl::StrCat("no server given; use --server=rdma://HOST:7411 or --server=shm://PATH, or set "
                   "OSPREY_SERVER; no service of this host listens at ",
                   installed_socket));
}

}  // namespace osprey
