// Addresses as users write them: rdma://HOST[:PORT], rdma://[IPV6]:PORT, shm://PATH.

#ifndef OSPREY_RDMA_ADDRESS_H_
#define OSPREY_RDMA_ADDRESS_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace osprey::rdma {

inline constexpr uint16_t kDefaultPort = 7411;

struct Address {
  enum class Scheme { kRdma, kShm };
  Scheme scheme = Scheme::kRdma;
  std::string host;              // kRdma: a name or a literal, without brackets
  uint16_t port = kDefaultPort;  // kRdma
  std::string path;  // kShm: absolute, or relative to the working directory; it has no NUL

  // As ParseAddress takes it.
  std::string ToString() const;
};

// Errors: INVALID_ARGUMENT; the message quotes `uri`, names the fault and gives a correct example.
absl::StatusOr<Address> ParseAddress(absl::string_view uri);

}  // namespace osprey::rdma

#endif  // OSPREY_RDMA_ADDRESS_H_
