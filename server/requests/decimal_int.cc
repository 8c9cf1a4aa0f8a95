#include "server/requests/decimal_int.h"

#include <charconv>
#include <system_error>

namespace osprey::server {

absl::optional<int64_t> ParseNumber(absl::string_view text) {
  constexpr size_t kBytesMax = 20;  // "-9223372036854775808"
  if (text.size() > kBytesMax) return absl::nullopt;
  const bool negative = !text.empty() && text.front() == '-';
  const absl::string_view digits = text.substr(negative ? 1 : 0);
  if (digits.empty() || (digits.front() == '0' && (digits.size() > 1 || negative)))
    return absl::nullopt;
  // The parser accepts no sign but '-', no space and no base prefix.
  int64_t number = 0;
  const char* const end = text.data() + text.size();
  const std::from_chars_result result = std::from_chars(text.data(), end, number);
  if (result.ec != std::errc() || result.ptr != end) return absl::nullopt;
  return number;
}

absl::optional<int64_t> Sum(int64_t a, int64_t b) {
  int64_t sum = 0;
  if (__builtin_add_overflow(a, b, &sum)) return absl::nullopt;
  return sum;
}

}  // namespace osprey::server
