// Debian package indexes (the output of `apt-cache dumpavail`) as keys and values.
//
// A stanza is a paragraph. Its key is the package's name. Its value is all of its bytes with the
// last newline, without the empty line that ends it. Versions distinguish repeated names: the first
// is "name", the next "name=version", and repetitions of that are "name=version#2", "#3" …

#ifndef OSPREY_TOOLS_QUICKSTART_D_DEB_INDEX_H_
#define OSPREY_TOOLS_QUICKSTART_D_DEB_INDEX_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace osprey {

struct Stanza {
  std::string key;
  absl::string_view value;  // part of the parsed text
};

// The stanzas of `index` in their order, with distinct keys. `index` must outlive the result.
// Errors: INVALID_ARGUMENT: a stanza without a Package field, or no stanza; the message has the
// line number.
absl::StatusOr<std::vector<Stanza>> ParseStanzas(absl::string_view index);

}  // namespace osprey

#endif  // OSPREY_TOOLS_QUICKSTART_D_DEB_INDEX_H_
