// FileSystem on a directory of the machine.

#ifndef OSPREY_SERVER_WAL_DISK_POSIX_FILE_SYSTEM_H_
#define OSPREY_SERVER_WAL_DISK_POSIX_FILE_SYSTEM_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "server/wal/disk/file_system.h"

namespace osprey::server::wal {

// REQUIRES: `path` is an existing directory, which this process alone changes. Where the file
// system has no O_DIRECT (tmpfs), ReadPastCache drops the file's clean pages and reads again.
// Errors: NOT_FOUND; UNAVAILABLE (no directory, or not accessible).
absl::StatusOr<std::unique_ptr<FileSystem>> OpenPosixFileSystem(const std::string& path);

}  // namespace osprey::server::wal

#endif  // OSPREY_SERVER_WAL_DISK_POSIX_FILE_SYSTEM_H_
