// What the machine, and the process's limits on it, allow: a configuration that asks for more is
// refused at start, before anything is allocated, instead of failing when it is used.
//
// Thread rule: before other threads start.

#ifndef OSPREY_SERVER_MACHINE_H_
#define OSPREY_SERVER_MACHINE_H_

#include <cstdint>

#include "absl/status/status.h"
#include "server/config.h"

namespace osprey::server {

struct Machine {
  uint64_t memory_bytes = 0;     // in all, used or not
  uint64_t descriptors_max = 0;  // that a process like this one may have open (RLIMIT_NOFILE, hard)
};

Machine ThisMachine();

// Descriptors beside those of connections: listeners, devices, memory, logs, metrics.
inline constexpr uint64_t kOtherDescriptors = 64;
// Of each poller but the first: what its transports wait for.
inline constexpr uint64_t kPollerDescriptors = 16;
// Over shm each connection has a socket, its client's liveness word, and the memory in which that
// client's long values lie. (Of the last there may be more: a client's pool of buffers grows.)
inline constexpr uint64_t kConnectionDescriptors = 3;
inline uint64_t DescriptorsFor(const Config& config) {
  return config.connections_max * kConnectionDescriptors + kOtherDescriptors +
         (config.pollers - 1) * kPollerDescriptors;
}

// Errors: INVALID_ARGUMENT, one line: the flag, what it asks for, what there is, and the mend.
absl::Status CheckMachine(const Config& config, const Machine& machine);

// Lets this process have open as many descriptors as it may.
void AllowDescriptors();

}  // namespace osprey::server

#endif  // OSPREY_SERVER_MACHINE_H_
