// kvcli doctor --peer: what a server does when one reads and writes there, by size.
//
// Thread rule: one thread at a time.

#ifndef OSPREY_TOOLS_DOCTOR_PEER_H_
#define OSPREY_TOOLS_DOCTOR_PEER_H_

#include <string>
#include <vector>

#include "absl/time/time.h"
#include "client/client.h"
#include "tools/doctor_checks.h"

namespace osprey::doctor {

// What `connect`, a failure to connect to `uri`, means here.
Finding CannotConnect(const std::string& uri, const absl::Status& connect);

// Pings the server; stores a key of its own (a random name, which lives a minute at most) with
// values of 64 B to 1 MiB, reads each back several times by READs, compares, and deletes it. A
// finding for each. Ends within `limit`, or what one operation takes after it.
std::vector<Finding> ProbePeer(Client& client, absl::Duration limit);

// For ProbePeer, and for tests: what it means that values of up to `passed` bytes came through and
// one of `failed` did not.
Finding SizeFailure(size_t passed, size_t failed, const absl::Status& why);

}  // namespace osprey::doctor

#endif  // OSPREY_TOOLS_DOCTOR_PEER_H_
