// What goes over the Unix-domain socket of an shm connection: its set-up, descriptors, wake-ups and
// the farewell. Frames do not; they go through the rings (rdma/shm/ring.h).
//
// clang-format off
//   client                                       server
//   kConnect {ConnectData}                   -->
//                                            <-- kConnect {ConnectData, incarnation}
//                                                + ring memfd, incarnation page;
//                                                or kConnect with a reason: rejected
//   kExpose {key, length} + memfd           <-->
//   kWithdraw {key}                         <-->  the receiver unmaps it
//   kWake                                   <-->  the receiver had asked for it (a flag in the ring)
//   kBye                                    <-->  the sender closes on purpose; without it
//                                                 the end is a death
// clang-format on
//
// Only memfds are accepted as descriptors. To close any other kind of file may block for as long as
// its sender likes (rdma/shm/peer/slow_closer.h).
//
// Wake-ups go this way and not through eventfds. An eventfd is one open file, shared by both ends: a
// hostile peer could clear its O_NONBLOCK and let our next write block for ever. Each end of a
// socket has flags of its own.

#ifndef OSPREY_RDMA_SHM_SOCKET_H_
#define OSPREY_RDMA_SHM_SOCKET_H_

#include <sys/socket.h>
#include <sys/un.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <type_traits>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "rdma/handshake.h"
#include "rdma/shm/peer/peer_fd.h"
#include "rdma/unique_fd.h"

namespace osprey::rdma {

enum class PacketKind : uint32_t { kConnect = 1, kExpose = 2, kWake = 3, kBye = 4, kWithdraw = 5 };

struct ShmPacket {
  ConnectData connect;  // kConnect; first, so that any version finds magic and version where it
                        // looks for them
  uint32_t kind = 0;    // PacketKind
  // kExpose, kWithdraw. kConnect: memories that the receiver of this may have exposed at a time; 0,
  // from an earlier release: kShmMemoriesMax.
  uint32_t key = 0;
  uint64_t length = 0;       // kExpose: bytes
  uint64_t incarnation = 0;  // kConnect from the server
};
static_assert(std::is_trivially_copyable_v<ShmPacket>);
static_assert(sizeof(ShmPacket) == 48);
static_assert(offsetof(ShmPacket, connect) == 0);
static_assert(offsetof(ShmPacket, kind) == 24);
static_assert(offsetof(ShmPacket, key) == 28);
static_assert(offsetof(ShmPacket, length) == 32);
static_assert(offsetof(ShmPacket, incarnation) == 40);

// The most descriptors that a packet carries.
inline constexpr size_t kPacketFdsMax = 2;

struct ReceivedPacket {
  ShmPacket packet;
  size_t bytes = 0;  // received of `packet`; the rest is zero
  PeerFd fds[kPacketFdsMax];
  size_t fd_count = 0;
  // The packet cannot be taken, and stays in the socket; all that is left is to close that.
  bool fds_lost = false;     // there were more descriptors, or no free ones here
  bool fds_foreign = false;  // one is no memfd

  bool taken() const { return !fds_lost && !fds_foreign; }
};

enum class ReceiveResult { kPacket, kNothing, kHangUp };

// Takes one packet without blocking. Descriptors that come with it will be closed by `lane`.
ReceiveResult ReceivePacket(int socket, const std::shared_ptr<CloserLane>& lane,
                            ReceivedPacket* received);
// The same, of a PeerFd.
inline ReceiveResult ReceivePacket(const PeerFd& socket, ReceivedPacket* received) {
  return ReceivePacket(socket.get(), socket.lane(), received);
}

// Sends one packet with copies of `fds`, without blocking and without SIGPIPE. Returns 0 or an
// errno.
int SendPacket(int socket, const ShmPacket& packet, absl::Span<const int> fds = {});

// The same of any bytes and up to kSentFdsMax descriptors: what no receiver takes, too.
inline constexpr size_t kSentFdsMax = 4;
static_assert(kSentFdsMax >= kPacketFdsMax);
int SendWithDescriptors(int socket, absl::Span<const std::byte> bytes, absl::Span<const int> fds);

// Errors: INVALID_ARGUMENT when `path` does not fit into a socket address (107 bytes).
absl::StatusOr<sockaddr_un> SocketAddress(const std::string& path);

// Lets peers send descriptors to `socket`, or forbids it: then a packet that brings one fails at
// its sender (SO_PASSRIGHTS of Linux 6.16). A connection has the setting of its listener when it is
// made. False: the kernel cannot forbid it.
bool SetTakesDescriptors(int socket, bool takes);

// A nonblocking socket of the right kind. Errors: RESOURCE_EXHAUSTED.
absl::StatusOr<UniqueFd> NewSocket();

// Connects `socket` to the listener at `path`. Returns 0 or an errno; nothing blocks (EAGAIN: its
// backlog is full).
int ConnectSocket(int socket, const sockaddr_un& address);

// The process at the other end, as it was when it connected or listened.
ucred PeerOf(int socket);

}  // namespace osprey::rdma

#endif  // OSPREY_RDMA_SHM_SOCKET_H_
