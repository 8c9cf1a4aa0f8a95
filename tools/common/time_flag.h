// Times in the user's form: 5 and 0.5 (seconds), 200ms, 24h.

#ifndef OSPREY_TOOLS_COMMON_TIME_FLAG_H_
#define OSPREY_TOOLS_COMMON_TIME_FLAG_H_

#include <string>

#include "absl/strings/numbers.h"
#include "absl/time/time.h"
#include "absl/types/optional.h"

namespace osprey {

// Seconds, or a duration with its unit. nullopt: `text` is neither. The caller checks the range.
inline absl::optional<absl::Duration> ParseTime(const std::string& text) {
  double seconds = 0;
  absl::Duration time;
  if (absl::SimpleAtod(text, &seconds)) return absl::Seconds(seconds);
  if (absl::ParseDuration(text, &time)) return time;
  return absl::nullopt;
}

}  // namespace osprey

#endif  // OSPREY_TOOLS_COMMON_TIME_FLAG_H_
