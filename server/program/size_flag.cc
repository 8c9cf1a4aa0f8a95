#include "server/program/size_flag.h"

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace osprey::server {
namespace {

struct Unit {
  const char* name;
  int shift;
};
constexpr Unit kUnits[] = {{"TiB", 40}, {"GiB", 30}, {"MiB", 20}, {"KiB", 10}, {"B", 0}};

// The shift of a unit "", "B", "K" or "KiB"; -1: no such unit. "KB" is refused, because it would
// mean 1000.
int ShiftOf(absl::string_view unit) {
  if (unit.empty()) return 0;
  for (const Unit& known : kUnits) {
    const absl::string_view name(known.name);
    if (absl::EqualsIgnoreCase(unit, name) || absl::EqualsIgnoreCase(unit, name.substr(0, 1)))
      return known.shift;
  }
  return -1;
}

}  // namespace

absl::StatusOr<uint64_t> ParseSize(absl::string_view text) {
  size_t digits = 0;
  while (digits < text.size() && absl::ascii_isdigit(static_cast<unsigned char>(text[digits])))
    ++digits;
  uint64_t number = 0;
  const int shift = ShiftOf(text.substr(digits));
  if (digits == 0 || shift < 0 || !absl::SimpleAtoi(text.substr(0, digits), &number)) {
    return absl::InvalidArgumentError(
        absl::StrCat("'", absl::CEscape(text),
                     "' is no size: write a whole number and a unit, such as 512MiB or 4GiB"));
  }
  if (number > UINT64_MAX >> shift) {
    return absl::InvalidArgumentError(
        absl::StrCat("'", text, "' is more than any memory has: write 4GiB, say"));
  }
  return number << shift;
}

std::string FormatSize(uint64_t bytes) {
  for (const Unit& unit : kUnits) {
    const uint64_t size = uint64_t{1} << unit.shift;
    if (bytes >= size && bytes % size == 0) return absl::StrCat(bytes / size, unit.name);
  }
  return "0B";
}

}  // namespace osprey::server
