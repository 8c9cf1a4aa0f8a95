// A data directory: FORMAT, CURRENT, and which of the other files count.
//
//   FORMAT    written once, as the last step of the creation: without it there is no log
//   CURRENT   where replay begins, and the checkpoint; replaced in one step
//
// Thread rule: ReplaceCurrent and RemoveUnused run one at a time. current() and Draw() may run on
// any threads.

#ifndef OSPREY_SERVER_WAL_DATA_DIRECTORY_H_
#define OSPREY_SERVER_WAL_DATA_DIRECTORY_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/wal/disk/file_system.h"
#include "server/wal/format/checkpoint_format.h"
#include "server/wal/format/format.h"

namespace osprey::server::wal {

// 64 random bits, never 0.
using Random = std::function<uint64_t()>;

// What a new directory gets. An existing one keeps what it has.
struct NewDirectory {
  uint32_t shards = 1;
  uint64_t server = 0;
  uint64_t hash_seed = 0;
};

struct Current {
  CurrentHeader header;
  std::vector<PartSummary> parts;
};

class DataDirectory {
 public:
  // Locks the directory, reads FORMAT and CURRENT, or creates them in an empty directory.
  // `files` outlives it. Errors: FAILED_PRECONDITION (another process has it; not empty, and no data
  // directory; of another format); DATA_LOSS (damaged); those of FileSystem.
  static absl::StatusOr<std::unique_ptr<DataDirectory>> Open(FileSystem& files,
                                                             const NewDirectory& options,
                                                             Random random);
  // Reads FORMAT and CURRENT of a directory that a server may have open. Takes no lock, and changes
  // and creates nothing. `files` outlives it. Errors: FAILED_PRECONDITION (no data directory; of
  // another format; a backup that is not complete); DATA_LOSS; those of FileSystem.
  static absl::StatusOr<std::unique_ptr<DataDirectory>> OpenToRead(FileSystem& files);
  // Locks the directory to write a backup of `origin` into it: it is an earlier backup of `origin`,
  // or empty, and gets its FORMAT then. current() has generation 0 while there is no CURRENT.
  // `files` outlives it. Errors, before anything is changed: FAILED_PRECONDITION (it is something
  // else; a server has written to it; another process has it); DATA_LOSS; those of FileSystem.
  static absl::StatusOr<std::unique_ptr<DataDirectory>> OpenCopy(FileSystem& files,
                                                                 const DataDirectory& origin,
                                                                 Random random);

  FileSystem& files() const { return files_; }
  const FormatFile& format() const { return format_; }
  // Whose segments and parts the directory may have: its own, first, and those of its origins.
  const std::vector<DirectoryId>& ids() const { return ids_; }
  uint64_t Draw() const {
    const std::lock_guard<std::mutex> lock(mutex_);
    return random_();
  }
  Current current() const;

  // Sets directory, generation and checksum, and makes it the current one, durably. REQUIRES: all
  // that it names is synced, and the directory was not opened to read. After an error the old one
  // counts, unless uncertain() is true: then the disk has one of both, and the process has to end
  // without removing anything.
  absl::Status ReplaceCurrent(Current next);
  bool uncertain() const { return uncertain_; }
  // FAILED_PRECONDITION if it is.
  absl::Status CheckCertain() const;

  // Removes segments before the redo point and parts of other checkpoints.
  absl::Status RemoveUnused();
  // At start: also segments from the redo point on that are not in `chain`, and leftovers of
  // unfinished replacements.
  absl::Status RemoveLeftovers(const std::vector<uint64_t>& chain);

 private:
  DataDirectory(FileSystem& files, Random random, std::unique_ptr<DirectoryLock> lock)
      : files_(files), random_(std::move(random)), lock_(std::move(lock)) {}

  absl::Status Create(const NewDirectory& options, const std::vector<std::string>& names);
  absl::Status CreateCopy(const DataDirectory& origin);
  absl::Status ReadCopy(const DataDirectory& origin, const std::vector<std::string>& names);
  absl::Status WriteFormat(absl::Span<const DirectoryId> more_origins);
  absl::Status ReadFormat();
  absl::Status ReadCurrent();
  absl::Status RemoveIf(const std::function<bool(const std::string&)>& is_unused);
  bool IsUnused(const std::string& name) const;

  FileSystem& files_;
  const Random random_;
  std::unique_ptr<DirectoryLock> lock_;  // null: opened to read
  FormatFile format_;
  std::vector<DirectoryId> ids_;
  mutable std::mutex mutex_;
  Current current_;  // under mutex_
  bool uncertain_ = false;
};

// The whole file, read past the cache. Errors: DATA_LOSS if it has more than `bytes_max`.
absl::StatusOr<std::string> ReadWhole(FileSystem& files, const std::string& name,
                                      uint64_t bytes_max);
// Creates the file, replacing a leftover of that name, and syncs its bytes but not its name.
absl::Status WriteWhole(FileSystem& files, const std::string& name, absl::Span<const Bytes> pieces);

}  // namespace osprey::server::wal

#endif  // OSPREY_SERVER_WAL_DATA_DIRECTORY_H_
