// The part of the operating system that the log and the checkpoints use: one directory of files.
//
// PosixFileSystem is the real one (posix_file_system.h). The tests have a disk that loses, tears
// and reorders what was not synced (tests/server/wal/sim_disk.h).
//
// Names are of files in the directory, without a slash. An error names the file. A symbolic link
// stands for the file that it names; other kinds of files are refused.
//
// Errors of every call: RESOURCE_EXHAUSTED (no space), NOT_FOUND, ALREADY_EXISTS, and UNAVAILABLE
// for any other failure of the disk.
//
// Thread rule: all methods may run on any threads at the same time.

#ifndef OSPREY_SERVER_WAL_DISK_FILE_SYSTEM_H_
#define OSPREY_SERVER_WAL_DISK_FILE_SYSTEM_H_

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace osprey::server::wal {

using Bytes = absl::Span<const std::byte>;

template <typename T>
Bytes BytesOf(const T& object) {
  static_assert(std::has_unique_object_representations_v<T>, "padding has any bytes");
  return {reinterpret_cast<const std::byte*>(&object), sizeof(T)};
}
inline Bytes BytesOfText(absl::string_view text) {
  return {reinterpret_cast<const std::byte*>(text.data()), text.size()};
}
inline absl::string_view TextOf(Bytes bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

// Reads past the page cache begin, end and land at multiples of this.
inline constexpr uint64_t kDirectAlignment = 4096;

constexpr uint64_t RoundUp(uint64_t bytes, uint64_t step) {
  return (bytes + step - 1) / step * step;
}
constexpr uint64_t RoundDown(uint64_t bytes, uint64_t step) { return bytes / step * step; }

// Memory for reads past the page cache. Move-only.
class AlignedBuffer {
 public:
  AlignedBuffer() = default;
  explicit AlignedBuffer(uint64_t bytes)
      : size_(RoundUp(bytes, kDirectAlignment)),
        data_(static_cast<std::byte*>(std::aligned_alloc(kDirectAlignment, size_))) {
    if (data_ == nullptr && size_ > 0) std::abort();
  }
  absl::Span<std::byte> span() const { return {data_.get(), size_}; }
  uint64_t size() const { return size_; }

 private:
  struct Free {
    void operator()(std::byte* data) const { std::free(data); }
  };
  uint64_t size_ = 0;
  std::unique_ptr<std::byte, Free> data_;
};

// An open file. Closed by its destructor.
class File {
 public:
  virtual ~File() = default;

  // Writes the pieces one after the other from `offset` on, all of them. After an error any part
  // of them may have been written.
  virtual absl::Status Write(uint64_t offset, absl::Span<const Bytes> pieces) = 0;
  // On return the bytes written before the call, and the file's length, survive a crash of the
  // machine. The name of a new file needs SyncDirectory as well. After an error the lost bytes may
  // still be in the page cache, and no later Sync writes them.
  virtual absl::Status Sync() = 0;
  // Takes disk space for so many bytes from `offset` on: writes there do not find the disk full. The
  // file's length stays. Errors: UNAVAILABLE also where the file system cannot do so.
  virtual absl::Status Reserve(uint64_t offset, uint64_t bytes) = 0;
  // Frees what is reserved behind the file's end. REQUIRES: no Write meanwhile.
  virtual absl::Status ReleaseReserve() = 0;
  // Reads what the disk has, not what the page cache has. Returns the number of bytes, fewer than
  // asked only at the end of the file. REQUIRES: offset, address and size are multiples of
  // kDirectAlignment.
  virtual absl::StatusOr<uint64_t> ReadPastCache(uint64_t offset, absl::Span<std::byte> to) = 0;
};

// What a process does with a directory that it has locked, for messages.
enum class LockHolder { kServer, kBackup };

// The file of FileSystem::Lock.
inline constexpr char kLockName[] = "LOCK";

// Held until its end, by one process at a time.
class DirectoryLock {
 public:
  virtual ~DirectoryLock() = default;
};

class FileSystem {
 public:
  virtual ~FileSystem() = default;

  // A new, empty file, to write. Its name survives a crash only after SyncDirectory.
  virtual absl::StatusOr<std::unique_ptr<File>> Create(const std::string& name) = 0;
  // An existing file, to read.
  virtual absl::StatusOr<std::unique_ptr<File>> Open(const std::string& name) = 0;
  // An existing file, to write.
  virtual absl::StatusOr<std::unique_ptr<File>> OpenToWrite(const std::string& name) = 0;
  // Length of an existing file.
  virtual absl::StatusOr<uint64_t> FileBytes(const std::string& name) = 0;
  // Gives a file of another directory the same name here, without a copy of its bytes. Survives a
  // crash only after SyncDirectory. Errors: UNIMPLEMENTED (of another disk, or links are not
  // allowed: copy it), NOT_FOUND, ALREADY_EXISTS.
  virtual absl::Status LinkFrom(FileSystem& other, const std::string& name) = 0;
  // Replaces `to` in one step. Survives a crash only after SyncDirectory.
  virtual absl::Status Rename(const std::string& from, const std::string& to) = 0;
  virtual absl::Status Remove(const std::string& name) = 0;
  virtual absl::Status SyncDirectory() = 0;
  virtual absl::StatusOr<std::vector<std::string>> List() = 0;
  // Whether bytes that are written over stay in their place on the disk. A full disk has room for them,
  // and a sync of them writes nothing else.
  virtual bool OverwritesInPlace() const = 0;
  // What this process may still write.
  virtual absl::StatusOr<uint64_t> FreeBytes() = 0;
  // Errors: FAILED_PRECONDITION if another process holds it, which the message names.
  virtual absl::StatusOr<std::unique_ptr<DirectoryLock>> Lock(LockHolder holder) = 0;
  // For messages: the directory's path and the name.
  virtual std::string PathOf(const std::string& name) const = 0;
};

}  // namespace osprey::server::wal

#endif  // OSPREY_SERVER_WAL_DISK_FILE_SYSTEM_H_
