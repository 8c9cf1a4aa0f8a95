// What the kernel says of this process.

#ifndef OSPREY_SERVER_MONITORING_PROCESS_FIGURES_H_
#define OSPREY_SERVER_MONITORING_PROCESS_FIGURES_H_

#include <cstdint>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace osprey::server {

struct ProcessFigures {
  absl::Duration cpu;  // of all threads, in user space and in the kernel
  absl::Time started;
  uint64_t resident_bytes = 0;
  uint64_t virtual_bytes = 0;
  uint64_t threads = 0;
  uint64_t open_fds = 0;
  uint64_t max_fds = 0;  // RLIMIT_NOFILE, now
};

// Those of /proc/self. A figure that cannot be read is 0. Thread-safe.
ProcessFigures ReadProcessFigures();

// Those of `stat`, the text of /proc/PID/stat, on a machine that booted at `boot`; none if it is
// malformed. Exposed for tests.
ProcessFigures ParseProcessStat(absl::string_view stat, absl::Time boot);

}  // namespace osprey::server

#endif  // OSPREY_SERVER_MONITORING_PROCESS_FIGURES_H_
