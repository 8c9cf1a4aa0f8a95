#include "tools/quickstart.d/deb_index.h"

#include <cstdint>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace osprey {
namespace {

// Takes the next line from `rest`, including its newline (the last line may have none).
absl::string_view TakeLine(absl::string_view& rest) {
  const size_t end = rest.find('\n');
  const absl::string_view line = rest.substr(0, end == absl::string_view::npos ? end : end + 1);
  rest.remove_prefix(line.size());
  return line;
}

bool IsBlank(absl::string_view line) { return absl::StripAsciiWhitespace(line).empty(); }

// The value of the field `name` (with its colon) if `line` starts it. Field names ignore case.
bool TakeField(absl::string_view line, absl::string_view name, absl::string_view& value) {
  if (!absl::StartsWithIgnoreCase(line, name)) return false;
  value = absl::StripAsciiWhitespace(line.substr(name.size()));
  return true;
}

class Keys {
 public:
  std::string Choose(absl::string_view package, absl::string_view version) {
    std::string key(package);
    if (taken_.insert(key).second) return key;
    absl::StrAppend(&key, "=", version);
    if (taken_.insert(key).second) return key;
    for (uint64_t nth = 2;; ++nth) {  // ends, because finitely many are taken
      std::string numbered = absl::StrCat(key, "#", nth);
      if (taken_.insert(numbered).second) return numbered;
    }
  }

 private:
  absl::flat_hash_set<std::string> taken_;
};

}  // namespace

absl::StatusOr<std::vector<Stanza>> ParseStanzas(absl::string_view index) {
  std::vector<Stanza> stanzas;
  Keys keys;
  absl::string_view rest = index;
  size_t line_number = 0;
  while (!rest.empty()) {
    absl::string_view line = TakeLine(rest);
    ++line_number;
    if (IsBlank(line)) continue;

    const char* const start = line.data();
    const size_t start_line = line_number;
    size_t length = 0;
    absl::string_view package;
    absl::string_view version;
    while (!IsBlank(line)) {
      length += line.size();
      if (!TakeField(line, "Package:", package)) TakeField(line, "Version:", version);
      if (rest.empty()) break;
      line = TakeLine(rest);
      ++line_number;
    }
    if (package.empty()) {
      return absl::InvalidArgumentError(
          absl::StrCat("the stanza at line ", start_line, " has no Package field"));
    }
    stanzas.push_back({keys.Choose(package, version), absl::string_view(start, length)});
  }
  if (stanzas.empty()) return absl::InvalidArgumentError("there is no stanza, only empty lines");
  return stanzas;
}

}  // namespace osprey
