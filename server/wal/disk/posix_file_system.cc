#include "server/wal/disk/posix_file_system.h"

#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/magic.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/uio.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <mutex>
#include <utility>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "absl/strings/str_cat.h"
#include "rdma/unique_fd.h"
#include "server/wal/disk/posix_errors.h"
#include "server/wal/disk/posix_lock.h"

namespace osprey::server::wal {
namespace {

using rdma::UniqueFd;

class PosixFile final : public File {
 public:
  PosixFile(UniqueFd fd, std::string path) : fd_(std::move(fd)), path_(std::move(path)) {}

  absl::Status Write(uint64_t offset, absl::Span<const Bytes> pieces) override {
    absl::InlinedVector<iovec, 8> vectors;
    for (const Bytes& piece : pieces) {
      if (!piece.empty()) vectors.push_back({const_cast<std::byte*>(piece.data()), piece.size()});
    }
    for (size_t first = 0; first < vectors.size();) {
      const int count = static_cast<int>(std::min<size_t>(vectors.size() - first, IOV_MAX));
      const ssize_t written =
          pwritev(fd_.get(), vectors.data() + first, count, static_cast<off_t>(offset));
      if (written < 0 && errno == EINTR) continue;
      if (written < 0) return SystemError("cannot write to the file", path_);
      offset += static_cast<uint64_t>(written);
      for (size_t left = static_cast<size_t>(written); left > 0;) {
        iovec& next = vectors[first];
        const size_t taken = std::min(left, next.iov_len);
        next.iov_base = static_cast<std::byte*>(next.iov_base) + taken;
        next.iov_len -= taken;
        left -= taken;
        if (next.iov_len == 0) ++first;
      }
    }
    return absl::OkStatus();
  }

  absl::Status Sync() override {
    if (fdatasync(fd_.get()) != 0) return SystemError("cannot sync the file", path_);
    return absl::OkStatus();
  }

  absl::Status Reserve(uint64_t offset, uint64_t bytes) override {
    int result = -1;
    do {
      result = fallocate(fd_.get(), FALLOC_FL_KEEP_SIZE, static_cast<off_t>(offset),
                         static_cast<off_t>(bytes));
    } while (result != 0 && errno == EINTR);
    if (result != 0) return SystemError("cannot reserve disk space for the file", path_);
    return absl::OkStatus();
  }

  // A file system that has the length already frees the blocks behind it.
  absl::Status ReleaseReserve() override {
    struct stat status;
    if (fstat(fd_.get(), &status) != 0 || ftruncate(fd_.get(), status.st_size) != 0)
      return SystemError("cannot free the space reserved for the file", path_);
    return absl::OkStatus();
  }

  absl::StatusOr<uint64_t> ReadPastCache(uint64_t offset, absl::Span<std::byte> to) override {
    const int fd = DirectFd();
    if (fd < 0) return SystemError("cannot open the file", path_);
    uint64_t done = 0;
    while (done < to.size()) {
      const ssize_t got =
          pread(fd, to.data() + done, to.size() - done, static_cast<off_t>(offset + done));
      if (got < 0 && errno == EINTR) continue;
      if (got < 0) return SystemError("cannot read the file", path_);
      done += static_cast<uint64_t>(got);
      // A count that is no multiple ends at the end of the file.
      if (got == 0 || done % kDirectAlignment != 0) break;
    }
    return done;
  }

 private:
  int DirectFd() {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (direct_fd_.valid()) return direct_fd_.get();
    direct_fd_.reset(open(path_.c_str(), O_RDONLY | O_DIRECT | O_CLOEXEC));
    if (!direct_fd_.valid() && errno == EINVAL) {
      direct_fd_.reset(open(path_.c_str(), O_RDONLY | O_CLOEXEC));
      if (direct_fd_.valid()) (void)posix_fadvise(direct_fd_.get(), 0, 0, POSIX_FADV_DONTNEED);
    }
    return direct_fd_.get();
  }

  const UniqueFd fd_;
  const std::string path_;
  std::mutex mutex_;
  UniqueFd direct_fd_;
};

class PosixFileSystem final : public FileSystem {
 public:
  PosixFileSystem(UniqueFd fd, std::string path) : fd_(std::move(fd)), path_(std::move(path)) {}

  absl::StatusOr<std::unique_ptr<File>> Create(const std::string& name) override {
    return OpenWith(name, O_RDWR | O_CREAT | O_EXCL);
  }
  absl::StatusOr<std::unique_ptr<File>> Open(const std::string& name) override {
    return OpenWith(name, O_RDONLY);
  }
  absl::StatusOr<std::unique_ptr<File>> OpenToWrite(const std::string& name) override {
    return OpenWith(name, O_RDWR);
  }
  absl::StatusOr<uint64_t> FileBytes(const std::string& name) override {
    struct stat status;
    if (fstatat(fd_.get(), name.c_str(), &status, 0) != 0) {
      if (IsLink(name)) return LinkError(name);
      return SystemError("cannot find the length of the file", PathOf(name));
    }
    return static_cast<uint64_t>(status.st_size);
  }
  absl::Status LinkFrom(FileSystem& other, const std::string& name) override {
    const std::string from = other.PathOf(name);
    if (linkat(AT_FDCWD, from.c_str(), fd_.get(), name.c_str(), AT_SYMLINK_FOLLOW) == 0)
      return absl::OkStatus();
    // The kernel refuses links to files of other users (fs.protected_hardlinks) with EPERM.
    const bool may_copy = errno == EXDEV || errno == EPERM || errno == EMLINK ||
                          errno == EOPNOTSUPP || errno == EACCES;
    const absl::Status error = SystemError("cannot link the file", from);
    return may_copy ? absl::UnimplementedError(error.message()) : error;
  }
  absl::Status Rename(const std::string& from, const std::string& to) override {
    if (renameat(fd_.get(), from.c_str(), fd_.get(), to.c_str()) != 0)
      return SystemError("cannot rename the file", PathOf(from));
    return absl::OkStatus();
  }
  absl::Status Remove(const std::string& name) override {
    if (unlinkat(fd_.get(), name.c_str(), 0) != 0)
      return SystemError("cannot remove the file", PathOf(name));
    return absl::OkStatus();
  }
  absl::Status SyncDirectory() override {
    if (fsync(fd_.get()) != 0) return SystemError("cannot sync the directory", path_);
    return absl::OkStatus();
  }
  absl::StatusOr<std::vector<std::string>> List() override {
    DIR* const directory = opendir(path_.c_str());
    if (directory == nullptr) return SystemError("cannot list the directory", path_);
    std::vector<std::string> names;
    errno = 0;
    while (const dirent* entry = readdir(directory)) {
      const std::string name = entry->d_name;
      if (name != "." && name != "..") names.push_back(name);
      errno = 0;
    }
    const bool whole = errno == 0;
    absl::Status error = whole ? absl::OkStatus() : SystemError("cannot list the directory", path_);
    closedir(directory);
    if (!whole) return error;
    std::sort(names.begin(), names.end());
    return names;
  }
  // Others copy on write, or have no disk.
  bool OverwritesInPlace() const override {
    struct statfs status;
    if (fstatfs(fd_.get(), &status) != 0) return false;
    return status.f_type == EXT4_SUPER_MAGIC || status.f_type == XFS_SUPER_MAGIC;
  }
  absl::StatusOr<uint64_t> FreeBytes() override {
    struct statvfs status;
    if (fstatvfs(fd_.get(), &status) != 0)
      return SystemError("cannot find the free space of", path_);
    return uint64_t{status.f_bavail} * status.f_frsize;
  }
  absl::StatusOr<std::unique_ptr<DirectoryLock>> Lock(LockHolder holder) override {
    return LockDirectory(fd_.get(), path_, holder);
  }
  std::string PathOf(const std::string& name) const override {
    return absl::StrCat(path_, "/", name);
  }

 private:
  absl::StatusOr<std::unique_ptr<File>> OpenWith(const std::string& name, int flags) {
    // Without O_NONBLOCK, a FIFO of that name blocks the call.
    UniqueFd fd(openat(fd_.get(), name.c_str(), flags | O_NONBLOCK | O_CLOEXEC, 0600));
    struct stat status;
    if (!fd.valid() && IsLink(name)) return LinkError(name);
    if (!fd.valid() || fstat(fd.get(), &status) != 0)
      return SystemError("cannot open the file", PathOf(name));
    if (!S_ISREG(status.st_mode)) {
      return absl::UnavailableError(absl::StrCat(
          PathOf(name), " is not a regular file; restore the data directory from a backup"));
    }
    return std::make_unique<PosixFile>(std::move(fd), PathOf(name));
  }

  // After a failed call of its name.
  bool IsLink(const std::string& name) const {
    const int error = errno;
    struct stat status;
    const bool is_link = fstatat(fd_.get(), name.c_str(), &status, AT_SYMLINK_NOFOLLOW) == 0 &&
                         S_ISLNK(status.st_mode);
    errno = error;
    return is_link;
  }
  // Not NOT_FOUND: the name is there, and what it stood for may have been data.
  absl::Status LinkError(const std::string& name) const {
    return absl::UnavailableError(
        absl::StrCat(PathOf(name),
                     " is a symbolic link that does not lead to a file that can be "
                     "opened (",
                     std::strerror(errno), "); put the file there"));
  }

  const UniqueFd fd_;
  const std::string path_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<FileSystem>> OpenPosixFileSystem(const std::string& path) {
  UniqueFd fd(open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!fd.valid()) return SystemError("cannot open the data directory", path);
  return std::make_unique<PosixFileSystem>(std::move(fd), path);
}

}  // namespace osprey::server::wal
