// The lock of a data directory: one process at a time has it.
//
// It is a flock of the directory itself, and one of the file LOCK in it. Older versions lock only LOCK,
// which can be removed. LOCK names the process, for the message that another one gets:
//
//   LOCK: "server 4242\n"
//
// The kernel releases both when the process ends. On a file system that locks no directories (NFS),
// LOCK is all there is, and must not be removed.

#ifndef OSPREY_SERVER_WAL_DISK_POSIX_LOCK_H_
#define OSPREY_SERVER_WAL_DISK_POSIX_LOCK_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "server/wal/disk/file_system.h"

namespace osprey::server::wal {

// Locks the directory that `directory` is open on. `path` is its name in messages. Errors:
// FAILED_PRECONDITION (another process has it, or LOCK is no regular file); those of FileSystem.
absl::StatusOr<std::unique_ptr<DirectoryLock>> LockDirectory(int directory, const std::string& path,
                                                             LockHolder holder);

}  // namespace osprey::server::wal

#endif  // OSPREY_SERVER_WAL_DISK_POSIX_LOCK_H_
