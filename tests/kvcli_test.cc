// kvcli and catalog as scripts use them, on a kvserver. Over shared memory; in the lab, the same
// over verbs.

#include <cstdlib>
#include <fstream>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tests/subprocess.h"

namespace osprey {
namespace {

using Json = nlohmann::json;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::MatchesRegex;
using ::testing::StartsWith;
using ::testing::UnorderedElementsAreArray;

const std::string kBinary("\0\x01\xff\xfe\r\n\0end\n", 11);
constexpr char kOneLine[] = "kvcli: [^\n]+\n";

class KvcliTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    directory_ = NewTemporaryDirectory();
    if (const char* given = std::getenv("OSPREY_TEST_SERVER");
        given != nullptr) {  // on another machine
      uri_ = given;
      return;
    }
    const char* lab_ip = std::getenv("LAB_IP");
    const std::string listen = lab_ip == nullptr ? absl::StrCat("shm://", directory_, "/socket")
                                                 : absl::StrCat("rdma://", lab_ip, ":0");
    absl::StatusOr<std::unique_ptr<ServerProcess>> server = ServerProcess::Start(listen);
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
    uri_ = server_->uri();
  }

  static void TearDownTestSuite() {
    if (server_ == nullptr) return;
    EXPECT_EQ(server_->Stop(), 0);
    server_.reset();
  }

  // Without a server.
  static ProgramResult Bare(std::vector<std::string> args, const ProgramOptions& options = {}) {
    args.insert(args.begin(), {"env", "-u", "OSPREY_SERVER", "tools/kvcli"});
    return RunProgram(args, options);
  }

  static ProgramResult Kvcli(std::vector<std::string> args, const std::string& input = "") {
    ProgramOptions options;
    options.input = input;
    args.insert(args.begin(), absl::StrCat("--server=", uri_));
    return Bare(args, options);
  }

  static std::string Put(const std::string& key, const std::string& value) {
    const ProgramResult put = Kvcli({"put", "--", key, "-"}, value);
    EXPECT_EQ(put.exit_status, 0) << put.err;
    return put.out.substr(0, put.out.find('\n'));  // the version
  }

  static std::string WriteFile(const std::string& name, const std::string& bytes) {
    std::string path = absl::StrCat(directory_, "/", name);
    std::ofstream(path, std::ios::binary) << bytes;
    return path;
  }

  static void ExpectUsageError(const ProgramResult& result, const std::string& message) {
    EXPECT_EQ(result.exit_status, 2) << message;
    EXPECT_THAT(result.out, IsEmpty());
    EXPECT_THAT(result.err, AllOf(MatchesRegex(kOneLine), HasSubstr(message)));
  }

  static std::string directory_;
  static std::string uri_;
  static std::unique_ptr<ServerProcess> server_;
};

std::string KvcliTest::directory_;
std::string KvcliTest::uri_;
std::unique_ptr<ServerProcess> KvcliTest::server_;

TEST_F(KvcliTest, PipedAGetWritesExactlyTheBytesThatWerePut) {
  for (const std::string& value :
       {std::string(), std::string("saturn"), kBinary, std::string(100, '\n'),
        std::string(4000, 'x') + kBinary, std::string(300'000, 'y') + kBinary}) {
    Put("bytes", value);
    const ProgramResult got = Kvcli({"get", "bytes"});
    EXPECT_EQ(got.exit_status, 0) << got.err;
    EXPECT_EQ(got.out.size(), value.size());
    EXPECT_TRUE(got.out == value);
    EXPECT_THAT(got.err, IsEmpty());
  }
}

TEST_F(KvcliTest, AValueMayBeAnArgumentOrAFile) {
  EXPECT_EQ(Kvcli({"put", "argument", "sat urn"}).exit_status, 0);
  EXPECT_EQ(Kvcli({"get", "argument"}).out, "sat urn");
  EXPECT_EQ(Kvcli({"put", "file", absl::StrCat("@", WriteFile("value", kBinary))}).exit_status, 0);
  EXPECT_EQ(Kvcli({"get", "file"}).out, kBinary);
}

TEST_F(KvcliTest, AFileThatCannotBeReadStoresNothing) {
  for (const std::string& path : {std::string("/nowhere/x"), directory_}) {
    const ProgramResult put = Kvcli({"put", "unreadable", absl::StrCat("@", path)});
    EXPECT_EQ(put.exit_status, 4);
    EXPECT_THAT(put.err, AllOf(MatchesRegex(kOneLine), HasSubstr(path)));
  }
  EXPECT_EQ(Kvcli({"exists", "unreadable"}).exit_status, 1);
}

TEST_F(KvcliTest, WhatIsNotThereIsStatusOneAndOneLineThatNamesKeyAndServer) {
  for (const char* command : {"get", "del"}) {
    const ProgramResult result = Kvcli({command, "absent"});
    EXPECT_EQ(result.exit_status, 1);
    EXPECT_THAT(result.out, IsEmpty());
    EXPECT_THAT(result.err, AllOf(MatchesRegex(kOneLine), HasSubstr("absent"), HasSubstr(uri_)));
  }
}

TEST_F(KvcliTest, ExistsSaysYesOrNoAndByItsStatus) {
  Put("here", "");
  const ProgramResult yes = Kvcli({"exists", "here"});
  EXPECT_EQ(yes.exit_status, 0);
  EXPECT_EQ(yes.out, "yes\n");
  const ProgramResult no = Kvcli({"exists", "not here"});
  EXPECT_EQ(no.exit_status, 1);
  EXPECT_EQ(no.out, "no\n");
  EXPECT_THAT(no.err, IsEmpty());
}

TEST_F(KvcliTest, ADeletedKeyIsGone) {
  Put("doomed", "x");
  EXPECT_EQ(Kvcli({"del", "doomed"}).exit_status, 0);
  EXPECT_EQ(Kvcli({"get", "doomed"}).exit_status, 1);
  EXPECT_EQ(Kvcli({"del", "doomed"}).exit_status, 1);
}

TEST_F(KvcliTest, PutIfAbsentLeavesAPresentValueAlone) {
  EXPECT_EQ(Kvcli({"put", "--if-absent", "once", "first"}).exit_status, 0);
  const ProgramResult again = Kvcli({"put", "once", "second", "--if_absent"});
  EXPECT_EQ(again.exit_status, 1);
  EXPECT_THAT(again.err, MatchesRegex(kOneLine));
  EXPECT_EQ(Kvcli({"get", "once"}).out, "first");
  Kvcli({"del", "once"});
}

TEST_F(KvcliTest, TheVersionThatAPutPrintsIsACondition) {
  const std::string first = Put("versioned", "1");
  const ProgramResult second =
      Kvcli({"put", "versioned", "2", absl::StrCat("--if-version=", first)});
  EXPECT_EQ(second.exit_status, 0) << second.err;
  EXPECT_THAT(second.out, MatchesRegex("[0-9]+\n"));
  EXPECT_EQ(Kvcli({"put", "versioned", "3", "--if-version", first}).exit_status, 1);
  EXPECT_EQ(Kvcli({"del", "versioned", "--if-version", first}).exit_status, 1);
  EXPECT_EQ(Kvcli({"get", "versioned"}).out, "2");
  EXPECT_EQ(Kvcli({"del", "versioned",
                   absl::StrCat("--if-version=", second.out.substr(0, second.out.size() - 1))})
                .exit_status,
            0);
}

TEST_F(KvcliTest, IncrementPrintsTheNewNumber) {
  EXPECT_EQ(Kvcli({"incr", "visits"}).out, "1\n");
  EXPECT_EQ(Kvcli({"incr", "visits", "41"}).out, "42\n");
  EXPECT_EQ(Kvcli({"incr", "visits", "-50"}).out, "-8\n");
  EXPECT_EQ(Kvcli({"get", "visits"}).out, "-8");
  EXPECT_EQ(Json::parse(Kvcli({"incr", "visits", "--json"}).out)["value"], -7);
  Kvcli({"del", "visits"});
}

TEST_F(KvcliTest, WhatIsNoNumberIsNotIncremented) {
  Put("text", "saturn");
  const ProgramResult text = Kvcli({"incr", "text"});
  EXPECT_EQ(text.exit_status, 1);
  EXPECT_THAT(text.err, AllOf(MatchesRegex(kOneLine), HasSubstr("text"), HasSubstr("number")));
  EXPECT_EQ(Kvcli({"get", "text"}).out, "saturn");
  Put("most", "9223372036854775807");
  EXPECT_EQ(Kvcli({"incr", "most"}).exit_status, 4);
  EXPECT_EQ(Kvcli({"get", "most"}).out, "9223372036854775807");
  ExpectUsageError(Kvcli({"incr", "text", "1.5"}), "1.5");
}

TEST_F(KvcliTest, AppendWritesBehindWhatIsThere) {
  EXPECT_EQ(Kvcli({"append", "log", "one,"}).exit_status, 0);
  EXPECT_EQ(Kvcli({"append", "log", "-"}, kBinary).exit_status, 0);
  EXPECT_EQ(Kvcli({"get", "log"}).out, "one," + kBinary);
  Kvcli({"del", "log"});
}

TEST_F(KvcliTest, AKeyLivesForAsLongAsItWasPutForOrSetToExpire) {
  const std::string version = Kvcli({"put", "session", "u17", "--ttl=7200"}).out;
  const std::string ttl = Kvcli({"ttl", "session"}).out;
  EXPECT_THAT(ttl, MatchesRegex("[0-9]+\\.[0-9][0-9][0-9]\n"));
  EXPECT_GT(std::stod(ttl), 3600);
  EXPECT_LE(std::stod(ttl), 7200);
  EXPECT_LE(Json::parse(Kvcli({"get", "session", "--json"}).out)["ttl"], 7200);
  EXPECT_EQ(Kvcli({"persist", "session"}).out, version) << "the version stays";
  EXPECT_EQ(Kvcli({"ttl", "session"}).out, "none\n");
  EXPECT_TRUE(Json::parse(Kvcli({"ttl", "session", "--json"}).out)["ttl"].is_null());
  EXPECT_FALSE(Json::parse(Kvcli({"get", "session", "--json"}).out).contains("ttl"));
  EXPECT_EQ(Kvcli({"touch", "session"}).out, version);
  EXPECT_EQ(Kvcli({"expire", "session", "24h"}).out, version);
  EXPECT_LE(Json::parse(Kvcli({"ttl", "session", "--json"}).out)["ttl"], 86400);
  EXPECT_EQ(Kvcli({"expire", "session", "0.05"}).exit_status, 0);
  // A process takes longer to start, or nearly so.
  int status = 0;
  for (int i = 0; i < 100 && status == 0; ++i) status = Kvcli({"get", "session"}).exit_status;
  EXPECT_EQ(status, 1);
  for (const std::string command : {"ttl", "persist", "touch"})
    EXPECT_EQ(Kvcli({command, "session"}).exit_status, 1);
  EXPECT_EQ(Kvcli({"expire", "session", "60"}).exit_status, 1);
}

TEST_F(KvcliTest, ATimeToLiveThatCannotBeIsAUsageError) {
  ExpectUsageError(Kvcli({"put", "a", "b", "--ttl=0"}), "--ttl=0");
  ExpectUsageError(Kvcli({"put", "a", "b", "--ttl=-1"}), "--ttl=-1");
  ExpectUsageError(Kvcli({"put", "a", "b", "--ttl=soon"}), "soon");
  ExpectUsageError(Kvcli({"put", "a", "b", "--ttl=nan"}), "nan");
  ExpectUsageError(Kvcli({"mput", "a", "b", "--ttl=1e30"}), "100 years");
  ExpectUsageError(Kvcli({"get", "a", "--ttl=1"}), "--ttl");
  ExpectUsageError(Kvcli({"expire", "a"}), "SECONDS");
  ExpectUsageError(Kvcli({"expire", "a", "0"}), "above 0");
  EXPECT_EQ(Kvcli({"exists", "a"}).exit_status, 1);
}

TEST_F(KvcliTest, SeveralKeysAreAnsweredEachByItself) {
  const ProgramResult put = Kvcli({"mput", "m1", "one", "m2", "tab\t", "m3", "-"}, kBinary);
  EXPECT_EQ(put.exit_status, 0) << put.err;
  EXPECT_THAT(put.out, MatchesRegex("[0-9]+\n[0-9]+\n[0-9]+\n"));
  const ProgramResult got = Kvcli({"mget", "m1", "absent", "m2"});
  EXPECT_EQ(got.exit_status, 1);
  EXPECT_EQ(got.out, "m1\tone\nm2\ttab\\t\n");
  EXPECT_THAT(got.err, AllOf(MatchesRegex(kOneLine), HasSubstr("absent")));
  const Json json = Json::parse(Kvcli({"mget", "m3", "absent", "--json"}).out)["results"];
  EXPECT_EQ(json[0]["value_encoding"], "base64");
  EXPECT_EQ(json[1]["error"], "NOT_FOUND");
  const ProgramResult again = Kvcli({"mput", "--if-absent", "m0", "new", "m1", "old"});
  EXPECT_EQ(again.exit_status, 1);
  EXPECT_THAT(again.out, MatchesRegex("[0-9]+\n\n"));
  EXPECT_EQ(Kvcli({"mget", "m0", "m1"}).out, "m0\tnew\nm1\tone\n");
  EXPECT_EQ(Kvcli({"del", "m0", "m1", "m2", "m3"}).exit_status, 0);
  const ProgramResult none = Kvcli({"mget", "m1", "m2"});
  EXPECT_EQ(none.exit_status, 1);
  EXPECT_THAT(none.out, IsEmpty());
}

TEST_F(KvcliTest, ScanPrintsEveryKeyOfAPrefixOnce) {
  std::vector<std::string> expected;
  for (int i = 0; i < 30; ++i) {
    Put(absl::StrCat("scan/", i), absl::StrCat("v", i));
    expected.push_back(absl::StrCat("scan/", i));
  }
  Put("elsewhere", "x");
  const auto lines_of = [](const ProgramResult& result) {
    return std::vector<std::string>(absl::StrSplit(result.out, '\n', absl::SkipEmpty()));
  };
  const ProgramResult all = Kvcli({"scan", "--prefix=scan/"});
  EXPECT_EQ(all.exit_status, 0) << all.err;
  EXPECT_THAT(lines_of(all), UnorderedElementsAreArray(expected));
  EXPECT_THAT(Kvcli({"scan", "--prefix=scan/7", "--values"}).out, "scan/7\tv7\n");
  EXPECT_THAT(Kvcli({"scan"}).out, AllOf(HasSubstr("elsewhere\n"), HasSubstr("scan/29\n")));
  EXPECT_EQ(Kvcli({"count", "--prefix=scan/"}).out, "30\n");
  EXPECT_EQ(absl::StrCat(lines_of(Kvcli({"scan"})).size(), "\n"), Kvcli({"count"}).out);
}

TEST_F(KvcliTest, ALimitedScanGoesOnWithItsCursor) {
  for (int i = 0; i < 20; ++i) Put(absl::StrCat("page/", i), "x");
  std::set<std::string> found;
  std::string cursor;
  int pages = 0;
  do {
    ASSERT_LT(++pages, 1000);
    const ProgramResult page =
        Kvcli({"scan", "--json", "--limit=3", absl::StrCat("--cursor=", cursor)});
    ASSERT_EQ(page.exit_status, 0) << page.err;
    const std::vector<std::string> lines = absl::StrSplit(page.out, '\n', absl::SkipEmpty());
    for (const std::string& line : lines) {
      const Json json = Json::parse(line);
      if (json.contains("key")) found.insert(json["key"].get<std::string>());
    }
    cursor = Json::parse(lines.back())["cursor"].get<std::string>();
  } while (!cursor.empty());
  for (int i = 0; i < 20; ++i) EXPECT_EQ(found.count(absl::StrCat("page/", i)), 1u) << i;
  EXPECT_EQ(Kvcli({"scan", "--cursor=nonsense"}).exit_status, 2);
}

TEST_F(KvcliTest, FlushDeletesEveryKeyAndPrintsHowMany) {
  Put("flushed", "x");
  const std::string count = Kvcli({"count"}).out;
  EXPECT_EQ(Kvcli({"flush"}).out, count);
  EXPECT_EQ(Kvcli({"count"}).out, "0\n");
  EXPECT_THAT(Kvcli({"scan"}).out, IsEmpty());
}

TEST_F(KvcliTest, AValueMayBeLongerThanAClientsDefaultBuffers) {
  const char* lab_ip = std::getenv("LAB_IP");
  absl::StatusOr<std::unique_ptr<ServerProcess>> server =
      ServerProcess::Start(lab_ip == nullptr ? absl::StrCat("shm://", directory_, "/large")
                                             : absl::StrCat("rdma://", lab_ip, ":0"),
                           {"--memory=256MiB"});
  ASSERT_TRUE(server.ok()) << server.status();
  std::string value;
  while (value.size() < 70'000'000) absl::StrAppend(&value, value.size(), kBinary);
  ProgramOptions options;
  options.input = value;
  const std::string uri = absl::StrCat("--server=", (*server)->uri());
  const ProgramResult put = Bare({uri, "--timeout=50", "put", "long", "-"}, options);
  ASSERT_EQ(put.exit_status, 0) << put.err;
  const ProgramResult got = Bare({uri, "--timeout=50", "get", "long"});
  EXPECT_EQ(got.exit_status, 0) << got.err;
  EXPECT_TRUE(got.out == value);
  EXPECT_EQ((*server)->Stop(), 0);
}

TEST_F(KvcliTest, AfterTwoDashesAKeyMayLookLikeAFlag) {
  EXPECT_EQ(Kvcli({"put", "--", "--json", "-x"}).exit_status, 0);
  EXPECT_EQ(Kvcli({"get", "--", "--json"}).out, "-x");
}

TEST_F(KvcliTest, JsonIsOneObjectAndSaysHowBytesAreEncoded) {
  const std::string version = Put("json", kBinary);
  const Json got = Json::parse(Kvcli({"--json", "get", "json"}).out);
  EXPECT_EQ(got["key"], "json");
  EXPECT_EQ(got["value_encoding"], "base64");
  EXPECT_EQ(got["value"], "AAH//g0KAGVuZAo=");
  EXPECT_EQ(absl::StrCat(got["version"].get<uint64_t>()), version);
  const ProgramResult absent = Kvcli({"get", "absent", "--json"});
  EXPECT_EQ(absent.exit_status, 1);
  EXPECT_EQ(Json::parse(absent.out)["error"], "NOT_FOUND");
  EXPECT_EQ(Json::parse(Kvcli({"exists", "absent", "--json"}).out)["exists"], false);
  EXPECT_EQ(Json::parse(Kvcli({"del", "json", "--json"}).out)["key"], "json");
}

TEST_F(KvcliTest, StatsAndPingSayTransportAndDevice) {
  for (const char* command : {"stats", "ping"}) {
    const ProgramResult plain = Kvcli({command});
    EXPECT_EQ(plain.exit_status, 0) << plain.err;
    EXPECT_THAT(plain.out, AllOf(HasSubstr("transport="), HasSubstr("device=")));
    EXPECT_EQ(plain.out.find("transport="), plain.out.rfind("transport=")) << "said twice";
    const Json json = Json::parse(Kvcli({command, "--json"}).out);
    EXPECT_FALSE(json["transport"].get<std::string>().empty());
    EXPECT_FALSE(json["device"].get<std::string>().empty());
  }
}

TEST_F(KvcliTest, StatsCountPutsAndNoGets) {
  Put("counted", "x");
  const Json before = Json::parse(Kvcli({"stats", "--json"}).out);
  for (int i = 0; i < 3; ++i) Put("counted", "y");
  for (int i = 0; i < 5; ++i) Kvcli({"get", "counted"});
  const Json after = Json::parse(Kvcli({"stats", "--json"}).out);
  EXPECT_EQ(after["requests"].get<int>() - before["requests"].get<int>(), 3);
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
  ExpectUsageError(Bare({}), "no command");
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
}

TEST_F(KvcliTest, HelpNeedsNoServer) {
  const ProgramResult help = Bare({"help"});
  EXPECT_EQ(help.exit_status, 0);
  EXPECT_THAT(help.out, AllOf(HasSubstr("put KEY VALUE"), HasSubstr("--if-version"),
                              HasSubstr("exit status")));
  EXPECT_EQ(Bare({"--help"}).out, help.out);
  EXPECT_EQ(Bare({"help", "put"}).exit_status, 0);
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

TEST_F(KvcliTest, CatalogStoresAnIndexAndAnotherProcessFindsEveryByte) {
  std::string index;
  for (int i = 0; i < 500; ++i) {
    absl::StrAppend(&index, "Package: catalog-", i % 450, "\nVersion: ", i,
                    "\nDescription: ", std::string(i * 7, 'd'), "\n\n");
  }
  const std::string path = WriteFile("index", index);
  const auto catalog = [&](const char* mode) {
    return RunProgram(
        {"tools/catalog", mode, path, absl::StrCat("--server=", uri_), "--samples=50"});
  };
  EXPECT_EQ(catalog("verify").exit_status, 1);  // nothing is there yet

  const ProgramResult put = catalog("put");
  ASSERT_EQ(put.exit_status, 0) << put.err;
  EXPECT_EQ(Json::parse(put.out)["keys"], 500);
  EXPECT_EQ(Json::parse(put.out)["samples"], 50);

  const ProgramResult verify = catalog("verify");
  ASSERT_EQ(verify.exit_status, 0) << verify.err;
  const Json report = Json::parse(verify.out);
  EXPECT_EQ(report["keys"], 500);
  EXPECT_EQ(report["missing"], 0);
  EXPECT_EQ(report["different"], 0);
  EXPECT_EQ(report["server_requests_change"], 0);
  EXPECT_GE(report["reads_per_get"], 1);
  EXPECT_LE(report["reads_per_get"], 2.1);

  Put("catalog-7", "something else");
  const ProgramResult different = catalog("verify");
  EXPECT_EQ(different.exit_status, 1);
  EXPECT_GE(Json::parse(different.out)["different"], 1);
  EXPECT_THAT(different.err, HasSubstr("catalog-7"));
}

}  // namespace
}  // namespace osprey
