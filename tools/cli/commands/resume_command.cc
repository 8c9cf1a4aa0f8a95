// The command that resumes an interrupted export or import.

#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "tools/cli/commands/run.h"
#include "tools/cli/line.h"

namespace osprey {
namespace {

// Whether no shell interprets the character.
bool IsPlain(char c) {
  return absl::ascii_isalnum(static_cast<unsigned char>(c)) ||
         absl::string_view("_-./:=@%+,").find(c) != absl::string_view::npos;
}

}  // namespace

std::string ShellQuoted(absl::string_view word) {
  if (!word.empty() && std::all_of(word.begin(), word.end(), IsPlain)) return std::string(word);
  const bool is_text = IsPrintable(word);
  // $'…' exists in bash alone; no other form keeps a line end on the line.
  std::string quoted = is_text ? "'" : "$'";
  for (const char c : word) {
    if (is_text) {
      absl::StrAppend(&quoted, c == '\'' ? "'\\''" : absl::string_view(&c, 1));
    } else if (IsPlain(c)) {
      quoted.push_back(c);
    } else {
      absl::StrAppendFormat(&quoted, "\\%03o", static_cast<unsigned char>(c));
    }
  }
  return quoted + "'";
}

std::string ContinueWith(const CommandContext& context, absl::string_view command,
                         const std::string& path, absl::Span<const absl::string_view> without,
                         absl::string_view more) {
  const auto quoted = context.in_shell ? LineQuoted : ShellQuoted;
  std::vector<std::string> words;
  if (!context.in_shell) words = {"kvcli", quoted("--server=" + context.server)};
  for (const std::string& flag : context.given_flags) {
    const absl::string_view name = absl::string_view(flag).substr(0, flag.find('='));
    const bool is_of_start =
        name == "--timeout" || name == "--auth-key-file" || name == "--await-server";
    if (context.in_shell && is_of_start) continue;
    if (std::find(without.begin(), without.end(), name) == without.end())
      words.push_back(quoted(flag));
  }
  words.insert(words.end(), {std::string(more), std::string(command)});
  if (absl::StartsWith(path, "-")) words.emplace_back("--");
  words.push_back(quoted(path));
  return absl::StrJoin(words, " ");
}

}  // namespace osprey
