// How kvcli is told what to do, and how it says that it cannot: command lines, lines of standard
// input, help, exit status.

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tests/kvcli_fixture.h"
#include "tests/subprocess.h"

namespace osprey {
namespace {

using Json = nlohmann::json;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::MatchesRegex;
using ::testing::StartsWith;

TEST_F(KvcliTest, AfterTwoDashesAKeyMayLookLikeAFlag) {
  EXPECT_EQ(Kvcli({"put", "--", "--json", "-x"}).exit_status, 0);
  EXPECT_EQ(Kvcli({"get", "--", "--json"}).out, "-x");
}

TEST_F(KvcliTest, OnATerminalAValueThatIsNoTextIsShownEscaped) {
  Put("terminal", kBinary);
  const ProgramResult shown =
      RunProgram({"script", "-qec", absl::StrCat("tools/kvcli --server=", uri_, " get terminal"),
                  "/dev/null"});
  EXPECT_EQ(shown.exit_status, 0) << shown.out << shown.err;
  EXPECT_THAT(shown.out, StartsWith("\"\\x00\\x01\\xff"));
}

TEST_F(KvcliTest, TheServerMayComeFromTheEnvironmentOrAFlagfile) {
  Put("environment", "x");
  ProgramOptions options;
  options.environment = {absl::StrCat("OSPREY_SERVER=", uri_)};
  EXPECT_EQ(RunProgram({"tools/kvcli", "get", "environment"}, options).out, "x");
  const std::string flags = WriteFile("flags", absl::StrCat("# server\n--server=", uri_, "\n"));
  EXPECT_EQ(Bare({"get", absl::StrCat("--flagfile=", flags), "environment"}).out, "x");
}

TEST_F(KvcliTest, WrongCommandLinesAreStatusTwoAndSayWhatIsWrong) {
  ExpectUsageError(Bare({}), "OSPREY_SERVER");
  ExpectUsageError(Kvcli({"gett", "x"}), "'gett'");
  ExpectUsageError(Kvcli({"get"}), "KEY");
  ExpectUsageError(Kvcli({"put", "a", "b", "c"}), "KEY VALUE");
  ExpectUsageError(Kvcli({"get", "a", "--bogus"}), "--bogus");
  ExpectUsageError(Kvcli({"get", "a", "--if-absent"}), "--if-absent");
  ExpectUsageError(Kvcli({"put", "a", "b", "--if-version=0"}), "start at 1");
  ExpectUsageError(Kvcli({"get", "a", "--timeout=0"}), "--timeout");
  ExpectUsageError(Kvcli({"get", "a", "--timeout=soon"}), "soon");
  ExpectUsageError(Bare({"get", "a"}), "OSPREY_SERVER");
  ExpectUsageError(Bare({"get", "a", "--server=localhost:7411"}), "rdma://");
  ExpectUsageError(Bare({"help", "gett"}), "gett");
  ExpectUsageError(Kvcli({"mput", "a", "1", "b"}), "no value");
  ExpectUsageError(Kvcli({"del", "a", "b", "--if-version=7"}), "one key");
  ExpectUsageError(Kvcli({"get", "a", "--prefix=x"}), "--prefix");
  ExpectUsageError(Kvcli({"get", ""}), "key");
  ExpectUsageError(Kvcli({"get", "a", "-r", "0"}), "-r 0");
  ExpectUsageError(Kvcli({"put", "a", "-", "-r", "2"}), "only once");
  ExpectUsageError(Kvcli({"get", "a", "-i", "soon"}), "soon");
  ExpectUsageError(Kvcli({"get", "a", "-r", "2", "-i", "-1"}), "-i -1");
  ExpectUsageError(Kvcli({"bigkeys", "--top=0"}), "--top");
  ExpectUsageError(Kvcli({"latency", "--size=1000000000"}), "--size");
  ExpectUsageError(Kvcli({"latency", "--count=0"}), "--count");
  ExpectUsageError(Kvcli({"latency", "--duration=0"}), "--duration");
  ExpectUsageError(Kvcli({"get", "a", "--yes"}), "--yes");
}

TEST_F(KvcliTest, ArgumentsAreJudgedBeforeThereIsAConnection) {
  const auto nowhere = [](std::vector<std::string> args) {
    args.insert(args.begin(), "--server=shm:///nowhere/socket");
    return Bare(args);
  };
  ExpectUsageError(nowhere({"incr", "a", "one"}), "'one'");
  ExpectUsageError(nowhere({"expire", "a", "soon"}), "soon");
  ExpectUsageError(nowhere({"mput", "a", "1", "b"}), "no value");
  ExpectUsageError(nowhere({"mput", "a", "-", "b", "-"}), "standard input");
  ExpectUsageError(nowhere({"export", "x", "--format=xml"}), "xml");
  ExpectUsageError(nowhere({"export", "/tmp/never/was", "--resume", "--format=xml"}), "xml");
  ExpectUsageError(nowhere({"export", "-", "--resume"}), "--resume");
  for (const std::vector<std::string>& args : {std::vector<std::string>{"put", "a", "@/nowhere/x"},
                                               {"append", "a", "@/nowhere/x"},
                                               {"mput", "b", "1", "a", "@/nowhere/x"},
                                               {"import", "/nowhere/x"},
                                               {"export", "/nowhere/x"}}) {
    const ProgramResult result = nowhere(args);
    EXPECT_EQ(result.exit_status, 4) << args[0];
    EXPECT_THAT(result.err, AllOf(MatchesRegex(kOneLine), HasSubstr("/nowhere"))) << args[0];
    EXPECT_EQ(result.err.find("connect"), std::string::npos) << result.err;
  }
}

TEST_F(KvcliTest, ACommandIsRepeatedAsOftenAsIsAsked) {
  Kvcli({"del", "repeated"});
  EXPECT_EQ(Kvcli({"incr", "repeated", "-r", "3"}).out, "1\n2\n3\n");
  const ProgramResult some = Kvcli({"get", "not repeated", "-r", "2", "-i", "10ms"});
  EXPECT_EQ(some.exit_status, 1);
  Kvcli({"del", "repeated"});
}

TEST_F(KvcliTest, LinesOfStandardInputAreCommands) {
  const ProgramResult result = Kvcli({},
                                     "# a comment\n\nput \"a \\x62\" 'it\\'s'\nget 'a b'\n"
                                     "incr n 5\nget n --json\nexists 'a b'\ndel 'a b' n");
  EXPECT_EQ(result.exit_status, 0) << result.err;
  EXPECT_THAT(result.out,
              MatchesRegex("[0-9]+\nit's\n5\n\\{\"key\":\"n\"[^\n]*\\}\nyes\n[0-9]+\n[0-9]+\n"));
  EXPECT_THAT(result.err, IsEmpty());
}

TEST_F(KvcliTest, LinesGoOnAfterErrorsAndEndWithTheHighestStatus) {
  Kvcli({"del", "after"});
  const ProgramResult result = Kvcli(
      {}, "get absent\nput \"open\nnonsense\nget x --server=shm:///y\nput after -\nput after 1\n");
  EXPECT_EQ(result.exit_status, 2);
  EXPECT_THAT(result.err,
              AllOf(HasSubstr("absent"), HasSubstr("line 2: a \" is not closed"),
                    HasSubstr("'nonsense'"), HasSubstr("--server"), HasSubstr("standard input")));
  EXPECT_EQ(Kvcli({"get", "after"}).out, "1");
  EXPECT_EQ(Kvcli({}, "get absent\nput after 2\nquit\nnonsense\n").exit_status, 1);
  EXPECT_EQ(Kvcli({"get", "after"}).out, "2");
  EXPECT_EQ(Kvcli({}, "").exit_status, 0);
}

TEST_F(KvcliTest, LinesEndWhereTheServerCannotBeReached) {
  ProgramOptions options;
  options.input = "get a\nput b 1\n";
  const ProgramResult result = Bare({"--server=shm:///nowhere/socket", "--timeout=0.2"}, options);
  EXPECT_EQ(result.exit_status, 3);
  EXPECT_THAT(result.err, HasSubstr("line 1: the commands end here"));
}

TEST_F(KvcliTest, HelpNeedsNoServer) {
  const ProgramResult help = Bare({"help"});
  EXPECT_EQ(help.exit_status, 0);
  EXPECT_THAT(help.out, AllOf(HasSubstr("put KEY VALUE"), HasSubstr("--if-version"),
                              HasSubstr("exit status")));
  EXPECT_EQ(Bare({"--help"}).out, help.out);
  const ProgramResult put = Bare({"help", "put"});
  EXPECT_EQ(put.exit_status, 0);
  EXPECT_THAT(put.out, AllOf(HasSubstr("--ttl=SECONDS"),
                             HasSubstr("example: kvcli put planet saturn --ttl=3600")));
  EXPECT_EQ(Json::parse(Bare({"help", "put", "--json"}).out)["command"], "put");
}

TEST_F(KvcliTest, WithoutAServerTheStatusIsThreeAndTheLineNamesIt) {
  const ProgramResult result = Bare({"--server=shm:///nowhere/socket", "get", "x", "--timeout=2"});
  EXPECT_EQ(result.exit_status, 3);
  EXPECT_THAT(result.out, IsEmpty());
  EXPECT_THAT(result.err, AllOf(MatchesRegex(kOneLine), HasSubstr("/nowhere/socket")));
}

TEST_F(KvcliTest, AFullDiskIsStatusFour) {
  Put("long", std::string(100'000, 'x'));
  ProgramOptions options;
  options.out_file = "/dev/full";
  const ProgramResult result = Bare({"--server", uri_, "get", "long"}, options);
  EXPECT_EQ(result.exit_status, 4);
  EXPECT_THAT(result.err, MatchesRegex(kOneLine));
}

}  // namespace
}  // namespace osprey
