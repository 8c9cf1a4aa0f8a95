// Debian package indexes (as `apt-cache dumpavail` prints them) as keys and values.
//
// A stanza is a paragraph: its key is the package's name, its value all of its bytes with the last
// newline, without the empty line that ends it. A name that comes again is told apart by its
// version: the first is "name", the next "name=version", and where even that comes again
// "name=version#2", "#3" …

#ifndef OSPREY_TOOLS_STANZAS_H_
#define OSPREY_TOOLS_STANZAS_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace osprey {

struct Stanza {
  std::string key;
  absl::string_view value;  // part of what was parsed
};

// The stanzas of `index` in their order, keys all different. `index` must outlive the result.
// Errors: INVALID_ARGUMENT: a stanza without a Package field, or none at all; the message has the
// line number.
absl::StatusOr<std::vector<Stanza>> ParseStanzas(absl::string_view index);

}  // namespace osprey

#endif  // OSPREY_TOOLS_STANZAS_H_
