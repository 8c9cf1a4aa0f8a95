// kvcli log verify, log dump and backup, on data directories that tests/tools/write_data_directory
// makes.

#include <signal.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tests/support/pty_process.h"
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

constexpr char kWriter[] = "tests/tools/write_data_directory";

class KvcliBackupTest : public ::testing::Test {
 protected:
  KvcliBackupTest() : path_(NewTemporaryDirectory()) {}

  std::string Path(const std::string& name) const { return absl::StrCat(path_, "/", name); }
  static void Write(const std::string& directory, int records) {
    const ProgramResult result = RunProgram({kWriter, directory, absl::StrCat(records)});
    ASSERT_EQ(result.exit_status, 0) << result.err;
  }
  static std::map<std::string, std::string> FilesOf(const std::string& directory) {
    std::map<std::string, std::string> files;
    for (const auto& entry : std::filesystem::directory_iterator(directory))
      files[entry.path().filename()] = Contents(entry.path());
    return files;
  }
  static Json Verified(const std::string& directory) {
    const ProgramResult result = RunKvcli({"log", "verify", directory, "--json"});
    EXPECT_EQ(result.exit_status, 0) << result.err;
    return Json::parse(result.out, nullptr, false);
  }
  static ProgramResult BackUp(const std::string& from, const std::string& to) {
    return RunKvcli({"backup", from, to});
  }
  // The number of the last "synced N".
  static uint64_t SyncedIn(const std::string& screen) {
    const std::vector<std::string> parts = absl::StrSplit(screen, "synced ");
    for (auto part = parts.rbegin(); part != parts.rend(); ++part) {
      uint64_t number = 0;
      const size_t end = part->find_first_of("\r\n");
      if (end != std::string::npos && absl::SimpleAtoi(part->substr(0, end), &number))
        return number;
    }
    return 0;
  }

  const std::string path_;
};

TEST_F(KvcliBackupTest, VerifyReportsWhatADirectoryHas) {
  Write(Path("data"), 90);
  const std::map<std::string, std::string> before = FilesOf(Path("data"));
  const Json json = Verified(Path("data"));
  EXPECT_THAT(json["id"].get<std::string>(),
              MatchesRegex("[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}"));
  EXPECT_EQ(json["copied_from"], "none");
  EXPECT_EQ(json["format"], 1);
  EXPECT_EQ(json["shards"], 1);
  EXPECT_EQ(json["checkpoint"], 2);
  EXPECT_EQ(json["checkpoint_parts"], 2);
  EXPECT_EQ(json["checkpoint_items"], 60);
  EXPECT_EQ(json["redo_record"], 61);
  EXPECT_GE(json["segments"], 1);
  EXPECT_EQ(json["entries"], 30);
  EXPECT_EQ(json["entries_put"], 30);
  EXPECT_EQ(json["entries_delete"], 0);
  EXPECT_EQ(json["last_record"], 91);
  EXPECT_EQ(json["end"], "clean");
  EXPECT_EQ(json["time_mark_ns"], 1'700'000'000'000'000'000);
  const ProgramResult plain = RunKvcli({"log", "verify", Path("data")});
  EXPECT_THAT(plain.out, HasSubstr("\nlast_record=91\n"));
  EXPECT_THAT(plain.err, IsEmpty());
  EXPECT_EQ(FilesOf(Path("data")), before);
}

TEST_F(KvcliBackupTest, VerifyCreatesNothing) {
  Write(Path("data"), 10);
  std::filesystem::remove(Path("data/LOCK"));
  const std::map<std::string, std::string> before = FilesOf(Path("data"));
  Verified(Path("data"));
  EXPECT_EQ(RunKvcli({"log", "dump", Path("data")}).exit_status, 0);
  EXPECT_EQ(FilesOf(Path("data")), before);
}

TEST_F(KvcliBackupTest, DamageIsStatusFourAndNamesFileAndOffset) {
  Write(Path("data"), 60);
  for (const auto& [name, bytes] : FilesOf(Path("data"))) {
    if (name == "LOCK") continue;
    const std::string path = Path("data/" + name);
    // The unit tests try all bits.
    std::string damaged = bytes;
    damaged[20] ^= 4;
    std::ofstream(path, std::ios::binary) << damaged;
    const ProgramResult result = RunKvcli({"log", "verify", Path("data")});
    ExpectFailure(result, 4, path);
    EXPECT_THAT(result.err, HasSubstr(", offset "));
    std::filesystem::remove(path);
    ExpectFailure(RunKvcli({"log", "verify", Path("data")}), 4, path);
    std::ofstream(path, std::ios::binary) << bytes;
  }
  EXPECT_EQ(RunKvcli({"log", "verify", Path("data")}).exit_status, 0);
  const ProgramResult json = RunKvcli({"log", "verify", Path("absent"), "--json"});
  EXPECT_EQ(json.exit_status, 4);
  EXPECT_TRUE(Json::parse(json.out, nullptr, false).contains("error")) << json.out;
}

TEST_F(KvcliBackupTest, OtherThanDataDirectoriesAreStatusFour) {
  std::filesystem::create_directory(Path("empty"));
  std::ofstream(Path("file")) << "x";
  for (const char* command : {"verify", "dump"}) {
    ExpectFailure(RunKvcli({"log", command, Path("empty")}), 4, "is no data directory");
    ExpectFailure(RunKvcli({"log", command, Path("file")}), 4, "Not a directory");
    ExpectFailure(RunKvcli({"log", command, Path("absent")}), 4, "No such file");
  }
  EXPECT_THAT(FilesOf(Path("empty")), IsEmpty());
  ASSERT_EQ(mkfifo(Path("empty/FORMAT").c_str(), 0600), 0);
  ExpectFailure(RunKvcli({"log", "verify", Path("empty")}), 4, "FORMAT is not a regular file");
  ExpectFailure(RunKvcli({"log", "verify", ""}), 2, "DIR is empty");
  ExpectFailure(RunKvcli({"log", "prune", Path("empty")}), 2, "'log prune'");
  ExpectFailure(RunKvcli({"log", "verify"}), 2, "log verify|dump DIR");
}

TEST_F(KvcliBackupTest, DumpPrintsALineAnEntry) {
  Write(Path("data"), 30);
  const ProgramResult plain = RunKvcli({"log", "dump", Path("data")});
  ASSERT_EQ(plain.exit_status, 0) << plain.err;
  const std::vector<std::string> lines = absl::StrSplit(plain.out, '\n', absl::SkipEmpty());
  ASSERT_EQ(lines.size(), 10u);
  EXPECT_EQ(lines[0], "21\t0\tput\tkey\\t21\t21\t0\t21\t0\t0");
  const ProgramResult json = RunKvcli({"log", "dump", Path("data"), "--json"});
  const std::vector<std::string> objects = absl::StrSplit(json.out, '\n', absl::SkipEmpty());
  ASSERT_EQ(objects.size(), 10u);
  const Json last = Json::parse(objects[9], nullptr, false);
  EXPECT_EQ(last["record"], 30);
  EXPECT_EQ(last["kind"], "put");
  EXPECT_EQ(last["key"], "key\t30");
  EXPECT_EQ(last["value_bytes"], 30);
}

TEST_F(KvcliBackupTest, DumpEndsWithItsReader) {
  Write(Path("data"), 9000);
  const ProgramResult result = RunProgram(
      {"bash", "-c",
       absl::StrCat("tools/kvcli log dump ", Path("data"), " | head -1; echo ${PIPESTATUS[0]}")});
  EXPECT_THAT(result.out, HasSubstr("6001\t0\tput\t"));
  EXPECT_THAT(result.out, Not(HasSubstr("\n0\n")));
}

TEST_F(KvcliBackupTest, BackupIsAValidDirectoryOfItsOwn) {
  Write(Path("data"), 90);
  ProgramResult result = BackUp(Path("data"), Path("copy"));
  ASSERT_EQ(result.exit_status, 0) << result.err;
  EXPECT_THAT(result.out, AllOf(HasSubstr("last_record=91 checkpoint=2 parts_linked=2"),
                                HasSubstr("parts_copied=0")));
  const Json origin = Verified(Path("data")), copy = Verified(Path("copy"));
  EXPECT_EQ(copy["copied_from"], origin["id"]);
  EXPECT_NE(copy["id"], origin["id"]);
  for (const char* field : {"checkpoint_items", "checkpoint_bytes", "redo_record", "last_record",
                            "entries_put", "end", "time_mark_ns"}) {
    EXPECT_EQ(copy[field], origin[field]) << field;
  }
  EXPECT_EQ(RunKvcli({"log", "dump", Path("copy")}).out,
            RunKvcli({"log", "dump", Path("data")}).out);
  // Nothing is new.
  result = BackUp(Path("data"), Path("copy"));
  EXPECT_THAT(result.out, AllOf(HasSubstr("parts_linked=0"), HasSubstr("parts_kept=2"),
                                HasSubstr("segments_copied=0"), HasSubstr("bytes_copied=0")));
  // A copy of the copy, then a server of the copy.
  EXPECT_EQ(BackUp(Path("copy"), Path("second")).exit_status, 0);
  EXPECT_EQ(Verified(Path("second"))["copied_from"], copy["id"]);
  Write(Path("second"), 30);
  EXPECT_EQ(Verified(Path("second"))["checkpoint_items"], 110);
  ExpectFailure(BackUp(Path("copy"), Path("second")), 4, "a server that has used the backup");
  EXPECT_EQ(Verified(Path("copy"))["last_record"], 91);
}

TEST_F(KvcliBackupTest, OriginThatGoesOnIsBroughtUpToDate) {
  Write(Path("data"), 30);
  ASSERT_EQ(BackUp(Path("data"), Path("copy")).exit_status, 0);
  Write(Path("data"), 60);
  const ProgramResult result = RunKvcli({"backup", Path("data"), Path("copy"), "--json"});
  ASSERT_EQ(result.exit_status, 0) << result.err;
  const Json json = Json::parse(result.out, nullptr, false);
  EXPECT_EQ(json["parts_linked"], 2);
  EXPECT_EQ(json["last_record"], 92);
  EXPECT_EQ(Verified(Path("copy"))["checkpoint_items"], 70);
  // The files of the first one are gone.
  EXPECT_FALSE(std::filesystem::exists(Path("copy/checkpoint-0000000000000002-0000")));
}

TEST_F(KvcliBackupTest, InterruptedBackupIsBegunAgain) {
  Write(Path("data"), 40);
  ASSERT_EQ(BackUp(Path("data"), Path("copy")).exit_status, 0);
  const Json before = Verified(Path("copy"));
  Write(Path("data"), 60);
  // The kernel ends it at a file of more than 8 KiB.
  const ProgramResult ended = RunProgram(
      {"bash", "-c",
       absl::StrCat("ulimit -f 8; exec tools/kvcli backup ", Path("data"), " ", Path("copy"))});
  EXPECT_NE(ended.exit_status, 0);
  EXPECT_EQ(Verified(Path("copy"))["last_record"], before["last_record"]);
  EXPECT_EQ(BackUp(Path("data"), Path("copy")).exit_status, 0);
  EXPECT_EQ(Verified(Path("copy"))["last_record"], 102);
  EXPECT_FALSE(std::filesystem::exists(Path("copy/copy.new")));
  // The first one of all.
  const ProgramResult first = RunProgram(
      {"bash", "-c",
       absl::StrCat("ulimit -f 8; exec tools/kvcli backup ", Path("data"), " ", Path("new"))});
  EXPECT_NE(first.exit_status, 0);
  ExpectFailure(RunKvcli({"log", "verify", Path("new")}), 4, "run the same kvcli backup again");
  EXPECT_EQ(BackUp(Path("data"), Path("new")).exit_status, 0);
  EXPECT_EQ(Verified(Path("new"))["last_record"], 102);
}

TEST_F(KvcliBackupTest, WrongPlacesAreRefusedAndUnchanged) {
  Write(Path("data"), 30);
  Write(Path("other"), 30);
  std::filesystem::create_directory(Path("photos"));
  std::ofstream(Path("photos/moon.jpg")) << "x";
  std::filesystem::create_directory_symlink(Path("data"), Path("link"));
  const auto before = FilesOf(Path("data")), other = FilesOf(Path("other"));
  for (const char* to : {"data", "data/", "data/copy", "data/../data/copy", "link", "link/copy"})
    ExpectFailure(BackUp(Path("data"), Path(to)), 2, "TO is FROM or lies within it");
  EXPECT_EQ(FilesOf(Path("data")), before);
  ExpectFailure(BackUp(Path("data"), Path("other")), 4, "is of another data directory");
  EXPECT_EQ(FilesOf(Path("other")), other);
  ExpectFailure(BackUp(Path("data"), Path("photos")), 4, "its directory is no backup");
  EXPECT_EQ(FilesOf(Path("photos")).size(), 1u);
  ExpectFailure(BackUp(Path("photos"), Path("new")), 4, "is no data directory");
  ExpectFailure(BackUp(Path("absent"), Path("new")), 4, "cannot open the data directory");
  EXPECT_FALSE(std::filesystem::exists(Path("new")));
  ExpectFailure(BackUp(Path("data"), Path("absent/new")), 4, "cannot make the directory");
  ExpectFailure(BackUp("", Path("new")), 2, "FROM is empty");
  ExpectFailure(BackUp(Path("data"), ""), 2, "TO is empty");
}

TEST_F(KvcliBackupTest, BackupOnAnotherFileSystemCopiesParts) {
  std::error_code error;
  const std::string to = "/dev/shm" + path_;
  std::filesystem::create_directories(to, error);
  if (error) GTEST_SKIP() << "/dev/shm cannot be written: " << error.message();
  Write(Path("data"), 30);
  const ProgramResult result = BackUp(Path("data"), to + "/copy");
  EXPECT_EQ(result.exit_status, 0) << result.err;
  const bool is_same = absl::StartsWith(path_, "/dev/shm");
  EXPECT_THAT(result.out, HasSubstr(is_same ? "parts_copied=0" : "parts_copied=2"));
  EXPECT_EQ(Verified(to + "/copy")["checkpoint_items"], 20);
  std::filesystem::remove_all(to);
}

// Another process has the directory open, and is killed in the end.
TEST_F(KvcliBackupTest, ServerMayWriteMeanwhile) {
  const std::unique_ptr<PtyProcess> writer = *PtyProcess::Start({kWriter, Path("data"), "live"});
  ASSERT_TRUE(writer->Await("synced 400"));
  for (int i = 0; i < 5; ++i) {
    ASSERT_TRUE(writer->Await("synced"));
    const uint64_t synced = SyncedIn(writer->screen());
    EXPECT_GE(Verified(Path("data"))["last_record"], synced);
    const ProgramResult dump = RunKvcli({"log", "dump", Path("data")});
    EXPECT_EQ(dump.exit_status, 0) << dump.err;
    const ProgramResult result = BackUp(Path("data"), Path("copy"));
    ASSERT_EQ(result.exit_status, 0) << result.err;
    const Json copy = Verified(Path("copy"));
    EXPECT_GE(copy["last_record"], synced);
    EXPECT_EQ(copy["checkpoint_items"].get<uint64_t>() + copy["entries"].get<uint64_t>(),
              copy["last_record"]);
  }
  kill(writer->pid(), SIGKILL);
  EXPECT_EQ(writer->AwaitEnd(), 128 + SIGKILL);
  const uint64_t synced = SyncedIn(writer->screen());
  EXPECT_GE(Verified(Path("data"))["last_record"], synced);
  ASSERT_EQ(BackUp(Path("data"), Path("copy")).exit_status, 0);
  Write(Path("copy"), 3);
  EXPECT_GE(Verified(Path("copy"))["checkpoint_items"], synced);
}

}  // namespace
}  // namespace osprey
