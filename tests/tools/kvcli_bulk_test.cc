// Export and import as scripts use them. Nothing is lost or changed in a round trip, an interrupted
// run can be resumed, and an export uses no CPU of the server.

#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "client/client.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tests/support/pty_process.h"
#include "tests/support/subprocess.h"
#include "tests/support/volume.h"
#include "tests/tools/kvcli_fixture.h"

namespace osprey {
namespace {

using Json = nlohmann::json;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::MatchesRegex;
using ::testing::Not;

constexpr const char* kFormats[] = {"jsonl", "csv", "binary"};
// So many that a signal usually arrives before the end.
constexpr int kMany = 30'000 / kVolumeParts;
// The attempts with a signal that may arrive too late.
constexpr int kAttemptsMax = 20;

bool Exists(const std::string& path) { return std::ifstream(path).is_open(); }

// Tests of files alone would give the same results there, more slowly.
#define SKIP_IN_LAB() \
  if (InLab()) GTEST_SKIP() << "nothing in it has to do with RDMA"

class KvcliBulkTest : public KvcliOwnServerTest {
 protected:
  void SetUp() override {
    StartServer(NewListenAddress(), {"--memory=512MiB"});
    Options options;
    options.deadline = absl::Seconds(30);
    absl::StatusOr<std::unique_ptr<Client>> client = Client::Connect(server_->uri(), options);
    ASSERT_TRUE(client.ok()) << client.status();
    client_ = *std::move(client);
  }

  // Random keys and values of any bytes; some values are empty, some have 1 MiB, some keys expire.
  void Fill(int keys, int megabytes) {
    std::mt19937_64 random(29);
    const auto bytes = [&](size_t length) {
      std::string text(length, '\0');
      for (char& c : text) c = static_cast<char>(random());
      return text;
    };
    for (int i = 0; i < keys; ++i) {
      const size_t length = i < megabytes ? 1 << 20 : i % 10 == 0 ? 0 : random() % 200;
      // Some are text, so that both encodings occur.
      values_[absl::StrCat(i, i % 3 == 0 ? "," : bytes(random() % 20))] =
          i % 4 == 0 ? std::string(length, "x\n\",\\"[i % 5]) : bytes(length);
    }
    std::vector<KeyValue> items, expiring;
    int number = 0;
    for (const auto& [key, value] : values_)
      (number++ % 5 == 0 ? expiring : items).push_back({key, value});
    for (const KeyValue& item : expiring) expiring_[std::string(item.key)] = true;
    WriteOptions options;
    for (const auto& version : client_->MultiPut(items, options))
      ASSERT_TRUE(version.ok()) << version.status();
    options.ttl = absl::Hours(10);
    for (const auto& version : client_->MultiPut(expiring, options))
      ASSERT_TRUE(version.ok()) << version.status();
  }

  void ExpectAllThere() {
    std::map<std::string, bool> found;
    ScanOptions options;
    options.values = true;
    std::string cursor;
    do {
      const absl::StatusOr<ScanPage> page = client_->Scan(cursor, options);
      ASSERT_TRUE(page.ok()) << page.status();
      for (const ScanItem& item : page->items) {
        found[item.key] = true;
        const auto value = values_.find(item.key);
        ASSERT_NE(value, values_.end()) << item.key;
        ASSERT_TRUE(value->second == item.value) << item.key;
        if (expiring_.count(item.key) > 0) {
          ASSERT_LE(item.ttl, absl::Hours(10));
          ASSERT_GT(item.ttl, absl::Hours(9));
        } else {
          ASSERT_EQ(item.ttl, absl::InfiniteDuration());
        }
      }
      cursor = page->cursor;
    } while (!cursor.empty());
    EXPECT_EQ(found.size(), values_.size());
  }

  // Waits until the import under way has stored so much, or some time has passed.
  void AwaitCount(uint64_t keys) {
    const absl::Time end = absl::Now() + absl::Seconds(20);
    while (client_->Count().value_or(0) < keys && absl::Now() < end)
      absl::SleepFor(absl::Milliseconds(1));
  }
  // Waits until one of them exists.
  static void AwaitFile(const std::string& path, const std::string& other) {
    const absl::Time end = absl::Now() + absl::Seconds(20);
    while (!Exists(path) && !Exists(other) && absl::Now() < end)
      absl::SleepFor(absl::Milliseconds(1));
  }

  // Calls `interrupt` with the process of an export that has begun, until one was in time. Returns
  // the terminal's output of that one. `interrupt` returns the exit status if it was in time.
  template <typename Interrupt>
  std::string InterruptExport(const std::string& path, const std::vector<std::string>& flags,
                              Interrupt interrupt) {
    std::vector<std::string> args = {"export", path};
    args.insert(args.end(), flags.begin(), flags.end());
    for (int attempt = 0; attempt < kAttemptsMax; ++attempt) {
      std::remove(path.c_str());
      auto started = PtyProcess::Start(Command(args));
      if (!started.ok()) break;
      AwaitFile(path + ".part", path);
      const int wanted = interrupt((*started)->pid());
      if ((*started)->AwaitEnd() == wanted && Exists(path + ".part.state"))
        return (*started)->screen();
    }
    ADD_FAILURE() << path << " was always complete before it could be interrupted";
    return "";
  }

  // Runs in a shell the command that a terminal shows after "go on with: ".
  static ProgramResult ResumeOn(const std::string& screen) {
    const std::string told = "go on with: ";
    const size_t at = screen.rfind(told);
    EXPECT_NE(at, screen.npos) << screen;
    if (at == screen.npos) return {};
    const std::string line = screen.substr(at + told.size());
    return RunProgram({"bash", "-c", "PATH=$PWD/tools:$PATH; eval \"$1\"", "bash",
                       line.substr(0, line.find_first_of("\r\n"))});
  }

  void ExpectTheFileIsAll(const std::string& path, const std::string& format) {
    EXPECT_FALSE(Exists(path + ".part"));
    EXPECT_FALSE(Exists(path + ".part.state"));
    ASSERT_EQ(Kvcli({"flush"}).exit_status, 0);
    const ProgramResult imported = Kvcli({"import", path, "--format=" + format, "--timeout=30"});
    ASSERT_EQ(imported.exit_status, 0) << imported.err;
    ExpectAllThere();
  }

  std::string Stat(absl::string_view name) {
    return StatIn(client_->ServerStats().value_or(""), name);
  }

  std::unique_ptr<Client> client_;
  std::map<std::string, std::string> values_;
  std::map<std::string, bool> expiring_;
};

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

TEST_F(KvcliBulkTest, AnInterruptedImportTellsHowToGoOnAndThenAllIsThere) {
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

TEST_F(KvcliBulkTest, AnImportThatLosesItsServerForAWhileGoesOnByTheLineThatItPrints) {
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

TEST_F(KvcliBulkTest, AnExportThatCannotBeWrittenIsSaidAndNothingStandsUnderItsName) {
  SKIP_IN_LAB();
  Fill(100, 0);
  ProgramOptions options;
  options.out_file = "/dev/full";
  const ProgramResult full = RunProgram(Command({"export", "-"}), options);
  EXPECT_EQ(full.exit_status, 4);
  EXPECT_THAT(full.err, HasSubstr("standard output cannot be written"));
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
      << R"({"format":"jsonl","prefix_hex":"","cursor":"000000000000000700000000101","records":1,"bytes":1})";
  const ProgramResult resumed = Kvcli({"export", path, "--resume"});
  EXPECT_EQ(resumed.exit_status, 4);
  EXPECT_THAT(resumed.err, AllOf(MatchesRegex("kvcli: [^\n]+\n"), HasSubstr("without --resume")));
  EXPECT_FALSE(Exists(path));
}

}  // namespace
}  // namespace osprey
