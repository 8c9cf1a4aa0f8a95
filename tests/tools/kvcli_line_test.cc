#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/subprocess.h"
#include "tools/cli/commands.h"
#include "tools/cli/commands/run.h"
#include "tools/cli/line.h"
#include "tools/common/server_uri.h"

namespace osprey {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

std::vector<std::string> Split(absl::string_view line) {
  const absl::StatusOr<std::vector<std::string>> words = SplitLine(line);
  EXPECT_TRUE(words.ok()) << line << ": " << words.status();
  return words.value_or(std::vector<std::string>());
}

std::string Error(absl::string_view line) {
  const absl::Status status = SplitLine(line).status();
  EXPECT_TRUE(absl::IsInvalidArgument(status)) << line << ": " << status;
  return std::string(status.message());
}

std::vector<std::string> Complete(absl::string_view line) { return CompleteLine(line).words; }

TEST(KvcliLineTest, BlanksSeparateWords) {
  EXPECT_THAT(Split("put planet saturn"), ElementsAre("put", "planet", "saturn"));
  EXPECT_THAT(Split("  get \t planet\r"), ElementsAre("get", "planet"));
  EXPECT_THAT(Split(""), IsEmpty());
  EXPECT_THAT(Split("get grüße"), ElementsAre("get", "grüße"));
}

TEST(KvcliLineTest, DoubleQuotesTakeEscapesOfAnyByte) {
  EXPECT_THAT(Split(R"(put "a key" "x\x00\xfF\n\r\t\b\a\"\\\q")"),
              ElementsAre("put", "a key", std::string("x\0\xff\n\r\t\b\a\"\\q", 11)));
  EXPECT_THAT(Split(R"("\x41b")"), ElementsAre("Ab"));
  EXPECT_THAT(Split(R"(put k "")"), ElementsAre("put", "k", ""));
}

TEST(KvcliLineTest, SingleQuotesTakeAllAsItIsButAnEscapedQuote) {
  EXPECT_THAT(Split(R"('a\nb' 'it\'s' '' '"')"), ElementsAre("a\\nb", "it's", "", "\""));
}

TEST(KvcliLineTest, QuotesMayBeginWithinAWord) {
  EXPECT_THAT(Split(R"(scan --prefix="a b")"), ElementsAre("scan", "--prefix=a b"));
}

TEST(KvcliLineTest, WrongQuotesSayWhatIsWrong) {
  EXPECT_THAT(Error(R"(put "a)"), HasSubstr("not closed"));
  EXPECT_THAT(Error(R"(put "a\)"), HasSubstr("not closed"));
  EXPECT_THAT(Error("put 'a"), HasSubstr("not closed"));
  EXPECT_THAT(Error(R"(put "a"b)"), HasSubstr("no blank"));
  EXPECT_THAT(Error(R"(put 'a'"b")"), HasSubstr("no blank"));
  EXPECT_THAT(Error(R"(put "\x4")"), HasSubstr("hexadecimal"));
  EXPECT_THAT(Error(R"(put "\x")"), HasSubstr("hexadecimal"));
  EXPECT_THAT(Error(R"(put "\x+1")"), HasSubstr("hexadecimal"));
  EXPECT_THAT(Error(R"(put "\x 1")"), HasSubstr("hexadecimal"));
}

TEST(KvcliLineTest, EmptyLinesAndCommentsAreNoCommands) {
  EXPECT_TRUE(IsNoCommand(""));
  EXPECT_TRUE(IsNoCommand(" \t\r"));
  EXPECT_TRUE(IsNoCommand("  # put a b"));
  EXPECT_FALSE(IsNoCommand("put # b"));
}

TEST(KvcliLineTest, TheFirstWordIsCompletedToCommands) {
  EXPECT_THAT(Complete("ge"), ElementsAre("get"));
  EXPECT_THAT(Complete("ex"), ElementsAre("exists", "exit", "expire", "export"));
  EXPECT_EQ(CompleteLine("  ge").from, 2u);
  EXPECT_EQ(Complete("").size(), Commands().size() + 2);
  EXPECT_THAT(Complete("nonsense"), IsEmpty());
}

TEST(KvcliLineTest, WordsAndDirectoriesOfLogAndBackupAreCompleted) {
  const std::string directory = NewTemporaryDirectory();
  std::filesystem::create_directory(directory + "/data");
  EXPECT_THAT(Complete("log "), ElementsAre("dump", "verify"));
  EXPECT_THAT(Complete("log d"), ElementsAre("dump"));
  for (const char* before : {"log verify ", "backup ", "backup from "}) {
    EXPECT_THAT(Complete(absl::StrCat(before, directory, "/d")), ElementsAre(directory + "/data/"));
  }
  EXPECT_THAT(Complete("get d"), IsEmpty());
  EXPECT_THAT(Complete("cluster "), ElementsAre("accept-loss", "await-moves", "cancel-move",
                                                "create", "drain", "move", "rebalance", "status"));
  EXPECT_THAT(Complete("cluster create "), IsEmpty());
}

TEST(KvcliLineTest, BehindACommandItsFlagsAreCompletedAndNoOthers) {
  EXPECT_THAT(Complete("put planet saturn --"),
              ElementsAre("--if-absent", "--if-version=", "--json", "--literal", "--ttl="));
  EXPECT_THAT(Complete("scan --pre"), ElementsAre("--prefix="));
  EXPECT_THAT(Complete("get planet --"), Not(Contains("--ttl=")));
  EXPECT_THAT(Complete("get planet -"), Contains("-r"));
  EXPECT_THAT(Complete("nonsense --"), IsEmpty());
  EXPECT_THAT(Complete("import x --form"), ElementsAre("--format="));
  EXPECT_THAT(Complete("import x --format="),
              ElementsAre("--format=binary", "--format=csv", "--format=jsonl"));
  EXPECT_THAT(Complete("import x --format=c"), ElementsAre("--format=csv"));
  EXPECT_THAT(Complete("doctor --self-test="), ElementsAre("--self-test=serve"));
  EXPECT_THAT(Complete("get pla"), IsEmpty());
}

TEST(KvcliLineTest, BehindHelpCommandsAreCompletedAndWithinQuotesNothing) {
  EXPECT_THAT(Complete("help ge"), ElementsAre("get"));
  EXPECT_THAT(Complete("help get ge"), IsEmpty());
  EXPECT_THAT(Complete("put \"planet --"), IsEmpty());
}

TEST(KvcliLineTest, BehindImportAndExportFilesAreCompletedThatNeedNoQuotes) {
  const std::string folder = NewTemporaryDirectory() + "/";
  for (const char* name : {"planets.csv", "planets.jsonl", "two words", "it's", "-r", ".hidden"})
    std::ofstream(folder + name) << "x";
  std::filesystem::create_directory(folder + "Backups");
  std::ofstream(folder + "Backups/monday") << "x";
  EXPECT_THAT(Complete("import " + folder),
              ElementsAre(folder + "-r", folder + "Backups/", folder + "planets.csv",
                          folder + "planets.jsonl"));
  EXPECT_THAT(Complete("export " + folder + "planets.j"), ElementsAre(folder + "planets.jsonl"));
  EXPECT_THAT(Complete("import --format=csv " + folder + "planets.c"),
              ElementsAre(folder + "planets.csv"));
  EXPECT_THAT(Complete("import " + folder + "Backups/"), ElementsAre(folder + "Backups/monday"));
  EXPECT_THAT(Complete("import " + folder + ".h"), ElementsAre(folder + ".hidden"));
  EXPECT_THAT(Complete("import " + folder + "none/x"), IsEmpty());
  EXPECT_THAT(Complete("import \"" + folder), IsEmpty());
  EXPECT_THAT(Complete("get " + folder), IsEmpty());
  // In the current one. Capitals are the file's own.
  std::filesystem::current_path(folder);
  EXPECT_THAT(Complete("import "), ElementsAre("Backups/", "planets.csv", "planets.jsonl"));
  EXPECT_THAT(Complete("IMPORT B"), ElementsAre("Backups/"));
}

TEST(KvcliLineTest, WhatBeginsInCapitalsIsCompletedInCapitals) {
  EXPECT_THAT(Complete("GE"), ElementsAre("GET"));
  EXPECT_THAT(Complete("HELP GE"), ElementsAre("GET"));
  EXPECT_THAT(Complete("Ge"), IsEmpty());
  EXPECT_THAT(Complete("SCAN --pre"), ElementsAre("--prefix="));
}

TEST(KvcliLineTest, CommandsAreFoundInAnyCase) {
  for (const char* name : {"get", "GET", "Get"}) {
    ASSERT_NE(FindCommand(name), nullptr) << name;
    EXPECT_STREQ(FindCommand(name)->name, "get");
  }
  EXPECT_EQ(FindCommand("ge"), nullptr);
}

// The command of which `name` is an alias here.
std::string HereInsteadOf(absl::string_view name) {
  const std::string message(NoSuchCommand(name).message());
  const size_t at = message.find("here it is: kvcli ");
  return at == message.npos ? message : message.substr(at + 18);
}

TEST(KvcliLineTest, RedisCommandNamesSuggestOspreyCommands) {
  for (const char* name :
       {"set",    "SET",      "setnx",   "setex",  "psetex",  "add",  "mset",   "delete",
        "unlink", "incrby",   "decr",    "decrby", "pexpire", "pttl", "strlen", "keys",
        "dbsize", "flushall", "flushdb", "info",   "monitor", "save", "bgsave"}) {
    const std::vector<std::string> words = Split(HereInsteadOf(name));
    const Command* command = FindCommand(words[0]);
    ASSERT_NE(command, nullptr) << name << ": " << words[0];
    for (const std::string& word : words) {
      if (word.substr(0, 2) != "--" || word == "--json") continue;
      EXPECT_THAT(Complete(words[0] + " " + word.substr(0, word.find('='))), Not(IsEmpty()))
          << word << " is no flag of " << words[0];
    }
  }
  EXPECT_EQ(HereInsteadOf("set"), "put KEY VALUE");
  EXPECT_EQ(HereInsteadOf("gett"), "there is no command 'gett'; is it get?");
  EXPECT_EQ(HereInsteadOf("BIGKEY"), "there is no command 'BIGKEY'; is it bigkeys?");
  EXPECT_EQ(HereInsteadOf("nonsense"), "there is no command 'nonsense'");
  for (const char* host : {"localhost", "10.0.0.7", "rdma://host:7411"})
    EXPECT_THAT(HereInsteadOf(host), HasSubstr("--server=rdma://HOST")) << host;
}

TEST(KvcliLineTest, WhatCandidatesHaveInCommonIsTheirBeginning) {
  EXPECT_EQ(CommonBeginning({"exists", "expire", "export"}), "ex");
  EXPECT_EQ(CommonBeginning({"get"}), "get");
  EXPECT_EQ(CommonBeginning({}), "");
  EXPECT_EQ(CommonBeginning({"a", "ab", "b"}), "");
}

TEST(KvcliLineTest, WordsAreQuotedForAShell) {
  EXPECT_EQ(ShellQuoted("rdma://10.0.0.7:7411"), "rdma://10.0.0.7:7411");
  EXPECT_EQ(ShellQuoted(""), "''");
  EXPECT_EQ(ShellQuoted("it's $5"), "'it'\\''s $5'");
  EXPECT_EQ(ShellQuoted("a\nb\xff'"), "$'a\\012b\\377\\047'");
}

TEST(KvcliLineTest, WhatIsQuotedForALineIsTheWordAgain) {
  EXPECT_EQ(LineQuoted("--resume"), "--resume");
  EXPECT_EQ(LineQuoted("größe"), "größe");
  for (const std::string& word :
       {std::string(), std::string("it's"), std::string("two words"), std::string("a\\b\"c\n"),
        std::string("\0\x7f\xff\xfe \\x41", 9), std::string("größe 1")}) {
    const auto words = SplitLine(LineQuoted(word));
    ASSERT_TRUE(words.ok()) << LineQuoted(word);
    EXPECT_THAT(*words, ElementsAre(word));
    EXPECT_EQ(LineQuoted(word).find('\n'), std::string::npos);
  }
}

TEST(ServerUriTest, TheFlagComesFirstThenTheEnvironmentThenTheInstalledService) {
  const std::string folder = ::testing::TempDir();
  const std::string socket = absl::StrCat("/tmp/osprey-line-test-", getpid());
  setenv("OSPREY_SERVER", "shm://environment", 1);
  EXPECT_EQ(ServerUriOf("shm://flag", socket).value(), "shm://flag");
  EXPECT_EQ(ServerUriOf("", socket).value(), "shm://environment");
  setenv("OSPREY_SERVER", "", 1);
  EXPECT_THAT(std::string(ServerUriOf("", socket).status().message()),
              AllOf(HasSubstr("--server="), HasSubstr("OSPREY_SERVER"), HasSubstr(socket)));
  EXPECT_FALSE(ServerUriOf("", folder).ok()) << "no socket";
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  socket.copy(address.sun_path, sizeof(address.sun_path) - 1);
  const int listener = ::socket(AF_UNIX, SOCK_SEQPACKET, 0);
  ASSERT_EQ(bind(listener, reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
  EXPECT_EQ(ServerUriOf("", socket).value(), "shm://" + socket);
  close(listener);
  unlink(socket.c_str());
}

TEST(KvcliLineTest, EveryCommandHasASummaryAndAnExampleThatItTakes) {
  for (const Command& command : Commands()) {
    const std::vector<std::string> words = Split(command.example);
    ASSERT_FALSE(words.empty()) << command.name;
    EXPECT_EQ(words[0], command.name);
    EXPECT_THAT(HelpText(command), HasSubstr(command.example));
    EXPECT_EQ(HelpJson(command)["example"], std::string("kvcli ") + command.example);
    EXPECT_STRNE(command.summary, "");
  }
}

}  // namespace
}  // namespace osprey
