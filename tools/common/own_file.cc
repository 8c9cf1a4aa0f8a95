#include "tools/common/own_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>

#include "absl/strings/str_cat.h"

namespace osprey {
namespace {

constexpr mode_t kOwnMode = 0600;

absl::Status NotOurs(const std::string& path, absl::string_view why) {
  return absl::UnknownError(absl::StrCat(path, " ", why, "; remove it, or write another name"));
}

absl::Status OwnFileError(absl::string_view what, const std::string& path) {
  return absl::UnknownError(absl::StrCat(path, " cannot be ", what, ": ", std::strerror(errno)));
}

absl::Status CheckOwn(const struct stat& status, const std::string& path) {
  if (!S_ISREG(status.st_mode)) return NotOurs(path, "is no regular file");
  if (status.st_uid != geteuid())
    return NotOurs(path, absl::StrCat("belongs to user ", status.st_uid));
  if (status.st_nlink > 1)
    return NotOurs(path, absl::StrCat("has ", status.st_nlink, " names (hard links)"));
  return absl::OkStatus();
}

absl::Status WriteAll(int fd, absl::string_view text, const std::string& path) {
  while (!text.empty()) {
    const ssize_t count = write(fd, text.data(), text.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return OwnFileError("written", path);
    text.remove_prefix(static_cast<size_t>(count));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<rdma::UniqueFd> CreateOwnFile(const std::string& path) {
  if (unlink(path.c_str()) != 0 && errno != ENOENT) {
    return NotOurs(path,
                   absl::StrCat("is there already and cannot be removed: ", std::strerror(errno)));
  }
  constexpr int kFlags = O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC;
  rdma::UniqueFd fd(open(path.c_str(), kFlags, kOwnMode));
  if (!fd.valid()) {
    return absl::UnknownError(absl::StrCat(path, " cannot be created: ", std::strerror(errno),
                                           "; write a name in a folder of your own"));
  }
  return fd;
}

absl::StatusOr<rdma::UniqueFd> OpenOwnFile(const std::string& path, int flags) {
  // O_NONBLOCK: a device is opened at once, and then refused.
  flags |= O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC;
  rdma::UniqueFd fd(open(path.c_str(), flags, kOwnMode));
  if (!fd.valid()) {
    if (errno == ENOENT) return absl::NotFoundError(absl::StrCat("there is no ", path));
    // ELOOP: a symbolic link. EISDIR: a folder. ENXIO: a socket.
    if (errno == ELOOP || errno == EISDIR || errno == ENXIO)
      return NotOurs(path, "is no regular file");
    return OwnFileError("opened", path);
  }
  struct stat status = {};
  if (fstat(fd.get(), &status) != 0) return OwnFileError("looked at", path);
  if (absl::Status own = CheckOwn(status, path); !own.ok()) return own;
  return fd;
}

absl::StatusOr<std::string> ReadOwnFile(const rdma::UniqueFd& fd, const std::string& path,
                                        size_t bytes_max) {
  std::string text;
  char piece[1 << 14];
  while (text.size() < bytes_max) {
    const size_t want = std::min(sizeof(piece), bytes_max - text.size());
    const ssize_t count = pread(fd.get(), piece, want, static_cast<off_t>(text.size()));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return OwnFileError("read", path);
    if (count == 0) break;
    text.append(piece, static_cast<size_t>(count));
  }
  return text;
}

absl::Status ReplaceOwnFile(const std::string& path, absl::string_view text) {
  const std::string part = path + ".part";
  absl::StatusOr<rdma::UniqueFd> fd = CreateOwnFile(part);
  if (!fd.ok()) return fd.status();
  absl::Status status = WriteAll(fd->get(), text, part);
  // close() tells what a network's file system could not write.
  if (close(fd->release()) != 0 && status.ok()) status = OwnFileError("written", part);
  if (status.ok() && std::rename(part.c_str(), path.c_str()) != 0)
    status = OwnFileError("renamed", part);
  if (!status.ok()) unlink(part.c_str());
  return status;
}

bool IsStillNamed(int fd, const std::string& path) {
  struct stat file = {};
  struct stat named = {};
  return fstat(fd, &file) == 0 && lstat(path.c_str(), &named) == 0 && file.st_dev == named.st_dev &&
         file.st_ino == named.st_ino;
}

absl::Status CheckReplaceable(const std::string& path) {
  struct stat status = {};
  if (lstat(path.c_str(), &status) != 0) return absl::OkStatus();
  if (!S_ISREG(status.st_mode)) return NotOurs(path, "is no regular file");
  // In a folder such as /tmp only its owner, or root, may replace it.
  if (status.st_uid != geteuid() && geteuid() != 0)
    return NotOurs(path, absl::StrCat("belongs to user ", status.st_uid));
  return absl::OkStatus();
}

}  // namespace osprey
