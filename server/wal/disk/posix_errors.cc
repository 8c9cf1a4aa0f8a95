#include "server/wal/disk/posix_errors.h"

#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"

namespace osprey::server::wal {

absl::Status SystemError(absl::string_view what, const std::string& path) {
  const int error = errno;
  const std::string message = absl::StrCat(what, " ", path, ": ", std::strerror(error));
  switch (error) {
    case ENOSPC:
    case EDQUOT:
      return absl::ResourceExhaustedError(absl::StrCat(message, "; free disk space"));
    case ENOENT:
      return absl::NotFoundError(message);
    case EEXIST:
      return absl::AlreadyExistsError(message);
    case EACCES:
      return absl::UnavailableError(
          absl::StrCat(message, "; run as the user of the data directory, or change its mode"));
    default:
      return absl::UnavailableError(message);
  }
}

}  // namespace osprey::server::wal
