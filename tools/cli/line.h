// Lines of kvcli's shell: their split into words, and the completion of a word.
//
// Words are separated by blanks. Quotes work as in redis-cli, and may begin within a word
// (--prefix="a b"):
//
//   "…"   with \xHH (a byte), \n \r \t \b \a, and \ before any other character for itself
//   '…'   literal, with \' for '
//
// Thread rule: any.

#ifndef OSPREY_TOOLS_CLI_LINE_H_
#define OSPREY_TOOLS_CLI_LINE_H_

#include <cstddef>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace osprey {

// Whether it has nothing but blanks, or is a comment, which begins with #.
bool IsNoCommand(absl::string_view line);

// Errors: INVALID_ARGUMENT: a quote that is not closed, or is not followed by a blank; \x without
// two hexadecimal digits.
absl::StatusOr<std::vector<std::string>> SplitLine(absl::string_view line);

// `word` quoted for SplitLine.
std::string LineQuoted(absl::string_view word);

struct Completions {
  size_t from = 0;                 // the start of the completed word in the line
  std::vector<std::string> words;  // sorted; each begins with the word's text
};

// Completions of the last word of `line`, which ends at the cursor. The first word is a command's
// name. Behind it come its flags and their values, if these are few; behind `help`, a command. A
// word in capitals gives capitals. For a command that takes a file, existing names are completed:
// folders end with /, and names that need quotes are left out. Within quotes there are no
// completions.
Completions CompleteLine(absl::string_view line);

// The longest common prefix of `words`.
std::string CommonBeginning(const std::vector<std::string>& words);

}  // namespace osprey

#endif  // OSPREY_TOOLS_CLI_LINE_H_
