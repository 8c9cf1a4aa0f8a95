#include "rdma/open_domain.h"

#include "rdma/address.h"
#include "rdma/shm_domain.h"
#include "rdma/verbs_domain.h"

namespace osprey::rdma {

absl::StatusOr<std::unique_ptr<Domain>> OpenDomain(absl::string_view uri) {
  const absl::StatusOr<Address> address = ParseAddress(uri);
  if (!address.ok()) return address.status();
  return address->scheme == Address::Scheme::kShm ? OpenShmDomain() : OpenVerbsDomain();
}

}  // namespace osprey::rdma
