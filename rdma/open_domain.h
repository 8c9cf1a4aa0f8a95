// The one place that lists every transport.

#ifndef OSPREY_RDMA_OPEN_DOMAIN_H_
#define OSPREY_RDMA_OPEN_DOMAIN_H_

#include <sys/types.h>

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "rdma/address.h"
#include "rdma/transport.h"

namespace osprey::rdma {

struct DomainOptions {
  // shm:// to listen at: the mode of the socket's file, which decides the users that may connect.
  mode_t shm_socket_mode = 0600;
  // Memories, each an open file, that a peer over shm may have exposed at a time. At most
  // kShmMemoriesMax (rdma/shm/domain.h) is used.
  uint32_t shm_peer_memories_max = UINT32_MAX;
  // shm:// to connect to: accept any user's server. A client with a key does so.
  bool shm_any_server_user = false;
};

// Opens the domain for addresses of `uri`'s scheme (rdma:// or shm://). Thread-safe; the caller
// owns the result. Errors: INVALID_ARGUMENT for another scheme or a malformed address;
// FAILED_PRECONDITION when the machine has no RDMA device (the message names the ways out).
absl::StatusOr<std::unique_ptr<Domain>> OpenDomain(absl::string_view uri,
                                                   const DomainOptions& options = {});

// The options of a server's and a client's transport. Over verbs the memory of frames is pinned: some
// 124 KiB a connection at each end. Eight frames of 5 KiB hold a value of 4 KiB each, or all requests
// of 64 B that a client may have unanswered.
TransportOptions TransportOptionsOf(Address::Scheme scheme);

}  // namespace osprey::rdma

#endif  // OSPREY_RDMA_OPEN_DOMAIN_H_
