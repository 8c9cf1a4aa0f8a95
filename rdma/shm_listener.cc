#include "rdma/shm_listener.h"

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
#include "rdma/shm_socket.h"

namespace osprey::rdma {
namespace {

// Of the page. Clients are given it open; who could write to it by name could make them believe a
// server that is gone, and who could shorten it could end them.
constexpr mode_t kPageMode = 0600;
// Connections that the kernel keeps until they are accepted; it cuts this to net.core.somaxconn.
constexpr int kBacklog = 4096;
// The page's file may be deleted and made anew between open and lock; not for ever.
constexpr int kPageAttemptsMax = 8;

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
  // Before the page is made, which would be litter beside a file that is none of ours.
  struct stat info;
  if (lstat(path.c_str(), &info) == 0 && !S_ISSOCK(info.st_mode)) return NotOurs(path, "a socket");
  if (absl::Status status = listener->OpenPage(); !status.ok()) return status;
  // From here on the path is ours, as far as servers keep the rules; now see whether one did not.
  if (absl::Status status = listener->RemoveStaleSocket(); !status.ok()) return status;
  if (absl::Status status = listener->PublishIncarnation(); !status.ok()) return status;
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

absl::Status ShmListener::LockPage(int fd) const {
  if (flock(fd, LOCK_EX | LOCK_NB) == 0) return absl::OkStatus();
  if (errno == EWOULDBLOCK) return AddressInUseError(absl::StrCat("shm://", path_));
  return PathError("lock", path_, errno);
}

absl::Status ShmListener::OpenPage() {
  const std::string page = absl::StrCat(path_, ".incarnation");
  for (int attempt = 0; attempt < kPageAttemptsMax; ++attempt) {
    UniqueFd writer(open(page.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, kPageMode));
    if (!writer.valid()) return PathError("open", page, errno);
    struct stat info;
    if (fstat(writer.get(), &info) != 0) return PathError("stat", page, errno);
    if (!S_ISREG(info.st_mode)) return NotOurs(page, "a regular file");
    if (info.st_size != 0 && info.st_size != static_cast<off_t>(kIncarnationFileBytes)) {
      return NotOurs(page, "an incarnation page of a server");
    }
    if (info.st_uid != geteuid()) {
      return NotOurs(page, absl::StrCat("this server's: it belongs to user ", info.st_uid));
    }
    if ((info.st_mode & 07777) != kPageMode && fchmod(writer.get(), kPageMode) != 0)
      return PathError("chmod", page, errno);
    if (absl::Status status = LockPage(writer.get()); !status.ok()) return status;
    // Opened by name, as a descriptor made by dup would share the lock.
    UniqueFd reader(open(page.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
    if (!reader.valid() || !SameFile(writer.get(), page) || !SameFile(reader.get(), page)) continue;
    page_writer_ = std::move(writer);
    life_ = std::make_shared<const ShmLife>(ShmLife{incarnation_, std::move(reader)});
    return absl::OkStatus();
  }
  return absl::AbortedError(
      absl::StrCat(page, " keeps being replaced; find out by whom, or choose another path"));
}

absl::Status ShmListener::PublishIncarnation() {
  const int fd = page_writer_.get();
  const std::string name = absl::StrCat(path_, ".incarnation");
  // Storage first: a store into a mapped hole of a full file system would be a SIGBUS.
  if (const int error = posix_fallocate(fd, 0, kIncarnationFileBytes); error != 0) {
    return PathError("allocate", name, error);
  }
  void* data = mmap(nullptr, kIncarnationFileBytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (data == MAP_FAILED) return PathError("map", name, errno);
  page_ = Mapping(static_cast<std::byte*>(data), kIncarnationFileBytes);
  auto* page = reinterpret_cast<IncarnationPage*>(data);
  if (page->magic != 0 && page->magic != kIncarnationMagic) {
    return NotOurs(name, "an incarnation page of a server");
  }
  page->magic = kIncarnationMagic;
  // Before anyone is accepted. Pairs with the load in LoadIncarnation.
  std::atomic_ref<uint64_t>(page->incarnation).store(incarnation_, std::memory_order_seq_cst);
  absl::StatusOr<std::unique_ptr<RobustFutex>> alive = RobustFutex::Hold(page->alive);
  if (!alive.ok()) return alive.status();
  alive_ = *std::move(alive);
  return absl::OkStatus();
}

absl::Status ShmListener::RemoveStaleSocket() const {
  struct stat info;
  if (lstat(path_.c_str(), &info) != 0) {
    return errno == ENOENT ? absl::OkStatus() : PathError("stat", path_, errno);
  }
  if (!S_ISSOCK(info.st_mode)) return NotOurs(path_, "a socket");
  // Whoever listens there without holding the lock (another program, or a server whose page was
  // deleted) answers.
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
  // Whatever the umask is. Nobody can connect before listen.
  if (chmod(path_.c_str(), socket_mode) != 0) return PathError("set the mode of", path_, errno);
  if (listen(fd->get(), kBacklog) != 0) return PathError("listen at", path_, errno);
  socket_ = *std::move(fd);
  return absl::OkStatus();
}

}  // namespace osprey::rdma
