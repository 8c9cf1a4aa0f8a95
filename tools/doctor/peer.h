// kvcli doctor --peer: probes a server with reads and writes by size.
//
// Thread rule: one thread at a time.

#ifndef OSPREY_TOOLS_DOCTOR_PEER_H_
#define OSPREY_TOOLS_DOCTOR_PEER_H_

#include <string>
#include <vector>

#include "absl/time/time.h"
#include "client/client.h"
#include "tools/doctor/checks.h"

namespace osprey::doctor {

// The finding for `connect`, a failure to connect to `uri`.
Finding CannotConnect(const std::string& uri, const absl::Status& connect);

// Pings the server. Stores a key of its own (a random name, with a time to live of a minute) with
// values of 64 B to 1 MiB. Reads each back several times by READs, compares, and deletes it.
// Returns a finding for each. Ends within `limit`, plus the time of one operation.
std::vector<Finding> ProbePeer(Client& client, absl::Duration limit);

// For ProbePeer, and for tests: the finding when values of up to `passed` bytes arrived and one of
// `failed` did not.
Finding SizeFailure(size_t passed, size_t failed, const absl::Status& why);

}  // namespace osprey::doctor

#endif  // OSPREY_TOOLS_DOCTOR_PEER_H_
