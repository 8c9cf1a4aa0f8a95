#include "server/program/flags.h"

#include <fstream>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "gflags/gflags.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

DEFINE_string(some_text, "none", "text for the test");
DEFINE_string(some_path, "", "a file for the test");
DEFINE_string(some_other_path, "", "another");
DEFINE_string(some_choice, "one", "one|two: which of them");
DEFINE_bool(some_switch, false, "a switch for the test");
DEFINE_uint64(some_number, 0, "a number for the test");

namespace osprey {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

using Words = std::vector<std::string>;

class FlagsTest : public ::testing::Test {
 protected:
  Words Parse(const Words& args) {
    absl::StatusOr<Words> words = ParseFlags(args);
    EXPECT_TRUE(words.ok()) << words.status();
    return words.ok() ? *words : Words();
  }

  std::string ErrorOf(const Words& args) {
    const absl::StatusOr<Words> words = ParseFlags(args);
    EXPECT_TRUE(absl::IsInvalidArgument(words.status())) << words.status();
    return std::string(words.status().message());
  }

  std::string WriteFile(const std::string& name, const std::string& text) {
    std::string path = ::testing::TempDir() + "/" + name;
    std::ofstream(path) << text;
    return path;
  }

  gflags::FlagSaver saver_;  // restores every flag after each test
};

TEST_F(FlagsTest, FlagsAndArgumentsMayBeMixedAndArgumentsKeepTheirOrder) {
  EXPECT_THAT(Parse({"a", "--some_text=x", "b", "--some_number", "7", "c"}),
              ElementsAre("a", "b", "c"));
  EXPECT_EQ(FLAGS_some_text, "x");
  EXPECT_EQ(FLAGS_some_number, 7u);
}

TEST_F(FlagsTest, DashesAndUnderscoresInNamesAreAlike) {
  Parse({"--some-text=with-dash_and_underscore", "-some-number=3", "--some-switch"});
  EXPECT_EQ(FLAGS_some_text, "with-dash_and_underscore");
  EXPECT_EQ(FLAGS_some_number, 3u);
  EXPECT_TRUE(FLAGS_some_switch);
}

TEST_F(FlagsTest, ASwitchTakesNoArgumentAndMayBeNegated) {
  EXPECT_THAT(Parse({"--some-switch", "false"}), ElementsAre("false"));
  EXPECT_TRUE(FLAGS_some_switch);
  Parse({"--nosome-switch"});
  EXPECT_FALSE(FLAGS_some_switch);
  Parse({"--some-switch=true"});
  EXPECT_TRUE(FLAGS_some_switch);
}

TEST_F(FlagsTest, AValueMayBeEmptyOrHoldAnEqualsSign) {
  Parse({"--some-text="});
  EXPECT_EQ(FLAGS_some_text, "");
  Parse({"--some-text=a=b"});
  EXPECT_EQ(FLAGS_some_text, "a=b");
}

TEST_F(FlagsTest, AfterTwoDashesEverythingIsAnArgument) {
  EXPECT_THAT(Parse({"put", "--", "--some-text=x", "--", "-y"}),
              ElementsAre("put", "--some-text=x", "--", "-y"));
  EXPECT_EQ(FLAGS_some_text, "none");
}

TEST_F(FlagsTest, ADashAloneAndANumberAreArguments) {
  EXPECT_THAT(Parse({"-", "-5", ""}), ElementsAre("-", "-5", ""));
}

TEST_F(FlagsTest, AFlagfileSetsFlagsAndMayNameAnother) {
  const std::string inner = WriteFile("inner.flags", "--some-number=9\n");
  const std::string outer = WriteFile(
      "outer.flags", "# comment\n\n  --some-switch\n--flagfile=" + inner + "\n--some_text=f g\n");
  EXPECT_THAT(Parse({"--flagfile", outer, "a"}), ElementsAre("a"));
  EXPECT_EQ(FLAGS_some_number, 9u);
  EXPECT_TRUE(FLAGS_some_switch);
  EXPECT_EQ(FLAGS_some_text, "f g");
}

TEST_F(FlagsTest, AFlagfileThatNamesItselfIsRefused) {
  const std::string path = ::testing::TempDir() + "/self.flags";
  WriteFile("self.flags", "--flagfile=" + path + "\n");
  EXPECT_THAT(ErrorOf({"--flagfile=" + path}), HasSubstr("within another"));
}

TEST_F(FlagsTest, WrongFlagfilesAreRefusedByName) {
  EXPECT_THAT(ErrorOf({"--flagfile=/absent/x"}), HasSubstr("/absent/x"));
  EXPECT_THAT(ErrorOf({"--flagfile=" + ::testing::TempDir()}), HasSubstr("cannot be read"));
  EXPECT_THAT(ErrorOf({"--flagfile=" + WriteFile("word.flags", "word\n")}),
              HasSubstr("'word' is no flag"));
  EXPECT_THAT(ErrorOf({"--flagfile=" + WriteFile("unknown.flags", "--unknown=1\n")}),
              HasSubstr("unknown flag --unknown"));
  EXPECT_THAT(ErrorOf({"--flagfile=" + WriteFile("missing.flags", "--some-text\n")}),
              HasSubstr("--some-text needs"));
}

TEST_F(FlagsTest, WrongFlagsAreRefusedByTheNameTheUserWrote) {
  EXPECT_THAT(ErrorOf({"--un-known=1"}), HasSubstr("unknown flag --un-known"));
  EXPECT_THAT(ErrorOf({"--some-number=seven"}),
              HasSubstr("--some-number does not take the value 'seven'"));
  EXPECT_THAT(ErrorOf({"--some-number=-7"}), HasSubstr("'-7'"));
  EXPECT_THAT(ErrorOf({"--some-text"}), HasSubstr("--some-text needs a value"));
  EXPECT_THAT(ErrorOf({"--nosome-text"}), HasSubstr("unknown flag --nosome-text"));
  EXPECT_THAT(ErrorOf({"--flagfile"}), HasSubstr("needs a value"));
  // gflags' own.
  EXPECT_THAT(ErrorOf({"--undefok=x"}), HasSubstr("unknown flag --undefok"));
}

TEST_F(FlagsTest, AFlagThatIsNearlyRightIsNamed) {
  EXPECT_THAT(ErrorOf({"--some-nmuber=1"}), HasSubstr("--some-nmuber; is it --some-number?"));
  EXPECT_THAT(ErrorOf({"--verison"}), HasSubstr("is it --version?"));
  EXPECT_THAT(ErrorOf({"--nosome-swich"}), HasSubstr("is it --some-switch?"));
  EXPECT_THAT(ErrorOf({"-x"}), Not(HasSubstr("is it")));
  EXPECT_THAT(ErrorOf({"--entirely-different"}), Not(HasSubstr("is it")));
}

TEST_F(FlagsTest, HelpAndVersionAreKnownAndALetterAsksForHelp) {
  EXPECT_FALSE(AsksForHelp() || AsksForVersion());
  EXPECT_THAT(Parse({"-h", "put"}), ElementsAre("put"));
  EXPECT_TRUE(AsksForHelp());
  Parse({"--version"});
  EXPECT_TRUE(AsksForVersion());
}

TEST_F(FlagsTest, AFlagThatIsGivenAndEmptyIsNotTakenForOneThatIsNot) {
  Parse({"--some-path="});  // as a script's unset variable does
  EXPECT_EQ(CheckNotEmpty("some_path").message(),
            "--some-path: it is given and empty; write its value, or leave the flag away");
  Parse({"--some-path=x"});
  EXPECT_TRUE(CheckNotEmpty("some_path").ok());
  EXPECT_TRUE(CheckNotEmpty("some_other_path").ok());
}

TEST_F(FlagsTest, HelpNamesTheFlagsOfOneFileOnly) {
  EXPECT_THAT(DescribeFlags("flags_test"), HasSubstr("--some-number=N"));
  EXPECT_THAT(DescribeFlags("some_other_file"), IsEmpty());
}

TEST_F(FlagsTest, HelpListsTheValuesOfAFlagThatHasAFew) {
  EXPECT_THAT(DescribeFlags("flags_test"), HasSubstr("--some-choice=one|two   which of them\n"));
}

TEST_F(FlagsTest, HelpIsInColumnsAndItsLinesAreNotLongerThanATerminal) {
  const std::string much(80, 'x');
  EXPECT_EQ(
      DescribeFlags("some_other_file", {{"--a=N", "one"}, {"--longer=TEXT", much + " yy zzzz"}}),
      "  --a=N          one\n"
      "  --longer=TEXT  " +
          much +
          " yy\n"
          "                 zzzz\n");
}

}  // namespace
}  // namespace osprey
