// kvcli's input and its errors: command lines, lines of standard input, help, exit status.

#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/config.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tests/server/cluster/etcd/etcd_process.h"
#include "tests/support/subprocess.h"
#include "tests/tools/kvcli_fixture.h"

namespace osprey {
namespace {

using Json = nlohmann::json;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::MatchesRegex;
using ::testing::Not;
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
  ExpectUsageError(Kvcli({"put", "a", "b", "--if-version=0"}), "no version is 0");
  ExpectUsageError(Kvcli({"get", "a", "--timeout=0"}), "--timeout");
  ExpectUsageError(Kvcli({"get", "a", "--timeout=soon"}), "soon");
  ExpectUsageError(Bare({"get", "a"}), "OSPREY_SERVER");
  for (const char* server : {"localhost:7411", "rdma://", "shm://", "rdma://h:99999"}) {
    ExpectUsageError(Bare({"get", "a", "--server", server}), "rdma://10.0.0.7:7411");
    ExpectUsageError(Bare({"--server", server}), "rdma://10.0.0.7:7411");
    ExpectUsageError(Bare({"doctor", "--peer", server}), "rdma://10.0.0.7:7411");
  }
  ExpectUsageError(Kvcli({"scan", "--limit=0"}), "--limit=0");
  ExpectUsageError(Kvcli({"import", "x", "--skip=-1"}), "--skip");
  ExpectUsageError(Bare({"help", "gett"}), "gett");
  ExpectUsageError(Kvcli({"mput", "a", "1", "b"}), "no value");
  ExpectUsageError(Kvcli({"del", "a", "b", "--if-version=7"}), "one key");
  ExpectUsageError(Kvcli({"get", "a", "--prefix=x"}), "--prefix");
  ExpectUsageError(Kvcli({"get", ""}), "key");
  ExpectUsageError(Kvcli({"trace", "get"}), "trace get KEY");
  ExpectUsageError(Kvcli({"trace", "put", "a"}), "trace get KEY");
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
    args.insert(args.begin(), "--server=shm:///absent/socket");
    return Bare(args);
  };
  ExpectUsageError(nowhere({"incr", "a", "one"}), "'one'");
  ExpectUsageError(nowhere({"expire", "a", "soon"}), "soon");
  ExpectUsageError(nowhere({"mput", "a", "1", "b"}), "no value");
  ExpectUsageError(nowhere({"mput", "a", "-", "b", "-"}), "standard input");
  ExpectUsageError(nowhere({"export", "x", "--format=xml"}), "xml");
  ExpectUsageError(nowhere({"export", "/tmp/never/was", "--resume", "--format=xml"}), "xml");
  ExpectUsageError(nowhere({"export", "-", "--resume"}), "--resume");
  for (const std::vector<std::string>& args : {std::vector<std::string>{"put", "a", "@/absent/x"},
                                               {"append", "a", "@/absent/x"},
                                               {"mput", "b", "1", "a", "@/absent/x"},
                                               {"import", "/absent/x"},
                                               {"export", "/absent/x"}}) {
    const ProgramResult result = nowhere(args);
    EXPECT_EQ(result.exit_status, 4) << args[0];
    EXPECT_THAT(result.err, AllOf(MatchesRegex(kOneLine), HasSubstr("/absent"))) << args[0];
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

TEST_F(KvcliTest, CatalogSaysWhatIsWrongWithItsCommandLine) {
  const auto catalog = [](std::vector<std::string> args) {
    args.insert(args.begin(), {"env", "-u", "OSPREY_SERVER", "tools/quickstart.d/catalog"});
    return RunProgram(args);
  };
  for (const auto& [args, message] : std::vector<std::pair<std::vector<std::string>, std::string>>{
           {{}, "catalog put|verify FILE"},
           {{"get", "x"}, "catalog put|verify FILE"},
           {{"put", "x", "--detph=1"}, "is it --depth?"},
           {{"put", "x", "--depth=0"}, "--depth=0"},
           {{"put", "x"}, "OSPREY_SERVER"},
           {{"put", "x", "--server=rdma://"}, "the host is missing"}}) {
    const ProgramResult result = catalog(args);
    EXPECT_EQ(result.exit_status, 2) << message;
    EXPECT_THAT(result.out, IsEmpty());
    EXPECT_THAT(result.err, AllOf(MatchesRegex("catalog: [^\n]+\n"), HasSubstr(message)));
  }
  EXPECT_THAT(catalog({"--help"}).out, AllOf(HasSubstr("usage: "), HasSubstr("--samples=N")));
  EXPECT_THAT(catalog({"--version"}).out, StartsWith("catalog "));
}

TEST_F(KvcliTest, WithoutMemoryTheStatusIsFourAndALineSaysSo) {
#if defined(ABSL_HAVE_ADDRESS_SANITIZER) || defined(ABSL_HAVE_THREAD_SANITIZER)
  GTEST_SKIP() << "a sanitizer's shadow memory does not fit under a limit of address space";
#endif
  const ProgramResult result = RunProgram({"bash", "-c",
                                           "ulimit -v 200000; exec tools/quickstart.d/catalog put "
                                           "/dev/zero --server=shm:///absent/x"});
  EXPECT_EQ(result.exit_status, 4);
  EXPECT_THAT(result.err, MatchesRegex("catalog: out of memory; [^\n]+\n"));
}

TEST_F(KvcliTest, LinesEndWhereTheServerCannotBeReached) {
  ProgramOptions options;
  options.input = "get a\nput b 1\n";
  const ProgramResult result = Bare({"--server=shm:///absent/socket", "--timeout=0.2"}, options);
  EXPECT_EQ(result.exit_status, 3);
  EXPECT_THAT(result.err, HasSubstr("line 1: the commands end here"));
}

TEST_F(KvcliTest, HelpNeedsNoServer) {
  const ProgramResult help = Bare({"help"});
  EXPECT_EQ(help.exit_status, 0);
  EXPECT_THAT(help.out, AllOf(HasSubstr("put KEY VALUE"), HasSubstr("--if-version"),
                              HasSubstr("exit status"), HasSubstr("OSPREY_SERVER"),
                              HasSubstr("OSPREY_HISTORY"), HasSubstr("--version")));
  EXPECT_EQ(Bare({"--help"}).out, help.out);
  const ProgramResult put = Bare({"help", "put"});
  EXPECT_EQ(put.exit_status, 0);
  EXPECT_THAT(put.out, AllOf(HasSubstr("--ttl=SECONDS"),
                             HasSubstr("example: kvcli put planet saturn --ttl=3600")));
  EXPECT_EQ(Json::parse(Bare({"help", "put", "--json"}).out)["command"], "put");
}

TEST_F(KvcliTest, HelpOfACommandIsPrintedWhereverItIsAskedFor) {
  const std::string put = Bare({"help", "put"}).out;
  for (const std::vector<std::string>& args : {std::vector<std::string>{"put", "--help"},
                                               {"put", "-h"},
                                               {"--help", "put"},
                                               {"PUT", "planet", "saturn", "--ttl=5", "--help"},
                                               {"put", "--if-absent", "--help"}}) {
    const ProgramResult help = Bare(args);
    EXPECT_EQ(help.exit_status, 0) << args[1] << help.err;
    EXPECT_EQ(help.out, put) << args[1];
  }
  EXPECT_EQ(Bare({"-h"}).out, Bare({"help"}).out);
  EXPECT_EQ(Kvcli({}, "put --help\n").out, put);
  ExpectUsageError(Bare({"-h", "10.0.0.7", "get", "x"}), "--server=rdma://HOST");
}

// Of a cluster in `etcd`.
std::string UriOf(const EtcdCluster& etcd) {
  EtcdUri uri = etcd.ClientOptions().uri;
  uri.name = "shop";
  return uri.ToString();
}

TEST_F(KvcliTest, TheExampleOfEveryCommandDoesWhatItSays) {
  const Json commands = Json::parse(Bare({"help", "--json"}).out);
  ASSERT_GE(commands.size(), 20u);
  const EtcdCluster etcd;
  for (const Json& command : commands) {
    const auto name = command["command"].get<std::string>();
    // The state that an example needs, independent of earlier ones; and no longer than necessary.
    const std::string line = absl::StrReplaceAll(command["example"].get<std::string>(),
                                                 {{"-i 1", "-i 0.01"},
                                                  {"-i 2", "-i 0.01"},
                                                  {"--duration=10", "--duration=0.1"},
                                                  {"/var/lib/osprey/data", "data"},
                                                  {"/backup/osprey", "copy"},
                                                  {"etcd://10.0.0.1:2379/shop", UriOf(etcd)}});
    const ProgramResult result = RunProgram(
        {"bash", "-c",
         absl::StrCat(
             "PATH=$PWD/tools:$PWD/tests/tools:$PATH; export OSPREY_SERVER=", uri_, "; cd ",
             directory_, "; [[ -e data ]] || write_data_directory data 30",
             "; kvcli mput planet saturn moon titan user/1 x > /dev/null; kvcli put visits "
             "3 > /dev/null; [[ -e backup.jsonl ]] || kvcli export backup.jsonl > "
             "/dev/null; ",
             line)});
    if (name == "doctor") {
      EXPECT_NE(result.exit_status, 2) << "what it finds is the machine's " << result.err;
    } else {
      EXPECT_EQ(result.exit_status, 0) << line << ": " << result.err;
    }
    EXPECT_THAT(result.out, Not(IsEmpty())) << line;
  }
  Kvcli({"flush"});
}

// Each line of `text`, which must be JSON.
std::vector<Json> JsonLines(const std::string& text) {
  std::vector<Json> lines;
  for (const absl::string_view line : absl::StrSplit(text, '\n', absl::SkipEmpty())) {
    lines.push_back(Json::parse(line, nullptr, false));
    EXPECT_FALSE(lines.back().is_discarded()) << line;
  }
  return lines;
}

TEST_F(KvcliTest, EveryCommandPrintsNothingButJsonIfItIsAsked) {
  const std::string file = absl::StrCat(directory_, "/all.jsonl");
  const std::string data = absl::StrCat(directory_, "/written");
  ASSERT_EQ(RunProgram({"tests/tools/write_data_directory", data, "30"}).exit_status, 0);
  const EtcdCluster etcd;
  // In this order; and a field of the last line of each.
  const std::vector<std::pair<std::vector<std::string>, std::string>> commands = {
      {{"put", "planet", "saturn"}, "version"},
      {{"get", "planet"}, "value"},
      {{"exists", "planet"}, "exists"},
      {{"incr", "visits"}, "value"},
      {{"append", "log", "one"}, "version"},
      {{"expire", "planet", "60"}, "version"},
      {{"ttl", "planet"}, "ttl"},
      {{"trace", "get", "planet"}, "steps"},
      {{"persist", "planet"}, "version"},
      {{"touch", "planet"}, "version"},
      {{"mput", "moon", "titan", "sun", "sol"}, "results"},
      {{"mget", "moon", "absent"}, "results"},
      {{"del", "moon", "absent"}, "results"},
      {{"scan", "--values"}, "keys"},
      {{"count"}, "count"},
      {{"bigkeys", "--top=2"}, ""},
      {{"export", file}, "records"},
      {{"import", file}, "stored"},
      {{"ping", "-r", "2"}, "round_trip_us"},
      {{"stats"}, "requests"},
      {{"stat", "-r", "2", "-i", "0.01"}, "put/s"},
      {{"latency", "--count=5"}, "get"},
      {{"doctor"}, "findings"},
      {{"doctor", "--peer", uri_}, "findings"},
      {{"log", "verify", data}, "last_record"},
      {{"log", "dump", data}, "record"},
      {{"backup", data, absl::StrCat(directory_, "/copied")}, "last_record"},
      {{"cluster", "create", UriOf(etcd), "--memory=64MiB"}, "id"},
      {{"cluster", "status", UriOf(etcd)}, "shards"},
      {{"help", "put"}, "example"},
      {{"help"}, ""},
      {{"flush"}, "deleted"}};
  std::set<std::string> missing;
  for (const Json& command : Json::parse(Bare({"help", "--json"}).out))
    missing.insert(command["command"].get<std::string>());
  for (const auto& [args, field] : commands) {
    missing.erase(args[0]);
    std::vector<std::string> with_json = args;
    with_json.push_back("--json");
    const ProgramResult result = Kvcli(with_json);
    const std::vector<Json> lines = JsonLines(result.out);
    ASSERT_FALSE(lines.empty()) << args[0] << result.err;
    EXPECT_TRUE(field.empty() || lines.back().contains(field)) << args[0] << result.out;
    EXPECT_FALSE(lines.back().contains("error")) << args[0] << result.out;
  }
  EXPECT_THAT(missing, IsEmpty()) << "are shown by nothing here";
  // Its standard output is the export, which is JSON, too.
  Put("planet", "saturn");
  EXPECT_EQ(JsonLines(Kvcli({"export", "-", "--json"}).out).size(), 1u);
  for (const std::vector<std::string>& args : {std::vector<std::string>{"get", "absent"},
                                               {"del", "absent"},
                                               {"expire", "absent", "5"},
                                               {"nonsense"},
                                               {"import", "/absent/x"},
                                               {"export", "/absent/x"}}) {
    std::vector<std::string> with_json = args;
    with_json.push_back("--json");
    const std::vector<Json> lines = JsonLines(Kvcli(with_json).out);
    ASSERT_EQ(lines.size(), 1u) << args[0];
    EXPECT_TRUE(lines[0].contains("error")) << args[0];
  }
}

TEST_F(KvcliTest, TheVersionIsPrinted) {
  const ProgramResult version = Bare({"--version"});
  EXPECT_EQ(version.exit_status, 0) << version.err;
  EXPECT_THAT(
      version.out,
      MatchesRegex("kvcli [0-9.]+ \\(protocol [0-9]+, layout [0-9]+(, commit [^)]+)?\\)\n"));
  EXPECT_THAT(Json::parse(Bare({"--version", "--json"}).out)["version"].get<std::string>(),
              MatchesRegex("[0-9.]+"));
}

TEST_F(KvcliTest, CommandsMayBeWrittenInCapitals) {
  EXPECT_EQ(Kvcli({"PUT", "shouted", "x"}).exit_status, 0);
  EXPECT_EQ(Kvcli({"GET", "shouted"}).out, "x");
  EXPECT_EQ(Kvcli({}, "Get shouted\nQUIT\nnonsense\n").out, "x\n");
}

TEST_F(KvcliTest, WhatRedisCallsOtherwiseIsNamed) {
  ExpectUsageError(Kvcli({"set", "a", "b"}), "'set'; here it is: kvcli put KEY VALUE");
  ExpectUsageError(Kvcli({"KEYS", "*"}), "kvcli scan");
  ExpectUsageError(Kvcli({"gett", "a"}), "is it get?");
  ExpectUsageError(Bare({"help", "set"}), "kvcli put KEY VALUE");
  ExpectUsageError(Kvcli({"get", "a", "--jsno"}), "--jsno; is it --json?");
  EXPECT_EQ(Kvcli({"exists", "a"}).out, "no\n");
}

TEST_F(KvcliTest, SomeCommandsMayBeWrittenAsFlags) {
  Put("as a flag", "x");
  EXPECT_EQ(Kvcli({"--scan", "--prefix=as a"}).out, "as a flag\n");
  EXPECT_THAT(Kvcli({"--bigkeys", "--top=1"}).out, HasSubstr("value\t"));
  EXPECT_THAT(Kvcli({"--latency", "--count=5"}).out, HasSubstr("\nget count=5 "));
  EXPECT_EQ(Kvcli({"--stat", "-r", "1", "-i", "0.01"}).exit_status, 0);
  ExpectUsageError(Kvcli({"--stat", "get", "a"}), "leave out 'get'");
  ExpectUsageError(Kvcli({"--latency", "--bigkeys"}), "leave out 'latency'");
  ExpectUsageError(Kvcli({"--scan", "--top=1"}), "--top is not for this command");
}

TEST_F(KvcliTest, WithoutAServerTheStatusIsThreeAndTheLineNamesIt) {
  // Not after the timeout, but at once: the program would be killed before.
  ProgramOptions options;
  options.timeout = absl::Seconds(25);
  const ProgramResult result =
      Bare({"--server=shm:///absent/socket", "get", "x", "--timeout=60"}, options);
  EXPECT_EQ(result.exit_status, 3);
  EXPECT_THAT(result.out, IsEmpty());
  EXPECT_THAT(result.err, AllOf(MatchesRegex(kOneLine), HasSubstr("/absent/socket")));
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
