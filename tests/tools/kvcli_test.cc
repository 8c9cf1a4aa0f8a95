// The commands of kvcli, and catalog, as scripts use them.

#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tests/support/subprocess.h"
#include "tests/tools/kvcli_fixture.h"

namespace osprey {
namespace {

using Json = nlohmann::json;
using ::testing::AllOf;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::MatchesRegex;
using ::testing::UnorderedElementsAreArray;

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

TEST_F(KvcliTest, ALiteralValueIsStoredAsItIsWritten) {
  for (const std::string value : {"-", "@", "@nasa", "@/absent/x"}) {
    EXPECT_EQ(Kvcli({"put", "literal", value, "--literal"}).exit_status, 0);
    EXPECT_EQ(Kvcli({"get", "literal"}).out, value);
  }
  EXPECT_EQ(Kvcli({"append", "literal", "-", "--literal"}).exit_status, 0);
  EXPECT_EQ(Kvcli({"get", "literal"}).out, "@/absent/x-");
  EXPECT_EQ(Kvcli({"--literal", "mput", "l1", "-", "l2", "-", "l3", "@x"}).exit_status, 0);
  EXPECT_EQ(Kvcli({"mget", "l1", "l2", "l3"}).out, "l1\t-\nl2\t-\nl3\t@x\n");
  EXPECT_THAT(
      Kvcli({}, "put literal @line --literal --if-absent\nput other - --literal\nmget other\n").out,
      EndsWith("other\t-\n"))
      << "a line of standard input";
  EXPECT_EQ(Kvcli({"get", "other"}).out, "-");
  ExpectUsageError(Kvcli({"get", "literal", "--literal"}), "--literal");
  EXPECT_THAT(Kvcli({"put", "literal", "@nasa"}).err,
              HasSubstr("with --literal, the value is @nasa itself"));
  // A key is never parsed as a value.
  EXPECT_EQ(Kvcli({"mput", "-", "-", "k", "v"}, "dash").exit_status, 0);
  EXPECT_EQ(Kvcli({"get", "-"}).out, "dash");
  Kvcli({"del", "-", "k", "l1", "l2", "l3", "other", "literal"});
}

TEST_F(KvcliTest, AFileThatCannotBeReadStoresNothing) {
  for (const std::string& path : {std::string("/absent/x"), directory_}) {
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
  std::vector<std::string> expected, put = {"mput", "elsewhere", "x"};
  for (int i = 0; i < 30; ++i) {
    expected.push_back(absl::StrCat("scan/", i));
    put.insert(put.end(), {expected.back(), absl::StrCat("v", i)});
  }
  ASSERT_EQ(Kvcli(put).exit_status, 0);
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
  Kvcli({"flush"});  // each page is a process, which takes its time in the lab
  std::vector<std::string> put = {"mput"};
  for (int i = 0; i < 20; ++i) put.insert(put.end(), {absl::StrCat("page/", i), "x"});
  ASSERT_EQ(Kvcli(put).exit_status, 0);
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
      if (!json.contains("key")) continue;
      EXPECT_TRUE(found.insert(json["key"].get<std::string>()).second) << line << " twice";
    }
    cursor = Json::parse(lines.back())["cursor"].get<std::string>();
    EXPECT_TRUE(lines.size() == 4 || cursor.empty()) << "three keys, and the end; " << page.out;
  } while (!cursor.empty());
  EXPECT_EQ(pages, 7);
  EXPECT_THAT(Kvcli({"scan", "--limit=1"}).out, MatchesRegex("page/[0-9]+\n"));
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
  if (InLab()) GTEST_SKIP() << "it takes long there; large_values_test has values of 64 MiB";
  absl::StatusOr<std::unique_ptr<ServerProcess>> server =
      ServerProcess::Start(NewListenAddress(), {"--memory=256MiB"});
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

TEST_F(KvcliTest, JsonHasWhatAnOperationCost) {
  Put("cost", "x");
  const Json got = Json::parse(Kvcli({"get", "cost", "--json"}).out);
  EXPECT_EQ(got["reads"], 1);
  EXPECT_EQ(got["messages"], 0);
  EXPECT_GT(got["us"], 0);
  const Json put = Json::parse(Kvcli({"put", "cost", "y", "--json"}).out);
  EXPECT_EQ(put["reads"], 0);
  EXPECT_EQ(put["messages"], 1);
}

TEST_F(KvcliTest, TracePrintsEachStepAndTheSecondTimeFromTheCache) {
  Kvcli({"put", "traced", std::string(200, 'v')});
  const ProgramResult result = Kvcli({"trace", "get", "traced", "-r", "2", "-i", "1ms"});
  EXPECT_EQ(result.exit_status, 0) << result.err;
  std::string steps;
  for (absl::string_view line : absl::StrSplit(result.out, '\n', absl::SkipEmpty())) {
    const std::vector<std::string> fields = absl::StrSplit(line, '\t');
    ASSERT_EQ(fields.size(), 3u) << line;
    double us = -1;
    EXPECT_TRUE(absl::SimpleAtod(fields[0], &us) && us >= 0) << line;
    EXPECT_NE(fields[2], "") << line;
    absl::StrAppend(&steps, fields[1], " ");
  }
  EXPECT_EQ(steps,
            "server key lease cache READ landed checked READ landed checked hit "
            "server key lease cache READ landed checked hit ");
  EXPECT_THAT(result.out, HasSubstr("\tcache\titem at offset=0x"));
  EXPECT_THAT(result.out, HasSubstr("\thit\t200 bytes, version "));
  const ProgramResult other = Kvcli({"trace", "put", "traced"});
  EXPECT_EQ(other.exit_status, 2);
  EXPECT_THAT(other.err, HasSubstr("write trace get KEY"));
  Kvcli({"del", "traced"});
  const ProgramResult absent = Kvcli({"trace", "get", "traced"});
  EXPECT_EQ(absent.exit_status, 1);
  EXPECT_THAT(absent.out, HasSubstr("\tmiss\t"));
  EXPECT_THAT(absent.err, HasSubstr("no such key"));
}

TEST_F(KvcliTest, LatencyMeasuresAllKindsAndLeavesNoKeyBehind) {
  const std::string count = Kvcli({"count"}).out;
  const Json before = Json::parse(Kvcli({"stats", "--json"}).out);
  const ProgramResult result = Kvcli({"latency", "--count=50", "--size=100", "--json"});
  ASSERT_EQ(result.exit_status, 0) << result.err;
  const Json json = Json::parse(result.out);
  EXPECT_FALSE(json["transport"].get<std::string>().empty());
  EXPECT_EQ(json["value_bytes"], 100);
  for (const char* kind : {"get", "put", "ping", "read_8", "read_256"}) {
    const Json& row = json[kind];
    EXPECT_EQ(row["count"], 50) << kind;
    double last = 0;
    for (const char* name : {"min_us", "p50_us", "p90_us", "p99_us", "p99.9_us", "max_us"}) {
      EXPECT_GE(row[name], last) << kind << " " << name;
      last = row[name];
    }
    EXPECT_GT(last, 0) << kind;
  }
  EXPECT_EQ(json["reads_per_get"], 1.0) << "the place of the key is known";
  // A GET does more than a READ that is not longer.
  EXPECT_GE(json["get"]["p50_us"].get<double>(), json["read_8"]["min_us"].get<double>());
  EXPECT_EQ(Kvcli({"count"}).out, count);
  const Json after = Json::parse(Kvcli({"stats", "--json"}).out);
  EXPECT_EQ(after["requests_get"], before["requests_get"]) << "GETs are READs";

  const ProgramResult plain = Kvcli({"latency", "--duration=0.1"});
  EXPECT_EQ(plain.exit_status, 0) << plain.err;
  EXPECT_THAT(plain.out, AllOf(HasSubstr("transport="), HasSubstr("\nget count="),
                               HasSubstr("\nread_256 count="), HasSubstr("reads_per_get=1.0000")));
  EXPECT_EQ(Kvcli({"count"}).out, count);
}

TEST_F(KvcliTest, StatIsALineAnInterval) {
  const ProgramResult stat = Kvcli({"--stat", "-r", "22", "-i", "0.01"});
  EXPECT_EQ(stat.exit_status, 0) << stat.err;
  const std::vector<std::string> lines = absl::StrSplit(stat.out, '\n', absl::SkipEmpty());
  ASSERT_EQ(lines.size(), 24u) << "22 lines and a header every 20";
  EXPECT_THAT(lines[0], AllOf(HasSubstr("keys"), HasSubstr("put/s"), HasSubstr("evict/s")));
  EXPECT_EQ(lines[21], lines[0]);
  const ProgramResult json = Kvcli({"stat", "--json", "-r", "1", "-i", "10ms"});
  EXPECT_TRUE(Json::parse(json.out).contains("put/s")) << json.out;
}

TEST_F(KvcliTest, StatShowsOnlyGetsThatClientsReport) {
  const auto gets = [](const std::string& server) {
    const ProgramResult stat =
        Bare({"--server=" + server, "stat", "--json", "-r", "1", "-i", "10ms"});
    return Json::parse(stat.out)["get/s"];
  };
  Put("reported", "x");
  EXPECT_EQ(Kvcli({"get", "reported"}).exit_status, 0);
  EXPECT_TRUE(gets(uri_).is_null());
  EXPECT_THAT(Kvcli({"stat", "-r", "1", "-i", "10ms"}).out, HasSubstr(" - "));
  absl::StatusOr<std::unique_ptr<ServerProcess>> watched =
      ServerProcess::Start(NewListenAddress(), {"--metrics=127.0.0.1:0"});
  ASSERT_TRUE(watched.ok()) << watched.status();
  // A client reports when it leaves, too.
  Bare({"--server=" + (*watched)->uri(), "get", "nothing"});
  EXPECT_TRUE(gets((*watched)->uri()).is_number());
  EXPECT_EQ((*watched)->Stop(), 0);
}

TEST_F(KvcliTest, BigKeysPrintsTheLongestAndHowTheyAreStored) {
  Kvcli({"flush"});
  Put("small", "s");
  Put("middle", std::string(5000, 'm'));
  Put("long", std::string(400'000, 'l'));
  Put(std::string(300, 'k'), "v");
  const ProgramResult plain = Kvcli({"bigkeys", "--top=2"});
  ASSERT_EQ(plain.exit_status, 0) << plain.err;
  EXPECT_EQ(plain.out,
            absl::StrCat("value\t400000\t4\tlong\nvalue\t5000\t6\tmiddle\n", "key\t1\t300\t",
                         std::string(300, 'k'), "\nkey\t5000\t6\tmiddle\n",
                         "storage\tinline\t1\t5\t1\t1\n", "storage\titem\t2\t306\t5001\t5000\n",
                         "storage\tpieces\t1\t4\t400000\t400000\n"));
  const ProgramResult json = Kvcli({"bigkeys", "--top=1", "--json"});
  EXPECT_EQ(Json::parse(json.out.substr(0, json.out.find('\n')))["key"], "long");
  Kvcli({"flush"});
}

TEST_F(KvcliTest, CatalogStoresAnIndexAndAnotherProcessFindsEveryByte) {
  std::string index;
  for (int i = 0; i < 500; ++i) {
    absl::StrAppend(&index, "Package: catalog-", i % 450, "\nVersion: ", i,
                    "\nDescription: ", std::string(i * 7, 'd'), "\n\n");
  }
  const std::string path = WriteFile("index", index);
  const auto catalog = [&](const char* mode) {
    return RunProgram({"tools/quickstart.d/catalog", mode, path, absl::StrCat("--server=", uri_),
                       "--samples=50"});
  };
  EXPECT_EQ(catalog("verify").exit_status, 1);  // the store is empty

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
