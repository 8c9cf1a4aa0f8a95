// Addresses as users write them: rdma://HOST[:PORT], rdma://[IPV6]:PORT, shm://PATH. A client takes
// those of several servers: rdma://HOST[:PORT],HOST[:PORT],…, shm://PATH,PATH,…

#ifndef OSPREY_RDMA_ADDRESS_H_
#define OSPREY_RDMA_ADDRESS_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace osprey::rdma {

inline constexpr uint16_t kDefaultPort = 7411;
// Of one list.
inline constexpr size_t kAddressesMax = 16;

struct Address {
  enum class Scheme { kRdma, kShm };
  Scheme scheme = Scheme::kRdma;
  std::string host;              // kRdma: a name or a literal, without brackets
  uint16_t port = kDefaultPort;  // kRdma
  std::string path;  // kShm: absolute, or relative to the working directory; it has no NUL

  // As ParseAddress takes it.
  std::string ToString() const;
  friend bool operator==(const Address&, const Address&) = default;
};

// Errors: INVALID_ARGUMENT; the message quotes `uri`, names the fault and gives a correct example.
absl::StatusOr<Address> ParseAddress(absl::string_view uri);

// Whether the host is an IP address, which needs no resolution. False over shm.
bool HasIpAddress(const Address& address);

// Where shard `shard` of a server listens whose shard 0 listens at `address`: at the port + shard, or
// at the path with ".shard" appended; for shard 0 at `address`. Errors: INVALID_ARGUMENT if the port
// would exceed 65535.
absl::StatusOr<Address> ShardAddress(const Address& address, uint32_t shard);

// The addresses of a list, in its order: 1 to kAddressesMax, each as ParseAddress takes it. The
// scheme is written once, so in a list a path has no comma. Errors: INVALID_ARGUMENT, likewise, also
// for an empty or a repeated address.
absl::StatusOr<std::vector<std::string>> ParseAddresses(absl::string_view uri);

}  // namespace osprey::rdma

#endif  // OSPREY_RDMA_ADDRESS_H_
