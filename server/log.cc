#include "server/log.h"

#include <cstdio>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "server/program/printable.h"

namespace osprey::server {

void Log(absl::string_view line) {
  const std::string text =
      absl::StrCat(absl::FormatTime("%Y-%m-%dT%H:%M:%E3SZ", absl::Now(), absl::UTCTimeZone()),
                   " kvserver: ", Printable(line), "\n");
  std::fwrite(text.data(), 1, text.size(), stderr);
}

void ClientLog::Write(absl::string_view line, absl::Time now) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (now >= second_ + absl::Seconds(1)) {
    if (suppressed_ > 0) Log(absl::StrCat(suppressed_, " lines about clients were left out"));
    second_ = now;
    lines_ = 0;
    suppressed_ = 0;
  }
  if (lines_ == kLinesPerSecond) {
    ++suppressed_;
    return;
  }
  ++lines_;
  Log(line);
}

}  // namespace osprey::server
