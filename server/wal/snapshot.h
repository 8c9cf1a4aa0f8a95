// Reads a data directory that a server may have open, as the end of its process would leave it now.
//
//   absl::Status status = ReadSnapshot(files, [&](const DataDirectory& directory) {
//     …ReadCheckpoint(directory, …), Replay(directory, …)
//   });
//
// CURRENT is read first, then the names of the segments, then their lengths, then where the records of the
// newest one end: zeros may follow. What is appended later does not count: a reader that met it could take
// a record that it passed too early for damage.
//
// A checkpoint may replace CURRENT meanwhile and remove files. Then all is read again.
//
// Thread rule: plain function.

#ifndef OSPREY_SERVER_WAL_SNAPSHOT_H_
#define OSPREY_SERVER_WAL_SNAPSHOT_H_

#include <functional>

#include "absl/status/status.h"
#include "server/wal/data_directory.h"
#include "server/wal/disk/file_system.h"

namespace osprey::server::wal {

inline constexpr int kSnapshotAttemptsMax = 5;

// Takes no lock, and changes and creates nothing. Calls `read` once, and again after NOT_FOUND or
// DATA_LOSS if CURRENT was replaced since. Errors: those of DataDirectory::OpenToRead and of
// `read`; UNAVAILABLE (CURRENT was replaced during every attempt).
absl::Status ReadSnapshot(FileSystem& files,
                          const std::function<absl::Status(const DataDirectory& directory)>& read);

}  // namespace osprey::server::wal

#endif  // OSPREY_SERVER_WAL_SNAPSHOT_H_
