#include "server/program/printable.h"

#include <cstdint>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace osprey {
namespace {

struct Character {
  uint32_t code = 0;
  size_t bytes = 1;
  bool is_utf8 = true;  // false: a single byte that begins no character
};

bool IsWithin(uint32_t code, uint32_t first, uint32_t last) {
  return code >= first && code <= last;
}

// The first character of `text`. REQUIRES: `text` is not empty.
Character Decode(absl::string_view text) {
  const auto first = static_cast<unsigned char>(text[0]);
  const Character invalid = {first, 1, false};
  if (first < 0x80) return {first, 1, true};
  const size_t bytes = first >= 0xF0 ? 4 : first >= 0xE0 ? 3 : 2;
  if (first < 0xC2 || first > 0xF4 || text.size() < bytes) return invalid;
  uint32_t code = first & (0xFFu >> (bytes + 1));
  for (size_t i = 1; i < bytes; ++i) {
    const auto next = static_cast<unsigned char>(text[i]);
    if ((next & 0xC0) != 0x80) return invalid;
    code = code << 6 | (next & 0x3Fu);
  }
  // An overlong form, a surrogate, or beyond Unicode.
  const uint32_t least = bytes == 4 ? 0x10000 : bytes == 3 ? 0x800 : 0x80;
  if (code < least || IsWithin(code, 0xD800, 0xDFFF) || code > 0x10FFFF) return invalid;
  return {code, bytes, true};
}

bool IsEscaped(const Character& character) {
  const uint32_t code = character.code;
  return !character.is_utf8 || code < 0x20 || IsWithin(code, 0x7F, 0x9F) || code == 0x061C ||
         code == 0x200E || code == 0x200F || IsWithin(code, 0x2028, 0x202E) ||
         IsWithin(code, 0x2066, 0x2069);
}

void AppendEscaped(absl::string_view bytes, std::string& out) {
  for (const char c : bytes) {
    switch (c) {
      case '\n':
        out += "\\n";
        break;
      case '\r':
        out += "\\r";
        break;
      case '\t':
        out += "\\t";
        break;
      default:
        absl::StrAppendFormat(&out, "\\x%02x", static_cast<unsigned char>(c));
    }
  }
}

// `also`: further characters to escape, with a \ before each.
std::string Escaped(absl::string_view text, absl::string_view also) {
  std::string out;
  out.reserve(text.size());
  bool follows_hex = false;
  while (!text.empty()) {
    const Character character = Decode(text);
    const absl::string_view bytes = text.substr(0, character.bytes);
    text.remove_prefix(character.bytes);
    // A reader would take a digit there for a part of the escape.
    const bool is_digit =
        follows_hex && !also.empty() && absl::ascii_isxdigit(static_cast<unsigned char>(bytes[0]));
    follows_hex = is_digit;
    if (is_digit) {
      absl::StrAppendFormat(&out, "\\x%02x", static_cast<unsigned char>(bytes[0]));
    } else if (IsEscaped(character)) {
      AppendEscaped(bytes, out);
      follows_hex = absl::string_view("\n\r\t").find(bytes[0]) == absl::string_view::npos;
    } else {
      if (character.bytes == 1 && also.find(bytes[0]) != absl::string_view::npos) out += '\\';
      out.append(bytes.data(), bytes.size());
    }
  }
  return out;
}

template <typename IsWrong>
bool HasNone(absl::string_view text, IsWrong is_wrong) {
  for (size_t at = 0; at < text.size();) {
    const Character character = Decode(text.substr(at));
    if (is_wrong(character)) return false;
    at += character.bytes;
  }
  return true;
}

}  // namespace

bool IsUtf8(absl::string_view bytes) {
  return HasNone(bytes, [](const Character& character) { return !character.is_utf8; });
}

bool IsPrintable(absl::string_view bytes) { return HasNone(bytes, IsEscaped); }

std::string Printable(absl::string_view text) { return Escaped(text, ""); }

std::string QuotedText(absl::string_view bytes) {
  return absl::StrCat("\"", Escaped(bytes, "\"\\"), "\"");
}

std::string ForTerminal(absl::string_view bytes) {
  return IsPrintable(bytes) ? std::string(bytes) : QuotedText(bytes);
}

std::string EscapedField(absl::string_view bytes) { return Escaped(bytes, "\"'\\"); }

std::string PrintableJson(absl::string_view json) {
  std::string out;
  out.reserve(json.size());
  while (!json.empty()) {
    const Character character = Decode(json);
    if (IsEscaped(character)) {
      absl::StrAppendFormat(&out, "\\u%04x", character.code);
    } else {
      out.append(json.data(), character.bytes);
    }
    json.remove_prefix(character.bytes);
  }
  return out;
}

}  // namespace osprey
