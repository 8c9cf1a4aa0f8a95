// Export and import as scripts use them. Nothing is lost or changed in a round trip, and an export
// uses no CPU of the server.

#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <fstream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "client/client.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tests/support/pty_process.h"
#include "tests/support/subprocess.h"
#include "tests/support/volume.h"
#include "tests/tools/kvcli_bulk_fixture.h"

namespace osprey {
namespace {

using Json = nlohmann::json;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::MatchesRegex;
using ::testing::Not;

TEST_F(KvcliBulkTest, WhatIsExportedAndImportedIsTheSameInEveryFormat) {
  Fill(InLab() ? 1000 : 100'000 / kVolumeParts, InLab() ? 2 : 20 / kVolumeParts);
  for (const char* format : kFormats) {
    const std::string path = Path(format);
    const std::string requests = Stat("requests");
    const ProgramResult exported = Kvcli({"export", path, absl::StrCat("--format=", format)});
    ASSERT_EQ(exported.exit_status, 0) << exported.err;
    EXPECT_THAT(exported.out, HasSubstr(absl::StrCat("records=", values_.size())));
    EXPECT_EQ(Stat("requests"), requests) << "an export is READs alone";
    EXPECT_FALSE(Exists(path + ".part"));
    EXPECT_FALSE(Exists(path + ".part.state"));
    ASSERT_EQ(Kvcli({"flush"}).exit_status, 0);
    ASSERT_EQ(client_->Count().value(), 0u);
    const uint64_t batched = std::stoull(Stat("batched_requests"));
    const ProgramResult imported = Kvcli({"import", path, absl::StrCat("--format=", format)});
    EXPECT_EQ(imported.exit_status, 0) << imported.err;
    EXPECT_THAT(imported.out,
                HasSubstr(absl::StrCat("stored=", values_.size(), " present=0 errors=0")));
    EXPECT_GT(std::stoull(Stat("batched_requests")), batched) << "many are in flight at once";
    ExpectAllThere();
  }
}

TEST_F(KvcliBulkTest, PipesTakeAndGiveWhatFilesDo) {
  Fill(300, 1);
  for (const char* format : InLab() ? std::vector<const char*>{"binary"}
                                    : std::vector<const char*>(kFormats, kFormats + 3)) {
    const std::string flag = absl::StrCat("--format=", format);
    const ProgramResult exported = Kvcli({"export", "-", flag});
    ASSERT_EQ(exported.exit_status, 0) << exported.err;
    EXPECT_THAT(exported.err, HasSubstr("exported 300 records"));
    ASSERT_EQ(Kvcli({"flush"}).exit_status, 0);
    const ProgramResult imported = Kvcli({"import", "-", flag}, exported.out);
    EXPECT_EQ(imported.exit_status, 0) << imported.err;
    ExpectAllThere();
  }
}

TEST_F(KvcliBulkTest, APrefixIsExportedAlone) {
  SKIP_IN_LAB();
  Kvcli({"mput", "a/1", "x", "a/2", "y", "b/1", "z"});
  const ProgramResult exported = Kvcli({"export", "-", "--prefix=a/"});
  EXPECT_THAT(exported.out, AllOf(HasSubstr("a/1"), HasSubstr("a/2"), Not(HasSubstr("b/1"))));
}

TEST_F(KvcliBulkTest, TheLaterOfTwoRecordsOfAKeyStays) {
  SKIP_IN_LAB();
  std::string text;
  for (int i = 0; i < 3000; ++i)
    absl::StrAppend(&text, "{\"key\":\"k", i % 3, "\",\"value\":\"", i, "\"}\n");
  ASSERT_EQ(Kvcli({"import", "-"}, text).exit_status, 0);
  EXPECT_EQ(Kvcli({"mget", "k0", "k1", "k2"}).out, "k0\t2997\nk1\t2998\nk2\t2999\n");
}

TEST_F(KvcliBulkTest, IfAbsentLeavesWhatIsThere) {
  SKIP_IN_LAB();
  Kvcli({"put", "b", "old"});
  const ProgramResult imported =
      Kvcli({"import", "-", "--if-absent", "--format=csv"}, "key,value\na,new\nb,new\n");
  EXPECT_EQ(imported.exit_status, 0) << imported.err;
  EXPECT_EQ(imported.out, "records=2 stored=1 present=1 errors=0\n");
  EXPECT_EQ(Kvcli({"mget", "a", "b"}).out, "a\tnew\nb\told\n");
}

TEST_F(KvcliBulkTest, ErrorsAreCountedListedWithTheirLinesAndDoNotStopTheRest) {
  SKIP_IN_LAB();
  std::string text;
  for (int i = 0; i < 20; ++i)
    absl::StrAppend(&text, "{\"key\":\"k", i, "\",\"value\":\"v\"}\nnonsense ", i, "\n");
  absl::StrAppend(&text, "{\"key\":\"\",\"value\":\"v\"}\n");
  const ProgramResult imported = Kvcli({"import", "-"}, text);
  EXPECT_EQ(imported.exit_status, 4);
  EXPECT_EQ(imported.out, "records=41 stored=20 present=0 errors=21\n");
  const std::vector<std::string> lines = absl::StrSplit(imported.err, '\n', absl::SkipEmpty());
  ASSERT_EQ(lines.size(), 11u) << imported.err;
  EXPECT_THAT(lines[0], HasSubstr("line 2: it is no JSON object"));
  EXPECT_THAT(lines[9], HasSubstr("line 20: "));
  EXPECT_THAT(lines[10], HasSubstr("21 records failed; the first 10 are listed"));
  const Json json =
      Json::parse(Kvcli({"import", "-", "--json"}, "{\"key\":\"\",\"value\":\"v\"}\n").out);
  EXPECT_EQ(json["errors"], 1);
  EXPECT_EQ(json["errors_listed"][0]["place"], "line 1");
  EXPECT_EQ(json["errors_listed"][0]["error"], "INVALID_ARGUMENT");
}

TEST_F(KvcliBulkTest, AFullServerIsSaidAndKeepsWhatItHas) {
  SKIP_IN_LAB();
  StartServer(NewListenAddress(), {"--memory=8MiB"});
  std::string text = "key,value\n";
  for (int i = 0; i < 200; ++i) absl::StrAppend(&text, i, ",", std::string(100'000, 'v'), "\n");
  const ProgramResult imported = Kvcli({"import", "-", "--format=csv"}, text);
  EXPECT_EQ(imported.exit_status, 4);
  EXPECT_THAT(imported.err, HasSubstr("--memory"));
  EXPECT_NE(Kvcli({"count"}).out, "0\n");
}

TEST_F(KvcliBulkTest, SkippedRecordsAreNotStored) {
  SKIP_IN_LAB();
  const ProgramResult imported =
      Kvcli({"import", "-", "--format=csv", "--skip=2"}, "key,value\na,1\nb,2\nc,3\n");
  EXPECT_EQ(imported.exit_status, 0) << imported.err;
  EXPECT_EQ(Kvcli({"scan"}).out, "c\n");
}

TEST_F(KvcliBulkTest, ADamagedBinaryFileIsNotImportedBeyondTheDamage) {
  SKIP_IN_LAB();
  Fill(100, 0);
  const std::string path = Path("export.bin");
  ASSERT_EQ(Kvcli({"export", path}).exit_status, 0);
  std::string bytes = Contents(path);
  ASSERT_EQ(bytes.substr(0, 8), "OSPREYKV");
  bytes[bytes.size() - 200] ^= 1;
  std::ofstream(path, std::ios::binary) << bytes;
  // Detected by its first bytes, whatever its name.
  ASSERT_EQ(std::rename(path.c_str(), Path("export").c_str()), 0);
  const ProgramResult imported = Kvcli({"import", Path("export")});
  EXPECT_EQ(imported.exit_status, 4);
  EXPECT_THAT(imported.err, MatchesRegex("kvcli: import [^\n]*(damaged|cut off)[^\n]*\n"));
}

TEST_F(KvcliBulkTest, APipeThatPausesLosesNothing) {
  SKIP_IN_LAB();
  std::string line;
  for (const std::string& word : Command({"--timeout=1", "import", "-"}))
    absl::StrAppend(&line, " ", word);
  const ProgramResult imported =
      RunProgram({"bash", "-c",
                  absl::StrCat("(echo '{\"key\":\"a\",\"value\":\"1\"}'; sleep 2; echo "
                               "'{\"key\":\"b\",\"value\":\"2\"}') |",
                               line)});
  EXPECT_EQ(imported.exit_status, 0) << imported.err;
  EXPECT_EQ(imported.out, "records=2 stored=2 present=0 errors=0\n");
}

TEST_F(KvcliBulkTest, AnEmptyFileHasNoRecordsAndAFolderIsNoFile) {
  SKIP_IN_LAB();
  std::ofstream(Path("empty.csv")).flush();
  const ProgramResult empty = Kvcli({"import", Path("empty.csv"), "--format=jsonl"});
  EXPECT_EQ(empty.exit_status, 0) << empty.err;
  EXPECT_EQ(empty.out, "records=0 stored=0 present=0 errors=0\n");
  for (const auto& [format, why] :
       {std::pair("csv", "line that names the columns"), std::pair("binary", "binary")}) {
    const ProgramResult none =
        Kvcli({"import", Path("empty.csv"), absl::StrCat("--format=", format)});
    EXPECT_EQ(none.exit_status, 4);
    EXPECT_THAT(none.err, AllOf(MatchesRegex("kvcli: [^\n]+\n"), HasSubstr(why)));
  }
  const ProgramResult folder = Kvcli({"import", directory_});
  EXPECT_EQ(folder.exit_status, 4);
  EXPECT_THAT(folder.err,
              AllOf(MatchesRegex("kvcli: [^\n]+\n"), HasSubstr("cannot be read: it is a folder")));
}

TEST_F(KvcliBulkTest, AnExportThatFailsIsReportedAndLeavesNoFile) {
  SKIP_IN_LAB();
  Fill(100, 0);
  ProgramOptions options;
  options.out_file = "/dev/full";
  const ProgramResult full = RunProgram(Command({"export", "-"}), options);
  EXPECT_EQ(full.exit_status, 4);
  EXPECT_THAT(full.err, HasSubstr("standard output cannot be written"));
}

TEST_F(KvcliBulkTest, AnExportThatFillsTheDiskWithItsFirstPageLeavesNothing) {
  SKIP_IN_LAB();
  if (RunProgram({"unshare", "-rm", "true"}).exit_status != 0)
    GTEST_SKIP() << "no mount namespaces here";
  Fill(20'000, 0);
  ASSERT_EQ(mkdir(Path("disk").c_str(), 0700), 0);
  std::string kvcli;
  for (const std::string& word : Command({})) absl::StrAppend(&kvcli, word, " ");
  const ProgramResult result = RunProgram(
      {"unshare", "-rm", "bash", "-c",
       absl::StrCat("disk=", Path("disk"), "; mount -t tmpfs -o size=4k none $disk || exit 99\n",
                    kvcli, "export $disk/all; [ $? = 4 ] && [ -z \"$(ls $disk)\" ]")});
  EXPECT_EQ(result.exit_status, 0) << result.out << result.err;
  EXPECT_THAT(result.err, HasSubstr("make room; export again"));
}

TEST_F(KvcliBulkTest, TheFormatIsAsTheNameEndsAndWhatNoFormatHasIsRefused) {
  SKIP_IN_LAB();
  ASSERT_EQ(Kvcli({"put", "planet", "saturn"}).exit_status, 0);
  ASSERT_EQ(Kvcli({"export", Path("X.CSV")}).exit_status, 0);
  EXPECT_THAT(Contents(Path("X.CSV")), HasSubstr("planet,saturn"));
  for (const std::string name : {"x.jsonl.gz", "x.txt"}) {
    const ProgramResult exported = Kvcli({"export", Path(name)});
    EXPECT_EQ(exported.exit_status, 2);
    EXPECT_THAT(exported.err, AllOf(MatchesRegex("kvcli: [^\n]+\n"), HasSubstr("--format=jsonl")));
    EXPECT_FALSE(Exists(Path(name)));
    std::ofstream(Path(name)) << "{\"key\":\"a\",\"value\":\"1\"}\n";
    const ProgramResult imported = Kvcli({"import", Path(name)});
    EXPECT_EQ(imported.exit_status, 2);
    EXPECT_THAT(imported.err, AllOf(MatchesRegex("kvcli: [^\n]+\n"), HasSubstr("--format=jsonl")));
  }
  // A file's contents override its name.
  ASSERT_EQ(Kvcli({"export", Path("x.dat"), "--format=binary"}).exit_status, 0);
  EXPECT_EQ(Kvcli({"import", Path("x.dat")}).exit_status, 0);
  EXPECT_EQ(Kvcli({"import", Path("x.txt"), "--format=jsonl"}).exit_status, 0);
}

TEST_F(KvcliBulkTest, AnExportWritesThroughNoLinkAndWaitsForNoFifo) {
  SKIP_IN_LAB();
  Fill(100, 0);
  std::ofstream(Path("precious")) << "precious";
  for (const char* ending : {".part", ".part.state", ".part.state.part"}) {
    const std::string path = Path(absl::StrCat("export", ending, ".bin"));
    ASSERT_EQ(symlink(Path("precious").c_str(), (path + ending).c_str()), 0);
    ASSERT_EQ(Kvcli({"export", path}).exit_status, 0);
    struct stat status = {};
    ASSERT_EQ(lstat(path.c_str(), &status), 0);
    EXPECT_EQ(status.st_mode, S_IFREG | 0600u) << ending;
    EXPECT_EQ(Contents(Path("precious")), "precious") << ending;
  }
  ASSERT_EQ(mkfifo(Path("fifo.bin.part").c_str(), 0666), 0);
  auto exported = PtyProcess::Start(Command({"export", Path("fifo.bin")}));
  ASSERT_TRUE(exported.ok()) << exported.status();
  EXPECT_EQ((*exported)->AwaitEnd(), 0) << (*exported)->screen();
  ExpectTheFileIsAll(Path("fifo.bin"), "binary");
}

}  // namespace
}  // namespace osprey
