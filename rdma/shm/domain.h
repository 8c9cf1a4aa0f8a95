// The shm transport: peers on one host. See rdma/README.md for how it works.

#ifndef OSPREY_RDMA_SHM_DOMAIN_H_
#define OSPREY_RDMA_SHM_DOMAIN_H_

#include <sys/types.h>

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "rdma/handshake.h"
#include "rdma/transport.h"

namespace osprey::rdma {

inline constexpr uint32_t kShmMemoriesMax = 16;

struct ShmDomainOptions {
  // What this side claims to speak. Only tests speak another.
  uint16_t protocol_version = kProtocolVersion;
  // Of the socket: a user that may write to it may connect. (Only its owner may open the lock's file
  // beside it.)
  mode_t socket_mode = 0600;
  // Memories that the peer of a connection may have exposed at a time: 1 to kShmMemoriesMax. Each is
  // an open file of this process. The handshake says it to the peer.
  uint32_t peer_memories_max = kShmMemoriesMax;
  // Clients: whether any user's server will do, since it proves itself in another way. Otherwise
  // only that of a user that server_user.h trusts.
  bool any_server_user = false;
};

// Thread-safe; the caller owns the result. It needs no device and does not fail on any Linux of the
// last years.
absl::StatusOr<std::unique_ptr<Domain>> OpenShmDomain(const ShmDomainOptions& options = {});

}  // namespace osprey::rdma

#endif  // OSPREY_RDMA_SHM_DOMAIN_H_
