// A data directory of the machine, written as a server does. Each record is a put of its own key,
// so the keys of a copy say which records it has.
//
// Thread rule: Put and Sync run on one thread, Checkpoint on one other.

#ifndef OSPREY_TESTS_SERVER_WAL_DIRECTORY_WRITER_H_
#define OSPREY_TESTS_SERVER_WAL_DIRECTORY_WRITER_H_

#include <cstdint>
#include <memory>
#include <mutex>
#include <set>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/wal/data_directory.h"
#include "server/wal/log.h"

namespace osprey::server::wal {

// A key is this and its number.
inline constexpr char kKeyPrefix[] = "key\t";

// The keys of the checkpoint and of the log behind it.
absl::StatusOr<std::set<std::string>> KeysOf(const DataDirectory& directory);

class DirectoryWriter {
 public:
  // Recovers, and starts the log.
  static absl::StatusOr<std::unique_ptr<DirectoryWriter>> Open(const std::string& path,
                                                               LogOptions options);

  // Appends a put of key N, where N counts from 1, and writes it. Returns N.
  absl::StatusOr<uint64_t> Put(const std::string& value);
  absl::Status Sync() { return log_->Sync(); }
  // Of all keys that were put before.
  absl::Status Checkpoint(uint32_t parts);
  absl::Status End(uint64_t time) { return log_->End(time); }
  const DataDirectory& directory() const { return *directory_; }

 private:
  DirectoryWriter() = default;

  std::unique_ptr<FileSystem> files_;
  std::unique_ptr<DataDirectory> directory_;
  std::unique_ptr<Log> log_;
  std::mutex mutex_;            // of appending
  std::set<std::string> keys_;  // under mutex_
};

}  // namespace osprey::server::wal

#endif  // OSPREY_TESTS_SERVER_WAL_DIRECTORY_WRITER_H_
