#include "tools/terminal/output.h"

#include <algorithm>
#include <sstream>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_split.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tools/cli/commands.h"

namespace osprey {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

// The output of one call in one form.
template <typename Call>
std::string Printed(Output::Form form, Call call) {
  std::ostringstream out;
  std::ostringstream err;
  Output output(form, out, err);
  call(output);
  return out.str();
}

const std::string kBinary("\0\xff\n\x1b", 4);

TEST(KvcliOutputTest, PlainAValueIsExactlyItsBytes) {
  EXPECT_EQ(Printed(Output::Form::kPlain, [](Output& out) { out.Value("k", kBinary, 1); }),
            kBinary);
  EXPECT_EQ(Printed(Output::Form::kPlain, [](Output& out) { out.Value("k", "", 1); }), "");
}

TEST(KvcliOutputTest, OnATerminalTextIsShownAsItIsAndAllElseEscaped) {
  EXPECT_EQ(Printed(Output::Form::kPeople, [](Output& out) { out.Value("k", "Grüße an alle", 1); }),
            "Grüße an alle\n");
  // A line end could begin what looks like a line of kvcli.
  EXPECT_EQ(Printed(Output::Form::kPeople, [](Output& out) { out.Value("k", "ü\n(6 bytes", 1); }),
            "\"ü\\n(6 bytes\"\n");
  const std::string shown =
      Printed(Output::Form::kPeople, [](Output& out) { out.Value("k", kBinary, 1); });
  EXPECT_THAT(shown, Not(HasSubstr("\x1b")));
  EXPECT_EQ(shown, "\"\\x00\\xff\\n\\x1b\"\n");
  // U+009B opens an escape sequence on some terminals; U+00A0 does not.
  EXPECT_EQ(ForTerminal("\xc2\x9b"), "\"\\xc2\\x9b\"");
  EXPECT_EQ(ForTerminal("\xc2\xa0"), "\xc2\xa0");
}

TEST(KvcliOutputTest, JsonSaysWhetherBytesAreTextOrBase64) {
  const Json text =
      Json::parse(Printed(Output::Form::kJson, [](Output& out) { out.Value("k", "a\"ü\n", 7); }));
  EXPECT_EQ(text["value"], "a\"ü\n");
  EXPECT_EQ(text["value_encoding"], "utf-8");
  EXPECT_EQ(text["bytes"], 5);
  EXPECT_EQ(text["version"], 7);
  const Json binary =
      Json::parse(Printed(Output::Form::kJson, [](Output& out) { out.Value("\xfe", kBinary, 7); }));
  EXPECT_EQ(binary["value"], "AP8KGw==");
  EXPECT_EQ(binary["value_encoding"], "base64");
  EXPECT_EQ(binary["key"], "/g==");
  EXPECT_EQ(binary["key_encoding"], "base64");
  EXPECT_EQ(binary["bytes"], 4);
}

TEST(KvcliOutputTest, ATableIsColumnsLinesOrAnObject) {
  const auto print = [](Output& out) {
    out.Table("transport=shm",
              {{"keys", "12"}, {"load_factor", "0.25"}, {"device", "rxe0"}, {"odd", "nan"}});
  };
  EXPECT_EQ(Printed(Output::Form::kPlain, print),
            "keys=12\nload_factor=0.25\ndevice=rxe0\nodd=nan\n");
  EXPECT_THAT(Printed(Output::Form::kPeople, print), HasSubstr("\n  keys         12\n"));
  const Json json = Json::parse(Printed(Output::Form::kJson, print));
  EXPECT_EQ(json["keys"], 12);
  EXPECT_EQ(json["load_factor"], 0.25);
  EXPECT_EQ(json["device"], "rxe0");
  EXPECT_EQ(json["odd"], "nan");
}

TEST(KvcliOutputTest, AnErrorIsOneLineWhateverItsMessage) {
  std::ostringstream out;
  std::ostringstream err;
  Output(Output::Form::kPlain, out, err)
      .Error("get x", absl::NotFoundError("no\nsuch key"), "put it");
  EXPECT_EQ(err.str(), "kvcli: get x: no\\nsuch key; put it\n");
  EXPECT_EQ(out.str(), "");
  // For any key.
  err.str("");
  Output(Output::Form::kPlain, out, err)
      .Error("get two\nlines\x1b", absl::NotFoundError("no such key"), "put it");
  EXPECT_EQ(err.str(), "kvcli: get two\\nlines\\x1b: no such key; put it\n");
}

TEST(KvcliOutputTest, AServersTextsDoNotControlTheTerminal) {
  const std::string shown = Printed(Output::Form::kPeople, [](Output& out) {
    out.Table("transport=shm", {{"keys\x1b[2J", "12"}, {"device", "\x1b]0;x"}});
  });
  EXPECT_THAT(shown, Not(HasSubstr("\x1b")));
  EXPECT_THAT(shown, HasSubstr("\\x1b]0;x"));
}

// U+009B is ESC [ to some terminals, U+202E turns what follows around.
TEST(KvcliOutputTest, NoFormOfOutputHasControlsOrTextTurnedAround) {
  const std::string bytes = "a\xc2\x9b[2J\xe2\x80\xae\nz\x7f\x1b";
  for (const Output::Form form :
       {Output::Form::kPeople, Output::Form::kPlain, Output::Form::kJson}) {
    std::ostringstream out;
    std::ostringstream err;
    Output output(form, out, err);
    Json json;
    SetBytes(json, "key", bytes);
    output.Result(ForTerminal(bytes), EscapedField(bytes), json);
    output.Table(bytes, {{bytes, bytes}});
    output.Note(bytes);
    output.Ask(bytes);
    output.Error("get " + bytes, absl::NotFoundError(bytes), bytes);
    if (form != Output::Form::kPlain) output.Value(bytes, bytes, 1);
    for (const std::string& text : {out.str(), err.str()}) {
      for (const absl::string_view line : absl::StrSplit(text, '\n'))
        EXPECT_TRUE(IsPrintable(line)) << Printable(line);
    }
    const auto lines = [](const std::string& text) {
      return std::count(text.begin(), text.end(), '\n');
    };
    EXPECT_EQ(lines(out.str()), form == Output::Form::kPlain ? 2 : 4);
    EXPECT_EQ(lines(err.str()), form == Output::Form::kJson ? 1 : 2);
  }
}

TEST(KvcliOutputTest, InJsonAnErrorIsAlsoAnObjectEvenWithAKeyThatIsNoText) {
  std::ostringstream out;
  std::ostringstream err;
  Output(Output::Form::kJson, out, err).Error("get", absl::NotFoundError("no \xff"), "");
  const Json json = Json::parse(out.str());
  EXPECT_EQ(json["error"], "NOT_FOUND");
  EXPECT_THAT(err.str(), HasSubstr("kvcli: get: no"));
}

TEST(KvcliOutputTest, AFullDiskIsNoticed) {
  std::ostringstream out;
  std::ostringstream err;
  Output output(Output::Form::kPlain, out, err);
  EXPECT_TRUE(output.Flush());
  out.setstate(std::ios::badbit);
  EXPECT_FALSE(output.Flush());
}

TEST(KvcliCommandsTest, EveryCommandIsFoundByItsNameAndNoOther) {
  for (const Command& command : Commands()) EXPECT_EQ(FindCommand(command.name), &command);
  EXPECT_EQ(FindCommand("gett"), nullptr);
  EXPECT_EQ(FindCommand(""), nullptr);
}

TEST(KvcliCommandsTest, TooManyOrTooFewArgumentsAreRefused) {
  const std::string words[] = {"a", "b", "c"};
  const auto count = [&](const char* name, size_t n) {
    return CheckUsage(*FindCommand(name), Arguments(words, n), {});
  };
  EXPECT_TRUE(absl::IsInvalidArgument(count("put", 1)));
  EXPECT_TRUE(count("put", 2).ok());
  EXPECT_TRUE(absl::IsInvalidArgument(count("put", 3)));
  EXPECT_TRUE(absl::IsInvalidArgument(count("get", 0)));
  EXPECT_TRUE(absl::IsInvalidArgument(count("ping", 1)));
}

TEST(KvcliCommandsTest, AConditionIsRefusedWhereItWouldBeIgnored) {
  const std::string words[] = {"a", "b"};
  const auto check = [&](const char* name, size_t n, const CommandOptions& options) {
    return CheckUsage(*FindCommand(name), Arguments(words, n), options).code();
  };
  const CommandOptions absent{.if_absent = true, .if_version = std::nullopt};
  const CommandOptions version{.if_absent = false, .if_version = 5};
  EXPECT_EQ(check("put", 2, absent), absl::StatusCode::kOk);
  EXPECT_EQ(check("put", 2, version), absl::StatusCode::kOk);
  EXPECT_EQ(check("del", 1, version), absl::StatusCode::kOk);
  EXPECT_EQ(check("del", 1, absent), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(check("get", 1, absent), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(check("get", 1, version), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(check("put", 2, {.if_absent = true, .if_version = 5}),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(check("put", 2, {.if_absent = false, .if_version = 0}),
            absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace osprey
