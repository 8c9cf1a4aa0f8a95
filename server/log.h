// The log of kvserver: lines with a time on stderr, not more of them than a disk can bear.

#ifndef OSPREY_SERVER_LOG_H_
#define OSPREY_SERVER_LOG_H_

#include <cstdint>
#include <mutex>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace osprey::server {

// Always printed: what the operator has to know. On one line, whatever it quotes (printable.h).
void Log(absl::string_view line);

// For lines that clients cause: at most kLinesPerSecond, the rest is counted and told later, so
// that a client that comes again and again cannot fill the disk. Thread-safe.
class ClientLog {
 public:
  static constexpr int kLinesPerSecond = 10;

  void Write(absl::string_view line, absl::Time now);

 private:
  std::mutex mutex_;
  absl::Time second_ = absl::InfinitePast();  // the one in which lines_ were printed
  int lines_ = 0;
  uint64_t suppressed_ = 0;
};

}  // namespace osprey::server

#endif  // OSPREY_SERVER_LOG_H_
