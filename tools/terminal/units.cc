#include "tools/terminal/units.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace osprey {
namespace {

// Three digits, or four just below the next unit.
std::string ThreeDigits(double number) {
  if (number < 9.995) return absl::StrFormat("%.2f", number);
  if (number < 99.95) return absl::StrFormat("%.1f", number);
  return absl::StrFormat("%.0f", number);
}

template <size_t N>
std::string WithUnit(double number, double step, const char* const (&units)[N]) {
  size_t unit = 0;
  while (number >= step * 0.9995 && unit + 1 < N) {
    number /= step;
    ++unit;
  }
  const bool whole = unit == 0 && number == std::floor(number);
  return absl::StrCat(whole ? absl::StrFormat("%.0f", number) : ThreeDigits(number), units[unit]);
}

}  // namespace

std::string ShortNumber(double number) { return WithUnit(number, 1000, {"", "k", "M", "G", "T"}); }

std::string ShortBytes(double bytes) {
  return WithUnit(bytes, 1024, {"B", "KiB", "MiB", "GiB", "TiB"});
}

std::string ShortTime(double seconds) {
  const auto whole = static_cast<long long>(std::ceil(std::clamp(seconds, 0.0, 1e9)));
  if (whole < 60) return absl::StrCat(whole, " s");
  if (whole < 3600) return absl::StrFormat("%d:%02d", whole / 60, whole % 60);
  return absl::StrFormat("%d:%02d:%02d", whole / 3600, whole / 60 % 60, whole % 60);
}

}  // namespace osprey
