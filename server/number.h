// The numbers that INCREMENT adds to: decimal text, as users of memcached and Redis expect it.

#ifndef OSPREY_SERVER_NUMBER_H_
#define OSPREY_SERVER_NUMBER_H_

#include <cstdint>

#include "absl/strings/string_view.h"
#include "absl/types/optional.h"

namespace osprey::server {

// An optional '-', then digits without leading zeros, nothing before or after, within int64: 1 to
// 20 bytes. So each number has one text ("-0", "+1", "01", " 1" and "" are none), and what was
// incremented reads as it was written. nullopt for anything else.
absl::optional<int64_t> ParseNumber(absl::string_view text);

// a + b; nullopt when that is no int64.
absl::optional<int64_t> Sum(int64_t a, int64_t b);

}  // namespace osprey::server

#endif  // OSPREY_SERVER_NUMBER_H_
