// How long a server's right lasts in a cluster, and how soon etcd has to renew it. All servers of a cluster, and the
// tools that judge them, need the same.

#ifndef OSPREY_SERVER_CLUSTER_RIGHT_RIGHT_TIMES_H_
#define OSPREY_SERVER_CLUSTER_RIGHT_RIGHT_TIMES_H_

#include "absl/time/time.h"

namespace osprey {

constexpr absl::Duration kRightTtl() { return absl::Seconds(3); }
// A server gives up a renewal that takes longer: so another one fits before the right ends.
constexpr absl::Duration kRenewalTimeout() { return absl::Milliseconds(900); }

}  // namespace osprey

#endif  // OSPREY_SERVER_CLUSTER_RIGHT_RIGHT_TIMES_H_
