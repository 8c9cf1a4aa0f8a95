#include "tests/fuzz/support/ancillary.h"

#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstring>
#include <utility>

namespace osprey::fuzz {
namespace {

using rdma::UniqueFd;

constexpr size_t kPartsMax = 3;
constexpr size_t kDescriptorsMax = 20;  // in one part; the kernel takes 253 in all
constexpr int kSealed = F_SEAL_SHRINK | F_SEAL_GROW;

// One end of a pair of sockets, in which a descriptor lies unread.
UniqueFd SocketWithUnread() {
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends) != 0)
    return UniqueFd();
  UniqueFd one(ends[0]);
  const UniqueFd other(ends[1]);
  char byte = 'x';
  iovec data = {&byte, 1};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr message = {};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof(control);
  cmsghdr* const part = CMSG_FIRSTHDR(&message);
  part->cmsg_level = SOL_SOCKET;
  part->cmsg_type = SCM_RIGHTS;
  part->cmsg_len = CMSG_LEN(sizeof(int));
  const int fd = one.get();
  std::memcpy(CMSG_DATA(part), &fd, sizeof(fd));
  (void)sendmsg(other.get(), &message, MSG_DONTWAIT | MSG_NOSIGNAL);
  return one;
}

UniqueFd PipeEnd() {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return UniqueFd();
  const UniqueFd other(ends[1]);
  return UniqueFd(ends[0]);
}

}  // namespace

UniqueFd NewMemfd(size_t bytes, int seals) {
  UniqueFd fd(memfd_create("fuzz", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  (void)!ftruncate(fd.get(), static_cast<off_t>(bytes));
  (void)fcntl(fd.get(), F_ADD_SEALS, seals);
  return fd;
}

UniqueFd AnyDescriptor(Input& input, int own, size_t memory_bytes) {
  switch (input.Choice(14)) {
    case 0:
      return NewMemfd(memory_bytes, 0);  // not sealed
    case 1:
      return NewMemfd(input.Byte(), kSealed);
    case 2:
      return UniqueFd(open("/dev/null", O_RDWR | O_CLOEXEC));
    case 3:
      return PipeEnd();
    case 4:  // longer than any address space, and empty
      return NewMemfd(size_t{1} << (30 + input.Choice(32)), kSealed);
    case 5:
      return UniqueFd(fcntl(own, F_DUPFD_CLOEXEC, 0));
    case 6:
      return SocketWithUnread();
    case 7:
      return UniqueFd(open("/", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    case 8:
      return UniqueFd(eventfd(0, EFD_CLOEXEC));
    case 9:
      return UniqueFd(epoll_create1(EPOLL_CLOEXEC));
    case 10:
      return UniqueFd(open("/proc/self/exe", O_RDONLY | O_CLOEXEC));
    case 11:
      return UniqueFd(open("/", O_PATH | O_CLOEXEC));
    default:
      return NewMemfd(memory_bytes, kSealed);
  }
}

void SendAncillary(Input& input, int socket, absl::Span<const std::byte> bytes,
                   size_t memory_bytes) {
  alignas(cmsghdr) char control[kPartsMax * CMSG_SPACE(kDescriptorsMax * sizeof(int))] = {};
  std::vector<UniqueFd> kept;
  size_t used = 0;
  const auto add = [&](int type, const void* data, size_t length) {
    auto* const part = reinterpret_cast<cmsghdr*>(control + used);
    part->cmsg_level = input.OneIn(16) ? static_cast<int>(input.Byte()) : SOL_SOCKET;
    part->cmsg_type = type;
    part->cmsg_len = CMSG_LEN(length);
    if (length > 0) std::memcpy(CMSG_DATA(part), data, length);
    used += CMSG_SPACE(length);
  };
  for (uint32_t parts = input.Choice(kPartsMax + 1); parts > 0; --parts) {
    if (input.OneIn(4)) {
      const ucred own = {getpid(), geteuid(), getegid()};
      add(SCM_CREDENTIALS, &own, sizeof(own));
      continue;
    }
    int numbers[kDescriptorsMax];
    const uint32_t count = input.OneIn(4) ? input.Choice(kDescriptorsMax + 1) : input.Choice(4);
    for (uint32_t i = 0; i < count; ++i) {
      // Mostly of one file: making them is what takes the time.
      if (kept.empty() || input.OneIn(2))
        kept.push_back(AnyDescriptor(input, socket, memory_bytes));
      if (!kept.back().valid()) return;
      numbers[i] = kept.back().get();
    }
    add(SCM_RIGHTS, numbers, count * sizeof(int));
  }
  iovec data = {const_cast<std::byte*>(bytes.data()), bytes.size()};
  msghdr message = {};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = used;
  (void)sendmsg(socket, &message, MSG_DONTWAIT | MSG_NOSIGNAL);
}

}  // namespace osprey::fuzz
