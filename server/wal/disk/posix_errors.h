// The errors of the operating system's calls as Status.

#ifndef OSPREY_SERVER_WAL_DISK_POSIX_ERRORS_H_
#define OSPREY_SERVER_WAL_DISK_POSIX_ERRORS_H_

#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace osprey::server::wal {

// Of a call that has just failed with errno, as FileSystem has them.
absl::Status SystemError(absl::string_view what, const std::string& path);

}  // namespace osprey::server::wal

#endif  // OSPREY_SERVER_WAL_DISK_POSIX_ERRORS_H_
