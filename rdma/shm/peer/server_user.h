// Whether a client trusts the user of the server at a path.
//
// Any user may listen at a path in a directory that all may write to, such as /tmp. Without a key,
// a client has no other proof of a server's identity. It trusts root, its own user, and a user to
// which the path belongs:
//
//   /run/osprey/osprey.sock     served by user 990
//   │   │      └ of user 990, writable by user 990 alone
//   └───┴ of root, the client's user or user 990, writable by the owner alone
//
// A sticky directory does not qualify: the first user that makes a name in it owns that name.
//
// Thread rule: thread-safe.

#ifndef OSPREY_RDMA_SHM_PEER_SERVER_USER_H_
#define OSPREY_RDMA_SHM_PEER_SERVER_USER_H_

#include <sys/types.h>

#include <string>

#include "absl/status/status.h"

namespace osprey::rdma {

// `path` is the socket's, `server` the server's user, `client` this process's. Errors:
// PERMISSION_DENIED, which names the path, the user, what is wrong with the path, and the fixes.
absl::Status CheckServerUser(const std::string& path, uid_t server, uid_t client);

}  // namespace osprey::rdma

#endif  // OSPREY_RDMA_SHM_PEER_SERVER_USER_H_
