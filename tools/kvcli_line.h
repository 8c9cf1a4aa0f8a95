// What is typed into kvcli's shell: a line as words, and what may be meant by the beginning of one.
//
// Words are separated by blanks. Quotes work as in redis-cli, and may begin within a word
// (--prefix="a b"):
//
//   "…"   with \xHH (a byte), \n \r \t \b \a, and \ before any other character for itself
//   '…'   as it is, with \' for '
//
// Thread rule: any.

#ifndef OSPREY_TOOLS_KVCLI_LINE_H_
#define OSPREY_TOOLS_KVCLI_LINE_H_

#include <cstddef>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace osprey {

// Nothing but blanks, or a comment: it begins with #.
bool IsNoCommand(absl::string_view line);

// Errors: INVALID_ARGUMENT: a quote that is not closed, or is followed by something else than a
// blank; \x without two hexadecimal digits.
absl::StatusOr<std::vector<std::string>> SplitLine(absl::string_view line);

// `word` as SplitLine takes it.
std::string LineQuoted(absl::string_view word);

struct Completions {
  size_t from = 0;                 // where in the line the word begins that they complete
  std::vector<std::string> words;  // sorted; each begins with what stands there
};

// What may be meant by the last word of `line`, which ends at the cursor: a command's name, behind
// it its flags and their values, where there are a few, behind `help` a command. In capitals, what
// begins in capitals. Behind a command that takes a file, those that are there: folders end with /;
// names that need quotes are left out. Nothing within quotes.
Completions CompleteLine(absl::string_view line);

// What all of `words` begin with.
std::string CommonBeginning(const std::vector<std::string>& words);

}  // namespace osprey

#endif  // OSPREY_TOOLS_KVCLI_LINE_H_
