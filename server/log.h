// The log of kvserver: lines with a time on stderr, limited to a rate that a disk can bear.

#ifndef OSPREY_SERVER_LOG_H_
#define OSPREY_SERVER_LOG_H_

#include <cstdint>
#include <mutex>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace osprey::server {

// Always printed: lines that the operator needs. Each is one line, whatever it quotes
// (printable.h).
void Log(absl::string_view line);

// For lines that clients cause. At most kLinesPerSecond are printed; the others are counted and
// their number is logged later. So a client cannot fill the disk. Thread-safe.
class ClientLog {
 public:
  static constexpr int kLinesPerSecond = 10;

  void Write(absl::string_view line, absl::Time now);

 private:
  std::mutex mutex_;
  absl::Time second_ = absl::InfinitePast();  // the second in which lines_ were printed
  int lines_ = 0;
  uint64_t suppressed_ = 0;
};

}  // namespace osprey::server

#endif  // OSPREY_SERVER_LOG_H_
