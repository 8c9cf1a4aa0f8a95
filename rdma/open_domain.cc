#include "rdma/open_domain.h"

#include <algorithm>

#include "rdma/address.h"
#include "rdma/shm/domain.h"
#include "rdma/verbs/domain.h"

namespace osprey::rdma {

absl::StatusOr<std::unique_ptr<Domain>> OpenDomain(absl::string_view uri,
                                                   const DomainOptions& options) {
  const absl::StatusOr<Address> address = ParseAddress(uri);
  if (!address.ok()) return address.status();
  if (address->scheme == Address::Scheme::kRdma) return OpenVerbsDomain();
  ShmDomainOptions shm;
  shm.socket_mode = options.shm_socket_mode;
  shm.peer_memories_max = std::min(shm.peer_memories_max, options.shm_peer_memories_max);
  shm.any_server_user = options.shm_any_server_user;
  return OpenShmDomain(shm);
}

TransportOptions TransportOptionsOf(Address::Scheme scheme) {
  TransportOptions options;
  if (scheme == Address::Scheme::kRdma) {
    options.receive_credits = 8;
    options.frame_bytes_max = 5 << 10;
  }
  return options;
}

}  // namespace osprey::rdma
