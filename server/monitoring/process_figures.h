// What the kernel says of this process.

#ifndef OSPREY_SERVER_MONITORING_PROCESS_FIGURES_H_
#define OSPREY_SERVER_MONITORING_PROCESS_FIGURES_H_

#include <cstdint>

namespace osprey::server {

struct ProcessFigures {
  uint64_t resident_bytes = 0;
  uint64_t virtual_bytes = 0;
  uint64_t open_fds = 0;
  uint64_t max_fds = 0;  // RLIMIT_NOFILE, now
};

// A figure that cannot be read is 0. Thread-safe.
ProcessFigures ReadProcessFigures();

}  // namespace osprey::server

#endif  // OSPREY_SERVER_MONITORING_PROCESS_FIGURES_H_
