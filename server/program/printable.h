// Escapes text for a terminal or a log. The bytes may be anything: keys, values, paths, messages.
//
// There is one rule for all of it. It escapes bytes that are not UTF-8, and characters that move a
// cursor, end a line, or change the order of the text behind them:
//
//   C0 and DEL      U+0000 to U+001F, U+007F; line end and tabulator too
//   C1              U+0080 to U+009F: some terminals take U+009B for ESC [
//   line ends       U+2028, U+2029
//   bidirectional   U+061C, U+200E, U+200F, U+202A to U+202E, U+2066 to U+2069
//
// All other characters stay. Escapes are \n, \r, \t, and \xHH for each other byte.
//
// Thread rule: plain functions.

#ifndef OSPREY_SERVER_PROGRAM_PRINTABLE_H_
#define OSPREY_SERVER_PROGRAM_PRINTABLE_H_

#include <string>

#include "absl/strings/string_view.h"

namespace osprey {

bool IsUtf8(absl::string_view bytes);

// Whether no byte needs an escape.
bool IsPrintable(absl::string_view bytes);

// For a message or a line of a log: escapes alone, so the result is one line.
std::string Printable(absl::string_view text);

// In quotes, with " and \ escaped as well: a word of kvcli's shell.
std::string QuotedText(absl::string_view bytes);

// A key or value in human-readable form: unchanged, or as QuotedText.
std::string ForTerminal(absl::string_view bytes);

// A key or value as a field of a line of machine-readable text. Quotes and \ are escaped as well,
// so that any two differ. No escape is followed by a hexadecimal digit.
std::string EscapedField(absl::string_view bytes);

// JSON for output: characters of the rule above become \uXXXX. REQUIRES: `json` is JSON in UTF-8 on
// one line, whose other control characters are escaped already.
std::string PrintableJson(absl::string_view json);

}  // namespace osprey

#endif  // OSPREY_SERVER_PROGRAM_PRINTABLE_H_
