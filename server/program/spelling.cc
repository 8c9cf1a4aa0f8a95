#include "server/program/spelling.h"

#include <algorithm>
#include <cstddef>
#include <vector>

namespace osprey {
namespace {

// A longer name is not a typing error.
constexpr size_t kNameBytesMax = 256;

// Insertions, deletions and changes of one character (Levenshtein).
size_t EditDistance(absl::string_view a, absl::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t changed = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, changed});
    }
  }
  return row[b.size()];
}

}  // namespace

std::string SuggestSpelling(absl::string_view name, absl::Span<const absl::string_view> names) {
  if (name.size() > kNameBytesMax) return "";
  absl::string_view nearest;
  // A greater distance means another word.
  size_t least = std::max<size_t>(2, name.size() / 3) + 1;
  for (const absl::string_view candidate : names) {
    const size_t distance = EditDistance(name, candidate);
    if (distance < least) {
      least = distance;
      nearest = candidate;
    }
  }
  return std::string(nearest);
}

}  // namespace osprey
