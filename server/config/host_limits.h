// What the machine, and the process's limits on it, allow: a configuration that asks for more is
// refused at start, before anything is allocated, instead of failing when it is used.
//
// Thread rule: before other threads start.

#ifndef OSPREY_SERVER_CONFIG_HOST_LIMITS_H_
#define OSPREY_SERVER_CONFIG_HOST_LIMITS_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "server/config/config.h"

namespace osprey::server {

struct Machine {
  uint64_t memory_bytes = 0;     // in all, used or not
  uint64_t descriptors_max = 0;  // that a process like this one may have open (RLIMIT_NOFILE, hard)
  uint32_t cpus = 0;             // that this process may run on
};

Machine ThisMachine();

// Descriptors beside those of connections: listeners, devices, memory, logs, metrics. Over shm also
// 64 sockets of clients that have not spoken yet, and 64 that wait for their peers to receive
// descriptors (rdma/shm/peer_ledger.h).
inline constexpr uint64_t kOtherDescriptors = 256;
// Of --metrics: connections, and what its thread waits for (monitoring/http_server.h).
inline constexpr uint64_t kMetricsDescriptors = 264;
// Of --cluster. Each link to or from another server has a socket over shm. Incoming ones are bounded
// (cluster/links/peer_links.h), outgoing ones by the number of servers.
inline constexpr uint64_t kIncomingLinkDescriptors = 256;
inline constexpr uint64_t kOutgoingLinkDescriptors = 64;
// Two clients of etcd: each has up to 5 connections, which libcurl keeps, and 4 by which it waits.
inline constexpr uint64_t kEtcdDescriptors = 2 * (5 + 4);
// Listeners for other servers, their locks, and what the cluster's thread waits for.
inline constexpr uint64_t kClusterOtherDescriptors = 16;
inline constexpr uint64_t kClusterDescriptors = kIncomingLinkDescriptors +
                                                kOutgoingLinkDescriptors + kEtcdDescriptors +
                                                kClusterOtherDescriptors;
// Of each poller but the first: what its transports wait for.
inline constexpr uint64_t kPollerDescriptors = 16;
// Over shm each connection has a socket and the memories that its client has exposed: its liveness
// word, and at least one in which its long values lie.
inline constexpr uint64_t kMemoriesLeast = 2;
inline constexpr uint64_t kConnectionDescriptors = 1 + kMemoriesLeast;
// Of --cluster, too: clients that ask where its servers are (server/directory.h), and what its transports wait for.
inline constexpr uint64_t kDirectoryConnections = 64;
inline constexpr uint64_t kDirectoryDescriptors =
    kDirectoryConnections * kConnectionDescriptors + 16;
// What a process needs for all of its connections of clients at their least.
inline uint64_t DescriptorsFor(const Config& config) {
  return config.connections_max * kConnectionDescriptors + kOtherDescriptors +
         (config.pollers - 1) * kPollerDescriptors +
         (config.metrics.has_value() ? kMetricsDescriptors : 0) +
         (config.cluster.has_value() ? kClusterDescriptors + kDirectoryDescriptors : 0);
}

// Memories that each client over shm may have exposed at a time. With so many, all connections
// together have descriptors enough. At least kMemoriesLeast: a client whose values lie in more
// memories exposes them in turn. The transport has a bound of its own.
// REQUIRES: CheckMachine has passed.
uint32_t MemoriesPerClient(const Config& config, const Machine& machine);

// Errors: INVALID_ARGUMENT, one line: the flag, what it asks for, what there is, and the fix.
absl::Status CheckMachine(const Config& config, const Machine& machine);

// One line: what the machine can do, but slowly. Empty: nothing.
std::string WarningAbout(const Config& config, const Machine& machine);

// Lets this process have open as many descriptors as it may.
void AllowDescriptors();

}  // namespace osprey::server

#endif  // OSPREY_SERVER_CONFIG_HOST_LIMITS_H_
