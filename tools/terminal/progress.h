// The progress of an import or export: a line on standard error, redrawn a few times a second if
// that is a terminal.
//
//   import [#########.............]  41 %  410k records  52.1k/s  7.20MiB/s  12 s left
//
// Thread rule: one thread.

#ifndef OSPREY_TOOLS_TERMINAL_PROGRESS_H_
#define OSPREY_TOOLS_TERMINAL_PROGRESS_H_

#include <cstdint>
#include <string>

#include "absl/time/time.h"

namespace osprey {

class Progress {
 public:
  // `total`: the final value of `done`; 0: unknown.
  Progress(bool draws, std::string verb, uint64_t total);
  ~Progress() { Clear(); }
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  // All arguments count from the beginning. 0 records: only bytes count.
  void Update(uint64_t done, uint64_t records, uint64_t bytes);
  // Erases the line, so that others can be written.
  void Clear();
  absl::Duration elapsed() const;

  struct State {
    double part = -1;  // 0 … 1; less: unknown
    uint64_t records = 0;
    uint64_t bytes = 0;
    absl::Duration elapsed;
  };
  static std::string Line(const std::string& verb, const State& state);

 private:
  const bool draws_;
  const std::string verb_;
  const uint64_t total_;
  const absl::Time start_;
  absl::Time drawn_ = absl::InfinitePast();
  bool is_drawn_ = false;
};

}  // namespace osprey

#endif  // OSPREY_TOOLS_TERMINAL_PROGRESS_H_
