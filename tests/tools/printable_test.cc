// What goes to a terminal or a log: nothing that moves a cursor, ends a line or turns text around.

#include "server/program/printable.h"

#include <random>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tools/cli/line.h"

namespace osprey {
namespace {

std::string Utf8Of(uint32_t code) {
  if (code < 0x80) return {static_cast<char>(code)};
  if (code < 0x800)
    return {static_cast<char>(0xC0 | code >> 6), static_cast<char>(0x80 | (code & 0x3F))};
  return {static_cast<char>(0xE0 | code >> 12), static_cast<char>(0x80 | (code >> 6 & 0x3F)),
          static_cast<char>(0x80 | (code & 0x3F))};
}

bool MustBeEscaped(uint32_t code) {
  return code < 0x20 || (code >= 0x7F && code <= 0x9F) || code == 0x61C || code == 0x200E ||
         code == 0x200F || (code >= 0x2028 && code <= 0x202E) || (code >= 0x2066 && code <= 0x2069);
}

bool IsAscii(const std::string& text) {
  return text.find_first_not_of(
             " !\"#$%&'()*+,-./0123456789:;<=>?@ABCDEFGHIJKLMNOPQRSTUVWXYZ[\\]^_`"
             "abcdefghijklmnopqrstuvwxyz{|}~") == std::string::npos;
}

TEST(PrintableTest, EachCharacterIsEscapedOrStaysAsTheRuleSays) {
  for (uint32_t code = 0; code < 0xD800; ++code) {
    const std::string text = "a" + Utf8Of(code) + "z";
    ASSERT_TRUE(IsUtf8(text)) << code;
    EXPECT_EQ(IsPrintable(text), !MustBeEscaped(code)) << code;
    EXPECT_EQ(Printable(text) == text, !MustBeEscaped(code)) << code;
    EXPECT_EQ(ForTerminal(text) == text, !MustBeEscaped(code)) << code;
    if (!MustBeEscaped(code)) continue;
    for (const std::string& shown : {Printable(text), ForTerminal(text), EscapedField(text)})
      EXPECT_TRUE(IsAscii(shown)) << code << ": " << shown;
  }
}

TEST(PrintableTest, AMessageStaysOnItsLineAndIsElseAsItWas) {
  EXPECT_EQ(Printable("key Grüße: no \"such\" \\x1b"), "key Grüße: no \"such\" \\x1b");
  EXPECT_EQ(Printable("two\nlines\r\tand \x1b[2J\x7f"), "two\\nlines\\r\\tand \\x1b[2J\\x7f");
  EXPECT_EQ(Printable("\xc2\x9b"), "\\xc2\\x9b");                 // U+009B: ESC [
  EXPECT_EQ(Printable("\xe2\x80\xae"), "\\xe2\\x80\\xae");        // U+202E: right to left
  EXPECT_EQ(Printable("\xff ü \xc3"), "\\xff ü \\xc3");           // not UTF-8
  EXPECT_EQ(Printable("\xc2\xa0\xf0\x9f\x98\x80"), "\xc2\xa0😀");  // U+00A0 is no control
}

TEST(PrintableTest, Utf8IsRecognised) {
  EXPECT_TRUE(IsUtf8(""));
  EXPECT_TRUE(IsUtf8(std::string("\0\"\\\n", 4)));
  EXPECT_TRUE(IsUtf8("ü€😀\xf4\x8f\xbf\xbf"));
  for (const char* bytes :
       {"\xff", "\x80", "\xc3", "\xc3\"\xbc", "\xc0\x80", "\xc1\xbf", "\xe0\x9f\xbf",
        "\xed\xa0\x80", "\xf0\x8f\xbf\xbf", "\xf4\x90\x80\x80", "\xf5\x80\x80\x80", "\xf0\x9f\x98"})
    EXPECT_FALSE(IsUtf8(bytes)) << Printable(bytes);
}

TEST(PrintableTest, JsonMeansTheSameAndShowsNothing) {
  const std::string text = "ü \x7f \xc2\x85 \xe2\x80\xae \xe2\x81\xa6 \xd8\x9c \x1b \n \"\\";
  const std::string shown = PrintableJson(nlohmann::json{{text, text}}.dump());
  EXPECT_TRUE(IsPrintable(shown)) << Printable(shown);
  EXPECT_THAT(shown, testing::HasSubstr("ü \\u007f \\u0085 \\u202e \\u2066 \\u061c \\u001b \\n"));
  const nlohmann::json back = nlohmann::json::parse(shown);
  EXPECT_EQ(back.begin().key(), text);
  EXPECT_EQ(back.begin().value(), text);
}

// As a word of the shell, and as one of C where a digit follows an escape.
TEST(PrintableTest, WhatIsQuotedComesBackAsItWas) {
  EXPECT_EQ(EscapedField("a\"b'c\\\n\x01"
                         "f"),
            "a\\\"b\\'c\\\\\\n\\x01\\x66");
  std::mt19937_64 random(5);
  for (int i = 0; i < 5000; ++i) {
    std::string bytes;
    for (uint64_t k = random() % 12; k > 0; --k)
      bytes += random() % 3 == 0 ? Utf8Of(0x80 + random() % 0x2000)
                                 : std::string(1, static_cast<char>(random()));
    for (const std::string& quoted : {QuotedText(bytes), "\"" + EscapedField(bytes) + "\""}) {
      ASSERT_TRUE(IsPrintable(quoted));
      const auto words = SplitLine(quoted);
      ASSERT_TRUE(words.ok()) << words.status() << quoted;
      EXPECT_THAT(*words, testing::ElementsAre(bytes)) << quoted;
    }
  }
}

}  // namespace
}  // namespace osprey
