// Suggests corrections for unknown names.

#ifndef OSPREY_SERVER_PROGRAM_SPELLING_H_
#define OSPREY_SERVER_PROGRAM_SPELLING_H_

#include <string>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace osprey {

// The one of `names` that is most similar to `name`; "" if none is. Thread rule: any.
std::string SuggestSpelling(absl::string_view name, absl::Span<const absl::string_view> names);

}  // namespace osprey

#endif  // OSPREY_SERVER_PROGRAM_SPELLING_H_
