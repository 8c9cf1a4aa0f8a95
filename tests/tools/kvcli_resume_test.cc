// Interrupted exports and imports: each says how to go on, and then nothing is lost.

#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/time/clock.h"
#include "client/client.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/pty_process.h"
#include "tests/support/subprocess.h"
#include "tests/tools/kvcli_bulk_fixture.h"

namespace osprey {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::MatchesRegex;
using ::testing::Not;

TEST_F(KvcliBulkTest, AnInterruptedImportPrintsTheCommandThatContinues) {
  SKIP_IN_LAB();
  Fill(3000, 0);
  const std::string path = Path("all.bin");
  ASSERT_EQ(Kvcli({"export", path}).exit_status, 0);
  ASSERT_EQ(Kvcli({"flush"}).exit_status, 0);
  // Through a pipe that stays open. The rest does not arrive before the interrupt.
  const std::string bytes = Contents(path);
  std::ofstream(Path("part"), std::ios::binary) << bytes.substr(0, bytes.size() / 2);
  std::vector<std::string> command = Command({"import", "-"});
  std::string line;
  for (const std::string& word : command) absl::StrAppend(&line, " ", word);
  auto started =
      PtyProcess::Start({"bash", "-c", absl::StrCat("(cat ", Path("part"), "; sleep 30) |", line)});
  ASSERT_TRUE(started.ok()) << started.status();
  PtyProcess& process = **started;
  ASSERT_TRUE(process.Await("records  ")) << process.screen();  // the progress
  AwaitCount(1000);
  process.Type("\x03");
  ASSERT_TRUE(process.Await("go on with the same input and --skip=")) << process.screen();
  ASSERT_TRUE(process.Await("\r\n"));
  const std::string& screen = process.screen();
  const std::string skip = screen.substr(screen.rfind("--skip=") + 7);
  const int skipped = std::atoi(skip.c_str());
  EXPECT_GT(skipped, 1000);
  EXPECT_LT(skipped, 3000);
  EXPECT_EQ(client_->Count().value(), static_cast<uint64_t>(skipped));
  const ProgramResult rest = Kvcli({"import", path, absl::StrCat("--skip=", skipped)});
  EXPECT_EQ(rest.exit_status, 0) << rest.err;
  ExpectAllThere();
}

TEST_F(KvcliBulkTest, AServerThatIsStartedAgainInMidImportIsSaidToNeedAllOfIt) {
  SKIP_IN_LAB();
  std::string text;
  for (int i = 0; i < 1000; ++i) absl::StrAppend(&text, "{\"key\":\"k", i, "\",\"value\":\"v\"}\n");
  std::ofstream(Path("part")) << text;
  std::ofstream(Path("rest")) << text;
  std::string line;
  for (const std::string& word : Command({"import", "-"})) absl::StrAppend(&line, " ", word);
  auto started = PtyProcess::Start(
      {"bash", "-c",
       absl::StrCat("(cat ", Path("part"), "; for i in {1..400}; do sleep 0.05; [ -e ", Path("go"),
                    " ] && break; done; cat ", Path("rest"), ") |", line)});
  ASSERT_TRUE(started.ok()) << started.status();
  AwaitCount(1000);
  ASSERT_EQ(client_->Count().value(), 1000u) << "all that has come is stored, though more may come";
  const std::string uri = server_->uri();
  ASSERT_EQ(server_->Stop(), 0);
  StartServer(uri);
  std::ofstream(Path("go")) << "go";
  EXPECT_TRUE((*started)->Await("began empty: import all of it once more")) << (*started)->screen();
  EXPECT_EQ((*started)->AwaitEnd(), 4);
  EXPECT_THAT((*started)->screen(), Not(HasSubstr("--skip")));
}

TEST_F(KvcliBulkTest, InterruptedExportLeavesNoFileAndResumesCompletely) {
  Fill(InLab() ? 1000 : kMany, 3);
  for (const char* format : kFormats) {
    const std::string path = Path(absl::StrCat("resumed.", format));
    const std::string screen =
        InterruptExport(path, {absl::StrCat("--format=", format), "--timeout=30"}, [](pid_t pid) {
          kill(pid, SIGINT);
          return 4;
        });
    EXPECT_FALSE(Exists(path));
    EXPECT_TRUE(Exists(path + ".part"));
    // Entries written after the last page before the stop are written again.
    std::ofstream(path + ".part", std::ios::binary | std::ios::app) << "half a record";
    const ProgramResult resumed = ResumeOn(screen);
    ASSERT_EQ(resumed.exit_status, 0) << resumed.err;
    ExpectTheFileIsAll(path, format);
  }
  EXPECT_EQ(Kvcli({"export", Path("never"), "--resume"}).exit_status, 2);
}

// Only the state saved once a second is left.
TEST_F(KvcliBulkTest, KilledExportResumesAndIsComplete) {
  SKIP_IN_LAB();
  Fill(kMany, 3);
  for (const char* format : kFormats) {
    const std::string path = Path(absl::StrCat("killed.", format));
    InterruptExport(path, {absl::StrCat("--format=", format)}, [&](pid_t pid) {
      // It saves its state at the first page that ends a second later.
      kill(pid, SIGSTOP);
      absl::SleepFor(absl::Milliseconds(1100));
      kill(pid, SIGCONT);
      AwaitFile(path + ".part.state", path);
      kill(pid, SIGKILL);
      return 128 + SIGKILL;
    });
    EXPECT_FALSE(Exists(path));
    const ProgramResult resumed = Kvcli({"export", path, "--resume"});
    ASSERT_EQ(resumed.exit_status, 0) << resumed.err;
    ExpectTheFileIsAll(path, format);
  }
}

TEST_F(KvcliBulkTest, AnInterruptedImportOfAFileGoesOnByTheLineThatItPrints) {
  SKIP_IN_LAB();
  Fill(kMany, 0);
  // Its name does not show its format, and a shell would misread it.
  const std::string path = Path("it's 50% of $x; true.dat");
  ASSERT_EQ(Kvcli({"export", path, "--format=csv"}).exit_status, 0);
  const std::string there = values_.begin()->first;
  const std::vector<std::string> args = {"import", path, "--format=csv", "--if-absent",
                                         "--timeout=30"};
  std::string screen;
  for (int attempt = 0; attempt < kAttemptsMax && screen.empty(); ++attempt) {
    ASSERT_EQ(Kvcli({"flush"}).exit_status, 0);
    ASSERT_TRUE(client_->Put(there, "older").ok());
    auto import = PtyProcess::Start(Command(args));
    ASSERT_TRUE(import.ok()) << import.status();
    AwaitCount(1000);
    kill((*import)->pid(), SIGINT);
    if ((*import)->AwaitEnd() == 4) screen = (*import)->screen();
  }
  ASSERT_THAT(screen, HasSubstr("interrupted"));
  ASSERT_LT(client_->Count().value(), values_.size());
  const ProgramResult rest = ResumeOn(screen);
  EXPECT_EQ(rest.exit_status, 0) << rest.err;
  values_[there] = "older";
  expiring_.erase(there);
  ExpectAllThere();
}

TEST_F(KvcliBulkTest, AnImportThatLosesItsServerContinuesByThePrintedLine) {
  SKIP_IN_LAB();
  Fill(kMany, 0);
  const std::string path = Path("all.jsonl");
  ASSERT_EQ(Kvcli({"export", path}).exit_status, 0);
  std::string screen;
  for (int attempt = 0; attempt < kAttemptsMax && screen.empty(); ++attempt) {
    ASSERT_EQ(Kvcli({"flush"}).exit_status, 0);
    auto import = PtyProcess::Start(Command({"import", path, "--timeout=2"}));
    ASSERT_TRUE(import.ok()) << import.status();
    AwaitCount(1000);
    kill(server_->pid(), SIGSTOP);
    const int status = (*import)->AwaitEnd();
    kill(server_->pid(), SIGCONT);
    if (status == 4) screen = (*import)->screen();
  }
  ASSERT_THAT(screen, HasSubstr("unless the server was started again"));
  ASSERT_LT(client_->Count().value(), values_.size());
  EXPECT_GE(std::atoi(screen.substr(screen.rfind("--skip=") + 7).c_str()), 500);
  const ProgramResult rest =
      ResumeOn(absl::StrReplaceAll(screen, {{"--timeout=2", "--timeout=30"}}));
  EXPECT_EQ(rest.exit_status, 0) << rest.err;
  ExpectAllThere();
}

TEST_F(KvcliBulkTest, AKilledImportIsDoneOnceMore) {
  SKIP_IN_LAB();
  Fill(kMany, 0);
  const std::string path = Path("all.bin");
  ASSERT_EQ(Kvcli({"export", path}).exit_status, 0);
  int status = 0;
  for (int attempt = 0; attempt < kAttemptsMax && status != 128 + SIGKILL; ++attempt) {
    ASSERT_EQ(Kvcli({"flush"}).exit_status, 0);
    auto import = PtyProcess::Start(Command({"import", path}));
    ASSERT_TRUE(import.ok()) << import.status();
    AwaitCount(1000);
    kill((*import)->pid(), SIGKILL);
    status = (*import)->AwaitEnd();
  }
  ASSERT_EQ(status, 128 + SIGKILL) << "it was done before";
  const ProgramResult again = Kvcli({"import", path, "--if-absent", "--timeout=30"});
  EXPECT_EQ(again.exit_status, 0) << again.err;
  EXPECT_THAT(again.out, Not(HasSubstr("present=0 "))) << "the kill came after some were stored";
  ExpectAllThere();
}

// A file system of 1 MiB, in its own mount namespace.
TEST_F(KvcliBulkTest, ExportThatFilledTheDiskResumesOnceSpaceIsFree) {
  SKIP_IN_LAB();
  if (RunProgram({"unshare", "-rm", "true"}).exit_status != 0)
    GTEST_SKIP() << "no mount namespaces here";
  Fill(20'000, 0);
  ASSERT_EQ(mkdir(Path("disk").c_str(), 0700), 0);
  for (const char* format : kFormats) {
    std::string kvcli;
    for (const std::string& word : Command({})) absl::StrAppend(&kvcli, word, " ");
    const ProgramResult result = RunProgram(
        {"unshare", "-rm", "bash", "-c",
         absl::StrCat("disk=", Path("disk"), "; mount -t tmpfs -o size=1M none $disk || exit 99\n",
                      kvcli, "export $disk/all --format=", format, " 2> $disk/../err; status=$?\n",
                      "cat $disk/../err; [ $status = 4 ] && [ ! -e $disk/all ] || exit 98\n",
                      "mount -o remount,size=64M $disk\nPATH=$PWD/tools:$PATH\n",
                      "eval \"$(sed 's/.*go on with: //' $disk/../err)\" || exit 97\n",
                      "[ \"$(ls $disk)\" = all ] || exit 96\ncp $disk/all $disk/../all")});
    ASSERT_EQ(result.exit_status, 0) << result.out << result.err;
    EXPECT_THAT(result.out, AllOf(HasSubstr("No space left on device"), HasSubstr("make room; ")));
    ExpectTheFileIsAll(Path("all"), format);
  }
}

TEST_F(KvcliBulkTest, AnExportGoesOnWithNothingButAFileOfItsOwn) {
  SKIP_IN_LAB();
  const std::string path = Path("all");
  const auto expect_refused = [&](const std::string& why) {
    const ProgramResult resumed = Kvcli({"export", path, "--resume"});
    EXPECT_EQ(resumed.exit_status, 4);
    EXPECT_THAT(resumed.err, AllOf(MatchesRegex("kvcli: [^\n]+\n"), HasSubstr(why),
                                   HasSubstr("remove it, or write another name")));
    EXPECT_EQ(Contents(Path("precious")), "precious");
  };
  std::ofstream(Path("precious")) << "precious";
  const std::string state =
      R"({"format":"jsonl","prefix_hex":"","cursor":"c0ffee","records":1,"bytes":1})";
  std::ofstream(path + ".part.state") << state;
  ASSERT_EQ(link(Path("precious").c_str(), (path + ".part").c_str()), 0);
  expect_refused(".part has 2 names");
  unlink((path + ".part").c_str());
  ASSERT_EQ(symlink(Path("precious").c_str(), (path + ".part").c_str()), 0);
  expect_refused(".part is no regular file");
  unlink((path + ".part.state").c_str());
  std::ofstream(Path("state")) << state;
  ASSERT_EQ(symlink(Path("state").c_str(), (path + ".part.state").c_str()), 0);
  expect_refused(".part.state is no regular file");
  // Nor does it take the place of something that is no file.
  ASSERT_EQ(symlink(Path("precious").c_str(), path.c_str()), 0);
  const ProgramResult exported = Kvcli({"export", path});
  EXPECT_EQ(exported.exit_status, 4);
  EXPECT_THAT(exported.err, HasSubstr("all is no regular file; remove it, or write another name"));
}

TEST_F(KvcliBulkTest, ResumedExportFailsWithAFixAfterServerRestart) {
  SKIP_IN_LAB();
  Fill(50, 0);
  const std::string path = Path("stale");
  std::ofstream(path + ".part") << "x";
  std::ofstream(path + ".part.state")
      << R"({"format":"jsonl","prefix_hex":"","cursor":"00000000000000070000000010001","records":1,"bytes":1})";
  const ProgramResult resumed = Kvcli({"export", path, "--resume"});
  EXPECT_EQ(resumed.exit_status, 4);
  EXPECT_THAT(resumed.err, AllOf(MatchesRegex("kvcli: [^\n]+\n"), HasSubstr("was started again"),
                                 HasSubstr("without --resume")));
  EXPECT_FALSE(Exists(path));
}

}  // namespace
}  // namespace osprey
