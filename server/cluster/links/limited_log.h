// Log lines that a peer can cause, at most one in a while.

#ifndef OSPREY_SERVER_CLUSTER_LINKS_LIMITED_LOG_H_
#define OSPREY_SERVER_CLUSTER_LINKS_LIMITED_LOG_H_

#include <cstdint>
#include <functional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace osprey {

// Thread rule: that of `log`, on one thread.
class LimitedLog {
 public:
  static constexpr absl::Duration kPause = absl::Seconds(1);        // between two lines
  static constexpr absl::Duration kPauseOfSame = absl::Minutes(1);  // … that are equal

  // `log` may be empty.
  explicit LimitedLog(std::function<void(absl::string_view)> log) : log_(std::move(log)) {}

  // Logs the line, or counts it as left out. The next line that is logged has their number.
  void Log(absl::string_view line, absl::Time now) {
    if (now < logged_at_ + (line == last_ ? kPauseOfSame : kPause)) {
      ++left_out_;
      return;
    }
    if (log_) {
      log_(left_out_ == 0 ? std::string(line)
                          : absl::StrCat(line, " (", left_out_, " such lines were left out)"));
    }
    logged_at_ = now;
    last_ = std::string(line);
    left_out_ = 0;
  }

 private:
  const std::function<void(absl::string_view)> log_;
  absl::Time logged_at_ = absl::InfinitePast();
  std::string last_;
  uint64_t left_out_ = 0;
};

}  // namespace osprey

#endif  // OSPREY_SERVER_CLUSTER_LINKS_LIMITED_LOG_H_
