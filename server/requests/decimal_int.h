// The numbers of INCREMENT: decimal text, in the form of memcached and Redis.

#ifndef OSPREY_SERVER_REQUESTS_DECIMAL_INT_H_
#define OSPREY_SERVER_REQUESTS_DECIMAL_INT_H_

#include <cstdint>

#include "absl/strings/string_view.h"
#include "absl/types/optional.h"

namespace osprey::server {

// An optional '-', then digits without leading zeros, nothing before or after, within int64: 1 to
// 20 bytes. So each number has one text, and "-0", "+1", "01", " 1" and "" are not numbers. nullopt
// for any other text.
absl::optional<int64_t> ParseNumber(absl::string_view text);

// a + b; nullopt if the sum leaves the range of int64.
absl::optional<int64_t> Sum(int64_t a, int64_t b);

}  // namespace osprey::server

#endif  // OSPREY_SERVER_REQUESTS_DECIMAL_INT_H_
