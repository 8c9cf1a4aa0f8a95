#include "server/wal/disk/posix_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "rdma/unique_fd.h"
#include "server/wal/disk/posix_errors.h"

namespace osprey::server::wal {
namespace {

using rdma::UniqueFd;

class PosixLock final : public DirectoryLock {
 public:
  PosixLock(UniqueFd directory, UniqueFd file)
      : directory_(std::move(directory)), file_(std::move(file)) {}

 private:
  const UniqueFd directory_;
  const UniqueFd file_;
};

absl::string_view NameOf(LockHolder holder) {
  return holder == LockHolder::kServer ? "server" : "backup";
}

// "another server (pid 4242)", as the text of LOCK says; it may be of any other program.
std::string DescribeHolder(absl::string_view text, LockHolder self) {
  const auto named = [&](LockHolder holder, absl::string_view other, absl::string_view same) {
    const absl::string_view name = NameOf(holder);
    uint32_t pid = 0;
    if (!absl::StartsWith(text, name) || !absl::SimpleAtoi(text.substr(name.size()), &pid))
      return std::string();
    return absl::StrCat(holder == self ? same : other, " (pid ", pid, ")");
  };
  std::string holder = named(LockHolder::kServer, "a server", "another server");
  if (holder.empty()) holder = named(LockHolder::kBackup, "a backup", "another backup");
  return holder.empty() ? "another process" : holder;
}

absl::Status HeldError(int directory, const std::string& path, LockHolder self) {
  char text[32];
  const UniqueFd file(openat(directory, kLockName, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
  const ssize_t got = file.valid() ? read(file.get(), text, sizeof(text)) : 0;
  return absl::FailedPreconditionError(
      absl::StrCat(DescribeHolder({text, static_cast<size_t>(got > 0 ? got : 0)}, self),
                   " uses the data directory ", path, "; end it, or name another directory"));
}

absl::StatusOr<UniqueFd> OpenLockFile(int directory, const std::string& path) {
  const std::string name = absl::StrCat(path, "/", kLockName);
  constexpr int kFlags = O_RDWR | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC;
  UniqueFd file(openat(directory, kLockName, kFlags, 0600));
  const int error = errno;
  struct stat status;
  if (fstatat(directory, kLockName, &status, AT_SYMLINK_NOFOLLOW) == 0 &&
      !S_ISREG(status.st_mode)) {
    return absl::FailedPreconditionError(absl::StrCat(
        name, S_ISLNK(status.st_mode)
                  ? " is a symbolic link; remove it: the next start creates the file"
                  : " is not a regular file; remove it: the next start creates the file"));
  }
  errno = error;
  if (!file.valid()) return SystemError("cannot open the file", name);
  return file;
}

}  // namespace

absl::StatusOr<std::unique_ptr<DirectoryLock>> LockDirectory(int directory, const std::string& path,
                                                             LockHolder holder) {
  // A descriptor of its own: locks of one do not exclude each other.
  UniqueFd own(openat(directory, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!own.valid()) return SystemError("cannot open the data directory", path);
  if (flock(own.get(), LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK)
    return HeldError(directory, path, holder);
  absl::StatusOr<UniqueFd> file = OpenLockFile(directory, path);
  if (!file.ok()) return file.status();
  if (flock(file->get(), LOCK_EX | LOCK_NB) != 0) {
    if (errno == EWOULDBLOCK) return HeldError(directory, path, holder);
    return SystemError("cannot lock the file", absl::StrCat(path, "/", kLockName));
  }
  // Without it, a message names no process: so it is on a full disk.
  const std::string text = absl::StrCat(NameOf(holder), " ", getpid(), "\n");
  if (ftruncate(file->get(), 0) == 0) (void)!pwrite(file->get(), text.data(), text.size(), 0);
  return std::make_unique<PosixLock>(std::move(own), *std::move(file));
}

}  // namespace osprey::server::wal
