#include "rdma/shm/socket.h"

#include <fcntl.h>

#include <cassert>
#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"

#ifndef SO_PASSRIGHTS
#define SO_PASSRIGHTS 83  // Linux 6.16
#endif

namespace osprey::rdma {
namespace {

// A signal may interrupt a call that does not block only before it did anything; twice in a row is
// already strange.
constexpr int kInterruptionsMax = 8;

template <typename Call>
ssize_t Uninterrupted(const Call& call) {
  ssize_t result = -1;
  for (int attempt = 0; attempt < kInterruptionsMax; ++attempt) {
    result = call();
    if (result >= 0 || errno != EINTR) break;
  }
  return result;
}

// Only memfds have seals; what has none fails without a look at the file itself, which might block.
bool IsMemfd(int fd) { return fcntl(fd, F_GET_SEALS) >= 0; }

// Takes the descriptors out of `message`.
void TakeDescriptors(msghdr* message, const std::shared_ptr<CloserLane>& lane,
                     ReceivedPacket* received) {
  for (cmsghdr* part = CMSG_FIRSTHDR(message); part != nullptr; part = CMSG_NXTHDR(message, part)) {
    if (part->cmsg_level != SOL_SOCKET || part->cmsg_type != SCM_RIGHTS) continue;
    const size_t count = (part->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (size_t i = 0; i < count; ++i) {
      int fd = -1;
      std::memcpy(&fd, CMSG_DATA(part) + i * sizeof(int), sizeof(fd));
      PeerFd owner(fd, lane);
      received->fds_foreign |= !IsMemfd(fd);
      if (received->fd_count == kPacketFdsMax) {
        received->fds_lost = true;
        continue;
      }
      received->fds[received->fd_count++] = std::move(owner);
    }
  }
  if ((message->msg_flags & MSG_CTRUNC) != 0) received->fds_lost = true;
}

bool IsNothing(int error) { return error == EAGAIN || error == EWOULDBLOCK || error == EINTR; }

ReceiveResult ResultOf(int error) {
  return IsNothing(error) ? ReceiveResult::kNothing : ReceiveResult::kHangUp;
}

// Removes the first packet from the queue of `socket`, and the references to its descriptors.
// False: it is still there.
bool DropPacket(int socket) {
  msghdr message = {};
  return Uninterrupted([&] { return recvmsg(socket, &message, MSG_DONTWAIT); }) >= 0;
}

}  // namespace

// The packet is looked at first and removed afterwards. In between its descriptors are open here
// and in the queue, so that no close of one is the last. Thus it is known what a packet brings
// before anything of it is closed:
//
//   memfds, at most kPacketFdsMax   removed: the queue's references are not the last
//   anything else                   stays in the queue, for the lane to close with the socket
//
// Were it received at once, the kernel would close here what does not fit into `control`.
ReceiveResult ReceivePacket(int socket, const std::shared_ptr<CloserLane>& lane,
                            ReceivedPacket* received) {
  *received = ReceivedPacket();
  std::memset(static_cast<void*>(&received->packet), 0, sizeof(received->packet));
  alignas(cmsghdr) char control[CMSG_SPACE(kPacketFdsMax * sizeof(int))];
  iovec data = {&received->packet, sizeof(received->packet)};
  msghdr message = {};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof(control);
  const ssize_t result = Uninterrupted(
      [&] { return recvmsg(socket, &message, MSG_PEEK | MSG_DONTWAIT | MSG_CMSG_CLOEXEC); });
  if (result < 0) return ResultOf(errno);
  TakeDescriptors(&message, lane, received);
  // An empty packet looks like the end of the connection; no peer of ours sends one.
  if (result == 0) return ReceiveResult::kHangUp;
  received->bytes = static_cast<size_t>(result);
  if (received->taken() && !DropPacket(socket)) return ResultOf(errno);
  return ReceiveResult::kPacket;
}

int SendPacket(int socket, const ShmPacket& packet, absl::Span<const int> fds) {
  assert(fds.size() <= kPacketFdsMax);
  return SendWithDescriptors(socket, {reinterpret_cast<const std::byte*>(&packet), sizeof(packet)},
                             fds);
}

int SendWithDescriptors(int socket, absl::Span<const std::byte> bytes, absl::Span<const int> fds) {
  assert(fds.size() <= kSentFdsMax);
  alignas(cmsghdr) char control[CMSG_SPACE(kSentFdsMax * sizeof(int))] = {};
  iovec data = {const_cast<std::byte*>(bytes.data()), bytes.size()};
  msghdr message = {};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  if (!fds.empty()) {
    message.msg_control = control;
    message.msg_controllen = CMSG_SPACE(fds.size() * sizeof(int));
    cmsghdr* part = CMSG_FIRSTHDR(&message);
    part->cmsg_level = SOL_SOCKET;
    part->cmsg_type = SCM_RIGHTS;
    part->cmsg_len = CMSG_LEN(fds.size() * sizeof(int));
    std::memcpy(CMSG_DATA(part), fds.data(), fds.size() * sizeof(int));
  }
  const ssize_t result =
      Uninterrupted([&] { return sendmsg(socket, &message, MSG_DONTWAIT | MSG_NOSIGNAL); });
  return result < 0 ? errno : 0;
}

absl::StatusOr<sockaddr_un> SocketAddress(const std::string& path) {
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  const size_t path_bytes_max = sizeof(address.sun_path) - 1;
  if (path.empty() || path.size() > path_bytes_max) {
    return absl::InvalidArgumentError(absl::StrCat("the socket path ", path, " has ", path.size(),
                                                   " bytes and the system takes at most ",
                                                   path_bytes_max, "; choose a shorter one"));
  }
  std::memcpy(address.sun_path, path.data(), path.size());
  return address;
}

bool SetTakesDescriptors(int socket, bool takes) {
  const int value = takes ? 1 : 0;
  return setsockopt(socket, SOL_SOCKET, SO_PASSRIGHTS, &value, sizeof(value)) == 0;
}

absl::StatusOr<UniqueFd> NewSocket() {
  UniqueFd fd(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (fd.valid()) return fd;
  const int error = errno;
  return absl::ResourceExhaustedError(absl::StrCat("cannot make a socket: ", std::strerror(error),
                                                   "; close connections, or raise ulimit -n"));
}

int ConnectSocket(int socket, const sockaddr_un& address) {
  const ssize_t result = Uninterrupted([&] {
    return connect(socket, reinterpret_cast<const sockaddr*>(&address), sizeof(address));
  });
  return result < 0 ? errno : 0;
}

ucred PeerOf(int socket) {
  ucred peer = {};
  socklen_t length = sizeof(peer);
  if (getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &length) != 0) peer = {0, ~0u, ~0u};
  return peer;
}

}  // namespace osprey::rdma
