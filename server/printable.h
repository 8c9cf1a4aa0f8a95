// Text for a terminal or a log, from bytes that may be anything: keys, values, paths, messages.
//
// One rule for all of it. Escaped are bytes that are not UTF-8, and characters that move a cursor,
// end a line, or change the order of what follows:
//
//   C0 and DEL      U+0000 to U+001F, U+007F; line end and tabulator too
//   C1              U+0080 to U+009F: some terminals take U+009B for ESC [
//   line ends       U+2028, U+2029
//   bidirectional   U+061C, U+200E, U+200F, U+202A to U+202E, U+2066 to U+2069
//
// All other characters stay as they are. Escapes are \n, \r, \t, and \xHH for each other byte.
//
// Thread rule: plain functions.

#ifndef OSPREY_SERVER_PRINTABLE_H_
#define OSPREY_SERVER_PRINTABLE_H_

#include <string>

#include "absl/strings/string_view.h"

namespace osprey {

bool IsUtf8(absl::string_view bytes);

// Whether nothing in it has to be escaped.
bool IsPrintable(absl::string_view bytes);

// A message or a line of a log: `text` with its escapes and nothing else changed, so on one line.
std::string Printable(absl::string_view text);

// In quotes and escaped, " and \ too: a word of the shell of kvcli.
std::string QuotedText(absl::string_view bytes);

// A key or value as people read it: as it is, or as QuotedText.
std::string ForTerminal(absl::string_view bytes);

// A key or value as a field of a line of machine-readable text: quotes and \ are escaped as well,
// so that any two differ. No escape is followed by a hexadecimal digit.
std::string EscapedField(absl::string_view bytes);

// JSON as it is printed: characters of the rule above become \uXXXX. REQUIRES: `json` is JSON in
// UTF-8 on one line, whose other control characters are escaped already.
std::string PrintableJson(absl::string_view json);

}  // namespace osprey

#endif  // OSPREY_SERVER_PRINTABLE_H_
