#include "rdma/shm/listener.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "rdma/errors.h"
#include "rdma/shm/socket.h"

namespace osprey::rdma {
namespace {

// Of the lock's file: a process that could open it could hold the lock.
constexpr mode_t kLockMode = 0600;
// Connections that the kernel keeps until they are accepted; it cuts this to net.core.somaxconn.
constexpr int kBacklog = 4096;
// The lock's file may be deleted and created again between open and lock, but not for ever.
constexpr int kLockAttemptsMax = 8;

absl::Status PathError(absl::string_view call, const std::string& path, int error) {
  const std::string what =
      absl::StrCat("cannot listen: ", call, " ", path, ": ", std::strerror(error));
  switch (error) {
    case ENOENT:
    case ENOTDIR:
      return absl::NotFoundError(
          absl::StrCat(what, "; create the directory first, or choose another path"));
    case EACCES:
    case EPERM:
    case EROFS:
      return absl::PermissionDeniedError(
          absl::StrCat(what, "; choose a directory that this user may write to"));
    case EADDRINUSE:
      return AddressInUseError(absl::StrCat("shm://", path));
    default:
      return absl::FailedPreconditionError(absl::StrCat(what, "; choose another path"));
  }
}

absl::Status NotOurs(const std::string& path, absl::string_view what) {
  return absl::FailedPreconditionError(
      absl::StrCat(path, " exists and is not ", what, "; remove it, or choose another path"));
}

bool SameFile(int fd, const std::string& path) {
  struct stat open_file, named_file;
  return fstat(fd, &open_file) == 0 && lstat(path.c_str(), &named_file) == 0 &&
         open_file.st_dev == named_file.st_dev && open_file.st_ino == named_file.st_ino;
}

}  // namespace

absl::StatusOr<std::unique_ptr<ShmListener>> ShmListener::Open(const std::string& path,
                                                               uint64_t incarnation,
                                                               mode_t socket_mode) {
  std::unique_ptr<ShmListener> listener(new ShmListener(path, incarnation));
  if (absl::Status status = SocketAddress(path).status(); !status.ok()) return status;
  // Before the lock's file is made, which would be litter beside a file that is none of ours.
  struct stat info;
  if (lstat(path.c_str(), &info) == 0 && !S_ISSOCK(info.st_mode)) return NotOurs(path, "a socket");
  if (absl::Status status = listener->TakeLock(); !status.ok()) return status;
  // From here on the path is ours, as far as servers keep the rules; now see whether one did not.
  if (absl::Status status = listener->RemoveStaleSocket(); !status.ok()) return status;
  if (absl::Status status = listener->MakePage(); !status.ok()) return status;
  if (absl::Status status = listener->Bind(socket_mode); !status.ok()) return status;
  return listener;
}

ShmListener::~ShmListener() {
  // Before the lock goes: after it, another server may already have put its socket there.
  struct stat info;
  if (socket_inode_ != 0 && lstat(path_.c_str(), &info) == 0 && info.st_ino == socket_inode_) {
    unlink(path_.c_str());
  }
}

absl::Status ShmListener::TakeLock() {
  const std::string name = absl::StrCat(path_, ".lock");
  for (int attempt = 0; attempt < kLockAttemptsMax; ++attempt) {
    // Nonblocking: a FIFO at this name must not hold up the open.
    UniqueFd lock(
        open(name.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, kLockMode));
    if (!lock.valid()) return PathError("open", name, errno);
    struct stat info;
    if (fstat(lock.get(), &info) != 0) return PathError("stat", name, errno);
    if (!S_ISREG(info.st_mode)) return NotOurs(name, "a regular file");
    if (info.st_size != 0) return NotOurs(name, "the empty lock file of a server");
    if (info.st_uid != geteuid())
      return NotOurs(name, absl::StrCat("this server's: it belongs to user ", info.st_uid));
    if ((info.st_mode & 07777) != kLockMode && fchmod(lock.get(), kLockMode) != 0)
      return PathError("chmod", name, errno);
    if (flock(lock.get(), LOCK_EX | LOCK_NB) != 0) {
      if (errno == EWOULDBLOCK) return AddressInUseError(absl::StrCat("shm://", path_));
      return PathError("lock", name, errno);
    }
    if (!SameFile(lock.get(), name)) continue;
    lock_ = std::move(lock);
    return absl::OkStatus();
  }
  return absl::AbortedError(absl::StrCat(
      name, " keeps being replaced; find out by which program, or choose another path"));
}

absl::Status ShmListener::MakePage() {
  absl::StatusOr<SealedFile> file =
      CreateSealed("osprey-incarnation", kIncarnationPageBytes, MapAccess::kRead);
  if (!file.ok()) return file.status();
  // The kernel's store at the end of the process must find the page. A page that is allocated and
  // locked needs no memory then. (To lock it may be forbidden, and then it may be swapped out.)
  if (const int error = posix_fallocate(file->fd.get(), 0, kIncarnationPageBytes); error != 0)
    return PathError("allocate", path_, error);
  (void)mlock(file->mapping.data(), kIncarnationPageBytes);
  page_ = std::move(file->mapping);
  auto* page = reinterpret_cast<IncarnationPage*>(page_.data());
  page->magic = kIncarnationMagic;
  page->incarnation = incarnation_;
  absl::StatusOr<std::unique_ptr<RobustFutex>> alive = RobustFutex::Hold(page->alive);
  if (!alive.ok()) return alive.status();
  alive_ = *std::move(alive);
  life_ = std::make_shared<const ShmLife>(ShmLife{incarnation_, std::move(file->fd)});
  return absl::OkStatus();
}

absl::Status ShmListener::RemoveStaleSocket() const {
  struct stat info;
  if (lstat(path_.c_str(), &info) != 0) {
    return errno == ENOENT ? absl::OkStatus() : PathError("stat", path_, errno);
  }
  if (!S_ISSOCK(info.st_mode)) return NotOurs(path_, "a socket");
  // A process that listens there without the lock answers: another program, or a server whose lock
  // was deleted.
  absl::StatusOr<UniqueFd> probe = NewSocket();
  if (!probe.ok()) return probe.status();
  const int error = ConnectSocket(probe->get(), *SocketAddress(path_));
  if (error == EACCES) return PathError("connect to", path_, error);
  if (error != ECONNREFUSED && error != ENOENT)
    return AddressInUseError(absl::StrCat("shm://", path_));
  if (unlink(path_.c_str()) != 0 && errno != ENOENT) return PathError("remove", path_, errno);
  return absl::OkStatus();
}

absl::Status ShmListener::Bind(mode_t socket_mode) {
  absl::StatusOr<UniqueFd> fd = NewSocket();
  if (!fd.ok()) return fd.status();
  const sockaddr_un address = *SocketAddress(path_);
  if (bind(fd->get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0) {
    return PathError("bind", path_, errno);
  }
  struct stat info;
  if (lstat(path_.c_str(), &info) == 0) socket_inode_ = info.st_ino;
  newcomers_take_descriptors_ = !SetTakesDescriptors(fd->get(), false);
  // Whatever the umask is. No peer can connect before listen.
  if (chmod(path_.c_str(), socket_mode) != 0) return PathError("set the mode of", path_, errno);
  if (listen(fd->get(), kBacklog) != 0) return PathError("listen at", path_, errno);
  socket_ = *std::move(fd);
  return absl::OkStatus();
}

}  // namespace osprey::rdma
