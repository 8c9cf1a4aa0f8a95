#include "server/program/flags.h"

#include <algorithm>
#include <fstream>
#include <iterator>
#include <optional>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "gflags/gflags.h"
#include "server/program/spelling.h"

namespace osprey {
namespace {

// The limit of nested flagfiles, which also ends a file that names itself.
constexpr int kFlagfileDepthMax = 8;
constexpr size_t kHelpColumns = 100;

// Excludes gflags' own flags (--tryfromenv, --undefok …), which the program does not have, except
// --help and --version.
bool IsOwnFlag(const gflags::CommandLineFlagInfo& info) {
  const absl::string_view file =
      absl::string_view(info.filename).substr(info.filename.rfind('/') + 1);
  return info.name == "help" || info.name == "version" || !absl::StartsWith(file, "gflags");
}

bool IsFlag(absl::string_view arg) {
  return arg.size() >= 2 && arg[0] == '-' &&
         !absl::ascii_isdigit(static_cast<unsigned char>(arg[1]));
}

// "a|b" for a description that begins "a|b: ", otherwise "".
std::string ValuesIn(absl::string_view description) {
  const absl::string_view values = description.substr(0, description.find(": "));
  const bool are_values =
      values.size() < description.size() && absl::StrContains(values, '|') &&
      std::all_of(values.begin(), values.end(), [](char c) {
        return absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '|' || c == '-';
      });
  return are_values ? std::string(values) : "";
}

struct Flag {
  std::string name;      // in gflags' form
  std::string spelling;  // as given, with its dashes, for messages
  bool is_bool = false;
  std::optional<std::string> value;
};

bool Known(const std::string& name, gflags::CommandLineFlagInfo* info) {
  return gflags::GetCommandLineFlagInfo(name.c_str(), info) && IsOwnFlag(*info);
}

absl::Status UnknownFlag(const Flag& flag) {
  std::vector<gflags::CommandLineFlagInfo> flags;
  gflags::GetAllFlags(&flags);
  std::vector<absl::string_view> names;
  for (const gflags::CommandLineFlagInfo& info : flags) {
    // A name of one letter is similar to every other one.
    if (IsOwnFlag(info) && info.name.size() > 1) names.push_back(info.name);
  }
  const std::string nearest = flag.name.size() > 1 ? SuggestSpelling(flag.name, names) : "";
  return absl::InvalidArgumentError(absl::StrCat(
      "unknown flag ", flag.spelling,
      nearest.empty()
          ? ""
          : absl::StrCat("; is it --", absl::StrReplaceAll(nearest, {{"_", "-"}}), "?")));
}

// REQUIRES: IsFlag(arg).
absl::StatusOr<Flag> ParseFlag(absl::string_view arg) {
  Flag flag;
  absl::string_view text = arg.substr(absl::StartsWith(arg, "--") ? 2 : 1);
  const size_t equals = text.find('=');
  if (equals != absl::string_view::npos) flag.value = std::string(text.substr(equals + 1));
  text = text.substr(0, equals);
  flag.spelling =
      std::string(arg.substr(0, arg.size() - (flag.value ? flag.value->size() + 1 : 0)));
  flag.name = absl::StrReplaceAll(text, {{"-", "_"}});
  if (flag.name == "flagfile") return flag;

  gflags::CommandLineFlagInfo info;
  if (flag.name == "h" && !Known(flag.name, &info)) flag.name = "help";
  if (Known(flag.name, &info)) {
    flag.is_bool = info.type == "bool";
    return flag;
  }
  if (absl::StartsWith(flag.name, "no") && !flag.value) {
    const std::string name = flag.name.substr(2);
    if (Known(name, &info) && info.type == "bool") {
      flag.name = name;
      flag.is_bool = true;
      flag.value = "false";
      return flag;
    }
  }
  return UnknownFlag(flag);
}

absl::Status ReadFlagfile(const std::string& path, int depth);

absl::Status Set(const Flag& flag, int depth) {
  if (flag.name == "flagfile") return ReadFlagfile(*flag.value, depth + 1);
  if (gflags::SetCommandLineOption(flag.name.c_str(), flag.value->c_str()).empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("flag ", flag.spelling, " does not take the value '", *flag.value, "'"));
  }
  return absl::OkStatus();
}

absl::Status ReadFlagfile(const std::string& path, int depth) {
  if (depth > kFlagfileDepthMax) {
    return absl::InvalidArgumentError(
        absl::StrCat("flagfile ", path, ": more than ", kFlagfileDepthMax, " within another"));
  }
  std::ifstream file(path);
  if (!file) return absl::InvalidArgumentError(absl::StrCat("flagfile ", path, " cannot be read"));
  std::string line;
  while (std::getline(file, line)) {
    const absl::string_view text = absl::StripAsciiWhitespace(line);
    if (text.empty() || text[0] == '#') continue;
    if (!IsFlag(text)) {
      return absl::InvalidArgumentError(
          absl::StrCat("flagfile ", path, ": '", text, "' is no flag; lines are --name=value"));
    }
    absl::StatusOr<Flag> flag = ParseFlag(text);
    if (!flag.ok())
      return absl::InvalidArgumentError(
          absl::StrCat("flagfile ", path, ": ", flag.status().message()));
    if (!flag->value && flag->is_bool) flag->value = "true";
    if (!flag->value) {
      return absl::InvalidArgumentError(
          absl::StrCat("flagfile ", path, ": ", flag->spelling, " needs =value"));
    }
    if (absl::Status status = Set(*flag, depth); !status.ok()) return status;
  }
  // A directory can be opened, but not read.
  if (file.bad())
    return absl::InvalidArgumentError(absl::StrCat("flagfile ", path, " cannot be read"));
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::vector<std::string>> ParseFlags(absl::Span<const std::string> args) {
  std::vector<std::string> rest;
  for (size_t i = 0; i < args.size(); ++i) {
    const std::string& arg = args[i];
    if (arg == "--") {
      rest.insert(rest.end(), args.begin() + static_cast<ptrdiff_t>(i) + 1, args.end());
      break;
    }
    if (!IsFlag(arg)) {
      rest.push_back(arg);
      continue;
    }
    absl::StatusOr<Flag> flag = ParseFlag(arg);
    if (!flag.ok()) return flag.status();
    if (!flag->value && flag->is_bool) flag->value = "true";
    if (!flag->value) {
      if (i + 1 == args.size())
        return absl::InvalidArgumentError(absl::StrCat("flag ", flag->spelling, " needs a value"));
      flag->value = args[++i];
    }
    if (absl::Status status = Set(*flag, 0); !status.ok()) return status;
  }
  return rest;
}

absl::Status CheckNotEmpty(const char* name) {
  const gflags::CommandLineFlagInfo info = gflags::GetCommandLineFlagInfoOrDie(name);
  if (info.is_default || !info.current_value.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("--", absl::StrReplaceAll(name, {{"_", "-"}}),
                   ": it is given and empty; write its value, or leave the flag away"));
}

bool AsksForHelp() { return gflags::GetCommandLineFlagInfoOrDie("help").current_value == "true"; }

bool AsksForVersion() {
  return gflags::GetCommandLineFlagInfoOrDie("version").current_value == "true";
}

std::vector<std::string> ArgumentsOf(int argc, char** argv) {
  std::vector<std::string> args;
  for (int i = 1; i < argc; ++i) args.emplace_back(argv[i]);
  return args;
}

std::string DescribeFlags(absl::string_view file_part,
                          std::vector<std::pair<std::string, std::string>> more) {
  std::vector<gflags::CommandLineFlagInfo> flags;
  gflags::GetAllFlags(&flags);  // sorted by file, then name
  std::vector<std::pair<std::string, std::string>> lines;
  for (const gflags::CommandLineFlagInfo& info : flags) {
    if (!absl::StrContains(info.filename, file_part) || !IsOwnFlag(info)) continue;
    const bool is_letter = info.name.size() == 1;
    std::string name =
        absl::StrCat(is_letter ? "-" : "--", absl::StrReplaceAll(info.name, {{"_", "-"}}));
    const std::string values = ValuesIn(info.description);
    if (!values.empty()) {
      absl::StrAppend(&name, "=", values);
    } else if (info.type != "bool") {
      absl::StrAppend(&name, is_letter ? " " : "=", info.type == "string" ? "TEXT" : "N");
    }
    lines.emplace_back(std::move(name), values.empty()
                                            ? info.description
                                            : info.description.substr(values.size() + 2));
  }
  std::move(more.begin(), more.end(), std::back_inserter(lines));
  size_t width = 0;
  for (const auto& line : lines) width = std::max(width, line.first.size());
  std::string text;
  for (const auto& [name, description] : lines) {
    std::string line = absl::StrFormat("  %-*s", static_cast<int>(width), name);
    for (const absl::string_view word : absl::StrSplit(description, ' ')) {
      if (line.size() + 1 + word.size() > kHelpColumns) {
        absl::StrAppend(&text, line, "\n");
        line.assign(width + 2, ' ');
      }
      absl::StrAppend(&line, line.size() < width + 4 ? "  " : " ", word);
    }
    absl::StrAppend(&text, line, "\n");
  }
  return text;
}

}  // namespace osprey
