#include "tools/loadgen/workload/properties.h"

#include <algorithm>
#include <fstream>
#include <optional>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace osprey::loadgen {
namespace {

constexpr size_t kNameBytesMax = 256;

bool IsBlank(char c) { return c == ' ' || c == '\t' || c == '\f'; }

// Lines of the file, joined where one ends with an odd number of backslashes.
class LogicalLines {
 public:
  explicit LogicalLines(absl::string_view text) : text_(text) {}

  // The next line that is neither empty nor a comment.
  std::optional<std::string> Next() {
    while (!text_.empty()) {
      absl::string_view line = TakeLine();
      first_ = line_;
      if (line.empty() || line[0] == '#' || line[0] == '!') continue;
      std::string joined(line);
      while (GoesOn(joined)) {
        joined.pop_back();
        if (text_.empty()) break;
        absl::StrAppend(&joined, TakeLine());
      }
      return joined;
    }
    return std::nullopt;
  }

  // The number of the first line of Next's result.
  size_t number() const { return first_; }

 private:
  static bool GoesOn(absl::string_view line) {
    size_t backslashes = 0;
    while (backslashes < line.size() && line[line.size() - 1 - backslashes] == '\\') ++backslashes;
    return backslashes % 2 == 1;
  }

  // Without its line end and leading blanks.
  absl::string_view TakeLine() {
    ++line_;
    const size_t end = text_.find_first_of("\r\n");
    absl::string_view line = text_.substr(0, end);
    const bool both = end != absl::string_view::npos && absl::StartsWith(text_.substr(end), "\r\n");
    text_.remove_prefix(end == absl::string_view::npos ? text_.size() : end + (both ? 2 : 1));
    while (!line.empty() && IsBlank(line[0])) line.remove_prefix(1);
    return line;
  }

  absl::string_view text_;
  size_t line_ = 0;
  size_t first_ = 0;
};

void AppendUtf8(uint32_t code, std::string& out) {
  if (code < 0x80) {
    out += static_cast<char>(code);
  } else if (code < 0x800) {
    out += static_cast<char>(0xc0 | (code >> 6));
    out += static_cast<char>(0x80 | (code & 0x3f));
  } else {
    out += static_cast<char>(0xe0 | (code >> 12));
    out += static_cast<char>(0x80 | ((code >> 6) & 0x3f));
    out += static_cast<char>(0x80 | (code & 0x3f));
  }
}

absl::StatusOr<std::string> Unescape(absl::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '\\' || i + 1 == text.size()) {
      out += text[i];
      continue;
    }
    const char escaped = text[++i];
    switch (escaped) {
      case 't':
        out += '\t';
        break;
      case 'n':
        out += '\n';
        break;
      case 'r':
        out += '\r';
        break;
      case 'f':
        out += '\f';
        break;
      case 'u': {
        const absl::string_view digits = text.substr(i + 1, 4);
        uint32_t code = 0;
        if (digits.size() != 4 ||
            !std::all_of(digits.begin(), digits.end(),
                         [](unsigned char c) { return absl::ascii_isxdigit(c); }) ||
            !absl::SimpleHexAtoi(digits, &code) || code == 0) {
          return absl::InvalidArgumentError(
              "\\u needs four hexadecimal digits that are not all 0, as in \\u00e9");
        }
        AppendUtf8(code, out);
        i += 4;
        break;
      }
      default:
        out += escaped;
    }
  }
  return out;
}

// The end of the name: the first blank, = or : without a backslash before it.
size_t NameEnd(absl::string_view line) {
  for (size_t i = 0; i < line.size(); ++i) {
    if (line[i] == '\\') {
      ++i;
    } else if (IsBlank(line[i]) || line[i] == '=' || line[i] == ':') {
      return i;
    }
  }
  return line.size();
}

absl::Status ParseLine(absl::string_view line, Properties& properties) {
  if (line.find('\0') != absl::string_view::npos)
    return absl::InvalidArgumentError("a byte 0; this is no text");
  const size_t end = NameEnd(line);
  absl::StatusOr<std::string> name = Unescape(line.substr(0, end));
  if (!name.ok()) return name.status();
  if (name->empty()) return absl::InvalidArgumentError("no name before the value");
  if (name->size() > kNameBytesMax) {
    return absl::InvalidArgumentError(
        absl::StrCat("a name of ", name->size(), " bytes; at most ", kNameBytesMax, " are taken"));
  }
  absl::string_view rest = line.substr(end);
  while (!rest.empty() && IsBlank(rest[0])) rest.remove_prefix(1);
  if (!rest.empty() && (rest[0] == '=' || rest[0] == ':')) rest.remove_prefix(1);
  while (!rest.empty() && IsBlank(rest[0])) rest.remove_prefix(1);
  absl::StatusOr<std::string> value = Unescape(rest);
  if (!value.ok()) return value.status();
  properties[*std::move(name)] = *std::move(value);
  return absl::OkStatus();
}

}  // namespace

absl::Status ParseProperties(absl::string_view text, Properties& properties) {
  if (text.size() > kPropertiesBytesMax) {
    return absl::InvalidArgumentError(
        absl::StrCat("more than ", kPropertiesBytesMax, " bytes; these are no properties"));
  }
  LogicalLines lines(text);
  while (std::optional<std::string> line = lines.Next()) {
    if (absl::Status status = ParseLine(*line, properties); !status.ok()) {
      return absl::InvalidArgumentError(
          absl::StrCat("line ", lines.number(), ": ", status.message()));
    }
  }
  return absl::OkStatus();
}

absl::Status ReadPropertiesFile(const std::string& path, Properties& properties) {
  std::ifstream file(path, std::ios::binary);
  std::string text(kPropertiesBytesMax + 1, '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  // A directory can be opened, but not read.
  if (file.bad() || !file.is_open() || (file.gcount() == 0 && !file.eof()))
    return absl::InvalidArgumentError(
        absl::StrCat("property file '", absl::CHexEscape(path), "' cannot be read"));
  text.resize(static_cast<size_t>(file.gcount()));
  const absl::Status status = ParseProperties(text, properties);
  if (status.ok()) return status;
  return absl::InvalidArgumentError(
      absl::StrCat("property file '", absl::CHexEscape(path), "': ", status.message()));
}

absl::Status ParseAssignment(absl::string_view text, Properties& properties) {
  const size_t equals = text.find('=');
  if (equals == 0 || equals == absl::string_view::npos) {
    return absl::InvalidArgumentError(absl::StrCat("-p needs NAME=VALUE, as in -p fieldcount=10; '",
                                                   absl::CHexEscape(text), "' is not that"));
  }
  properties[std::string(text.substr(0, equals))] = std::string(text.substr(equals + 1));
  return absl::OkStatus();
}

}  // namespace osprey::loadgen
