// The verbs transport: rdma_cm and libibverbs. See rdma/README.md for how it works.

#ifndef OSPREY_RDMA_VERBS_DOMAIN_H_
#define OSPREY_RDMA_VERBS_DOMAIN_H_

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "rdma/handshake.h"
#include "rdma/transport.h"

namespace osprey::rdma {

struct VerbsDomainOptions {
  // The protocol version of this side. Only tests change it.
  uint16_t protocol_version = kProtocolVersion;
};

// Thread-safe; the caller owns the result. A process that gives up privileges (setuid,
// capabilities) must do so before it opens a domain. The kernel refuses work on a device's
// descriptor that was opened under other credentials. Errors: FAILED_PRECONDITION, of
// rdma/errors.h: NoDeviceError when the machine has no RDMA device; ForkedError in a process that
// was forked from one with a domain, unless that has been destroyed in this process.
absl::StatusOr<std::unique_ptr<Domain>> OpenVerbsDomain(const VerbsDomainOptions& options = {});

}  // namespace osprey::rdma

#endif  // OSPREY_RDMA_VERBS_DOMAIN_H_
