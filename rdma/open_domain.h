// The one place that knows every transport.

#ifndef OSPREY_RDMA_OPEN_DOMAIN_H_
#define OSPREY_RDMA_OPEN_DOMAIN_H_

#include <sys/types.h>

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "rdma/transport.h"

namespace osprey::rdma {

struct DomainOptions {
  // shm:// that is listened at: the mode of the socket's file, that is, who may connect.
  mode_t shm_socket_mode = 0600;
  // Memories, each an open file, that a peer over shm may have exposed at a time; more than
  // kShmMemoriesMax (rdma/shm_domain.h) is that.
  uint32_t shm_peer_memories_max = UINT32_MAX;
  // shm:// that is connected to: whether any user's server will do, as for a client with a key.
  bool shm_any_server_user = false;
};

// Opens the domain that serves addresses of `uri`'s scheme (rdma:// or shm://). Thread-safe; the
// caller owns the result. Errors: INVALID_ARGUMENT for another scheme or a malformed address;
// FAILED_PRECONDITION when the machine has no RDMA device (the message names the ways out).
absl::StatusOr<std::unique_ptr<Domain>> OpenDomain(absl::string_view uri,
                                                   const DomainOptions& options = {});

}  // namespace osprey::rdma

#endif  // OSPREY_RDMA_OPEN_DOMAIN_H_
