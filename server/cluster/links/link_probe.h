// Greets a server of a cluster as another server does, without the key: whether the address leads to it.
//
//   Hello {versions, cluster, "doctor", expected incarnation} -->
//                                        <-- Challenge, Refused {unknown server}: it is that server
//                                        <-- Refused {version, cluster, incarnation}: why it is not
//
// A server checks these three before it asks for the proof of a key. Its log has a line on the probe.
//
// Thread rule: one thread at a time.

#ifndef OSPREY_SERVER_CLUSTER_LINKS_LINK_PROBE_H_
#define OSPREY_SERVER_CLUSTER_LINKS_LINK_PROBE_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "rdma/transport.h"

namespace osprey {

struct LinkTarget {
  std::string uri;  // at which it accepts other servers
  uint64_t cluster_id = 0;
  uint64_t incarnation = 0;
};

// OK: that incarnation listens there, and its protocol of links is this program's. Errors, each "fault;
// fix": UNAVAILABLE, DEADLINE_EXCEEDED, INVALID_ARGUMENT and those of OpenDomain (no answer),
// FAILED_PRECONDITION (another version, cluster or incarnation).
absl::Status ProbeLink(const LinkTarget& target, absl::Duration timeout);

// For ProbeLink, and for tests: what the first frame of the answer says.
absl::Status JudgeLinkAnswer(rdma::Bytes frame);

}  // namespace osprey

#endif  // OSPREY_SERVER_CLUSTER_LINKS_LINK_PROBE_H_
