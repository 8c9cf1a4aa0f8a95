// Where a cluster's configuration is: etcd://HOST:PORT[,HOST:PORT…]/NAME, or etcds:// for TLS.
//
// Thread rule: plain functions and values.

#ifndef OSPREY_SERVER_CLUSTER_ETCD_ETCD_URI_H_
#define OSPREY_SERVER_CLUSTER_ETCD_ETCD_URI_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace osprey {

inline constexpr uint16_t kEtcdPort = 2379;
inline constexpr size_t kEtcdEndpointsMax = 16;
inline constexpr size_t kClusterNameBytesMax = 63;

// Where a member of etcd accepts clients.
struct EtcdEndpoint {
  std::string host;  // a name, an IPv4 address, or an IPv6 address without brackets
  uint16_t port = kEtcdPort;

  // "HOST:PORT", with brackets around an IPv6 address.
  std::string ToString() const;

  friend bool operator==(const EtcdEndpoint&, const EtcdEndpoint&) = default;
};

struct EtcdUri {
  bool is_tls = false;
  std::vector<EtcdEndpoint> endpoints;  // at least one, no two equal
  std::string name;                     // of the cluster: [a-z0-9-], 1 to 63 bytes

  // What all keys of the cluster begin with: "/osprey/NAME/".
  std::string KeyPrefix() const;

  std::string ToString() const;
};

// Parses a URI; a missing port means kEtcdPort. Errors: INVALID_ARGUMENT, with the URI, the mistake
// and the fix. A URI with a user or password is refused, and the error does not repeat it.
absl::StatusOr<EtcdUri> ParseEtcdUri(absl::string_view text);

}  // namespace osprey

#endif  // OSPREY_SERVER_CLUSTER_ETCD_ETCD_URI_H_
