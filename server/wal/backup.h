// Makes, or brings up to date, a copy of a data directory that a server may have open.
//
//   FORMAT first: it has the copy's own id, and names the origin     (DataDirectory::OpenCopy)
//     ─> parts linked, or copied where links are not possible
//     ─> origin's log synced, checked, and its segments copied up to the end that it had
//     ─> CURRENT replaced ─> what it does not need removed
//
// Each file gets its name when it is whole, synced, and read back past the cache. So at any time
// the copy is what the last complete backup made it, and an interrupted backup is begun again.
//
// A segment is copied without its close record, so that it may be the last one. Segments behind
// those of CURRENT do not count in a copy until CURRENT is replaced (log_chain.h).
//
// Thread rule: plain function. The origin's server may run; a server of the copy may not.

#ifndef OSPREY_SERVER_WAL_BACKUP_H_
#define OSPREY_SERVER_WAL_BACKUP_H_

#include <cstdint>
#include <functional>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/wal/data_directory.h"
#include "server/wal/disk/file_system.h"

namespace osprey::server::wal {

struct BackupReport {
  FormatFile format;      // of the copy
  CurrentHeader current;  // of the copy: its log ends with current.synced_to
  uint64_t parts_linked = 0;
  uint64_t parts_copied = 0;
  uint64_t parts_kept = 0;  // were there already
  uint64_t segments_copied = 0;
  uint64_t segments_kept = 0;
  uint64_t bytes_copied = 0;
  // Of the removal of what the copy no longer needs. The backup is valid in any case.
  absl::Status removal;
};

// The copy has all records that the origin had synced when the call began. `copied` is called with
// the bytes copied so far. Errors: those of ReadSnapshot for `from` and of DataDirectory::OpenCopy
// for `to`; DATA_LOSS (the origin is damaged); RESOURCE_EXHAUSTED (the disk of `to` is full);
// FAILED_PRECONDITION (`to` has files of the same names and another content); those of FileSystem.
// After an error the backup that was there before counts, unless the error is of CURRENT's
// replacement: then either may.
absl::StatusOr<BackupReport> Backup(FileSystem& from, FileSystem& to, const Random& random,
                                    const std::function<void(uint64_t bytes)>& copied);

}  // namespace osprey::server::wal

#endif  // OSPREY_SERVER_WAL_BACKUP_H_
