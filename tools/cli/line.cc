#include "tools/cli/line.h"

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "tools/cli/commands.h"
#include "tools/terminal/output.h"

namespace osprey {
namespace {

bool IsBlank(char c) { return absl::ascii_isspace(static_cast<unsigned char>(c)); }

// Flags that every command accepts in the shell.
constexpr const char* kFlagsOfAll[] = {"--json", "-i", "-r"};

// Takes the text up to the closing double quote, and the quote.
absl::Status TakeQuoted(absl::string_view& text, std::string& word) {
  while (!text.empty()) {
    const char c = text[0];
    text.remove_prefix(1);
    if (c == '"') return absl::OkStatus();
    if (c != '\\' || text.empty()) {
      word.push_back(c);
      continue;
    }
    const char escape = text[0];
    text.remove_prefix(1);
    switch (escape) {
      case 'n':
        word.push_back('\n');
        break;
      case 'r':
        word.push_back('\r');
        break;
      case 't':
        word.push_back('\t');
        break;
      case 'b':
        word.push_back('\b');
        break;
      case 'a':
        word.push_back('\a');
        break;
      case 'x': {
        const absl::string_view digits = text.substr(0, 2);
        unsigned byte = 0;
        const auto is_digit = [](char d) {
          return absl::ascii_isxdigit(static_cast<unsigned char>(d));
        };
        if (digits.size() < 2 || !std::all_of(digits.begin(), digits.end(), is_digit) ||
            !absl::SimpleHexAtoi(digits, &byte)) {
          return absl::InvalidArgumentError(
              "\\x without two hexadecimal digits behind it; \\\\x is a backslash and an x");
        }
        word.push_back(static_cast<char>(byte));
        text.remove_prefix(2);
        break;
      }
      default:
        word.push_back(escape);
    }
  }
  return absl::InvalidArgumentError("a \" is not closed");
}

absl::Status TakeSingleQuoted(absl::string_view& text, std::string& word) {
  while (!text.empty()) {
    const char c = text[0];
    if (absl::StartsWith(text, "\\'")) {
      word.push_back('\'');
      text.remove_prefix(2);
      continue;
    }
    text.remove_prefix(1);
    if (c == '\'') return absl::OkStatus();
    word.push_back(c);
  }
  return absl::InvalidArgumentError("a ' is not closed");
}

// REQUIRES: text does not begin with a blank.
absl::Status TakeWord(absl::string_view& text, std::string& word) {
  while (!text.empty() && !IsBlank(text[0])) {
    const char c = text[0];
    text.remove_prefix(1);
    if (c != '"' && c != '\'') {
      word.push_back(c);
      continue;
    }
    absl::Status taken = c == '"' ? TakeQuoted(text, word) : TakeSingleQuoted(text, word);
    if (!taken.ok()) return taken;
    if (!text.empty() && !IsBlank(text[0])) {
      return absl::InvalidArgumentError(
          absl::StrCat("behind a closing ", absl::string_view(&c, 1), " stands no blank"));
    }
  }
  return absl::OkStatus();
}

std::vector<std::string> CommandNames() {
  std::vector<std::string> names;
  for (const Command& command : Commands()) names.emplace_back(command.name);
  return names;
}

// The flags as they are typed: with = if they take a value. Once that is typed, with the possible
// values.
std::vector<std::string> FlagsOf(const Command& command, absl::string_view word) {
  std::vector<std::string> flags(std::begin(kFlagsOfAll), std::end(kFlagsOfAll));
  for (const FlagName& flag : FlagNames()) {
    if ((command.flags & flag.flag) == 0) continue;
    const std::string name = absl::StrCat(flag.name, flag.value[0] == '\0' ? "" : "=");
    if (!absl::StartsWith(word, name) || !absl::StrContains(flag.value, '|')) {
      flags.push_back(name);
      continue;
    }
    for (const absl::string_view value : absl::StrSplit(flag.value, '|')) {
      // (HOST[:PORT] is not a fixed value.)
      if (absl::ascii_islower(static_cast<unsigned char>(value[0])))
        flags.push_back(absl::StrCat(name, value));
    }
  }
  return flags;
}

// Whether it is in capitals, as redis commands often are.
bool IsShouted(absl::string_view word) {
  return !word.empty() && std::all_of(word.begin(), word.end(), [](char c) {
    return absl::ascii_isupper(static_cast<unsigned char>(c));
  });
}

// The names in capitals, if `word` is.
std::vector<std::string> AsLoudAs(absl::string_view word, std::vector<std::string> names) {
  if (IsShouted(word)) {
    for (std::string& name : names) absl::AsciiStrToUpper(&name);
  }
  return names;
}

// Whether it is one word without quotes.
bool NeedsNoQuotes(absl::string_view name) {
  return !name.empty() && IsPrintable(name) && std::none_of(name.begin(), name.end(), [](char c) {
    return IsBlank(c) || c == '"' || c == '\'';
  });
}

// The files in the folder of the partial path `word`. Hidden files are included only if `word` has
// their dot.
std::vector<std::string> FilesAt(absl::string_view word) {
  const size_t slash = word.rfind('/');
  const std::string folder(slash == word.npos ? "" : word.substr(0, slash + 1));
  const bool shows_hidden = absl::StartsWith(word.substr(folder.size()), ".");
  std::vector<std::string> files;
  std::error_code error;
  std::filesystem::directory_iterator file(folder.empty() ? "." : folder, error);
  for (; !error && file != std::filesystem::directory_iterator(); file.increment(error)) {
    const std::string name = file->path().filename().string();
    const std::string path = absl::StrCat(folder, name);
    if (!NeedsNoQuotes(path) || path[0] == '-' || (name[0] == '.' && !shows_hidden)) continue;
    std::error_code none;  // an unreadable folder counts as a file
    files.push_back(absl::StrCat(folder, name, file->is_directory(none) ? "/" : ""));
  }
  return files;
}

// The completions behind the words `before`.
std::vector<std::string> Candidates(const std::vector<std::string>& before,
                                    absl::string_view word) {
  if (before.empty()) {
    std::vector<std::string> names = CommandNames();
    names.insert(names.end(), {"exit", "quit"});
    return AsLoudAs(word, names);
  }
  const Command* command = FindCommand(before[0]);
  if (command == nullptr) return {};
  if (absl::StartsWith(word, "-")) return FlagsOf(*command, word);
  const std::vector<absl::string_view> names = absl::StrSplit(command->arguments, ' ');
  const absl::string_view name = names[std::min(before.size(), names.size()) - 1];
  if (absl::StartsWith(name, "FILE") || name == "DIR" || name == "FROM" || name == "TO")
    return FilesAt(word);
  // Names are in capitals. Others, such as verify|dump, are written as they are.
  if (!name.empty() && absl::ascii_islower(static_cast<unsigned char>(name[0])))
    return absl::StrSplit(name, '|');
  if (absl::string_view(command->name) == "help" && before.size() == 1)
    return AsLoudAs(word, CommandNames());
  return {};
}

}  // namespace

bool IsNoCommand(absl::string_view line) {
  line = absl::StripLeadingAsciiWhitespace(line);
  return line.empty() || line[0] == '#';
}

absl::StatusOr<std::vector<std::string>> SplitLine(absl::string_view line) {
  std::vector<std::string> words;
  while (true) {
    while (!line.empty() && IsBlank(line[0])) line.remove_prefix(1);
    if (line.empty()) return words;
    words.emplace_back();
    if (absl::Status taken = TakeWord(line, words.back()); !taken.ok()) return taken;
  }
}

std::string LineQuoted(absl::string_view word) {
  if (NeedsNoQuotes(word)) return std::string(word);
  return QuotedText(word);
}

Completions CompleteLine(absl::string_view line) {
  Completions completions;
  completions.from = line.size();
  while (completions.from > 0 && !IsBlank(line[completions.from - 1])) --completions.from;
  const absl::string_view word = line.substr(completions.from);
  const absl::StatusOr<std::vector<std::string>> before =
      SplitLine(line.substr(0, completions.from));
  if (!before.ok()) return completions;  // within quotes
  for (std::string& candidate : Candidates(*before, word)) {
    if (absl::StartsWith(candidate, word)) completions.words.push_back(std::move(candidate));
  }
  std::sort(completions.words.begin(), completions.words.end());
  return completions;
}

std::string CommonBeginning(const std::vector<std::string>& words) {
  if (words.empty()) return "";
  std::string common = words[0];
  for (const std::string& word : words) {
    const auto [end, other] = std::mismatch(common.begin(), common.end(), word.begin(), word.end());
    common.erase(end, common.end());
  }
  return common;
}

}  // namespace osprey
