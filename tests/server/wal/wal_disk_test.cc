// The log on a directory of the machine: the calls of the operating system, and threads.

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "rdma/unique_fd.h"
#include "server/wal/disk/posix_file_system.h"
#include "server/wal/sync_thread.h"
#include "tests/server/wal/wal_fixture.h"
#include "tests/support/subprocess.h"

namespace osprey::server::wal {
namespace {

using ::testing::HasSubstr;

class WalDiskTest : public ::testing::Test {
 protected:
  WalDiskTest() : path_(NewTemporaryDirectory()), files_(*OpenPosixFileSystem(path_)) {}

  void Open(LogOptions options) {
    log_.reset();
    directory_.reset();
    directory_ = *DataDirectory::Open(*files_, NewDirectory(), [this] { return ++draws_ << 8; });
    KeepingVisitor visitor;
    const LogEnd end = *Replay(*directory_, visitor);
    puts_ = visitor.puts.size();
    log_ = *StartLog(*directory_, end, std::move(options));
  }

  void ExpectHeld(LockHolder holder, const std::string& message) {
    const absl::Status status = files_->Lock(holder).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_THAT(status.message(), HasSubstr(message));
  }

  uint64_t draws_ = 0;
  const std::string path_;
  const std::unique_ptr<FileSystem> files_;
  std::unique_ptr<DataDirectory> directory_;
  std::unique_ptr<Log> log_;
  size_t puts_ = 0;
};

TEST_F(WalDiskTest, FileHasWhatWasWritten) {
  std::unique_ptr<File> file = *files_->Create("f");
  EXPECT_EQ(files_->Create("f").status().code(), absl::StatusCode::kAlreadyExists);
  ASSERT_EQ(file->Write(3, {BytesOfText("lo"), BytesOfText(""), BytesOfText(" world")}),
            absl::OkStatus());
  ASSERT_EQ(file->Write(0, {BytesOfText("hel")}), absl::OkStatus());
  ASSERT_EQ(file->Sync(), absl::OkStatus());
  const AlignedBuffer buffer(2 * kDirectAlignment);
  EXPECT_EQ(*(*files_->Open("f"))->ReadPastCache(0, buffer.span()), 11u);
  EXPECT_EQ(std::string(reinterpret_cast<char*>(buffer.span().data()), 11), "hello world");
  EXPECT_EQ(*file->ReadPastCache(kDirectAlignment, buffer.span().first(kDirectAlignment)), 0u);
}

TEST_F(WalDiskTest, ManyPiecesAreWrittenWhole) {
  std::unique_ptr<File> file = *files_->Create("f");
  const std::string text(7, 'x');
  ASSERT_EQ(file->Write(0, std::vector<Bytes>(5000, BytesOfText(text))), absl::OkStatus());
  EXPECT_EQ(std::filesystem::file_size(path_ + "/f"), 35000u);
}

TEST_F(WalDiskTest, ReservedSpaceIsTheFilesUntilItIsReleased) {
  constexpr uint64_t kReserved = 1 << 20;
  const std::unique_ptr<File> file = *files_->Create("f");
  ASSERT_EQ(file->Write(0, {BytesOfText("hello")}), absl::OkStatus());
  ASSERT_EQ(file->Sync(), absl::OkStatus());
  const auto space = [this] {
    struct stat status;
    EXPECT_EQ(stat((path_ + "/f").c_str(), &status), 0);
    return uint64_t{512} * static_cast<uint64_t>(status.st_blocks);
  };
  if (const absl::Status status = file->Reserve(5, kReserved); !status.ok())
    GTEST_SKIP() << "the file system of " << path_ << " reserves nothing: " << status;
  EXPECT_GE(space(), kReserved);
  EXPECT_EQ(*files_->FileBytes("f"), 5u);
  ASSERT_EQ(file->Write(5, {BytesOfText(" world")}), absl::OkStatus());
  EXPECT_EQ(file->ReleaseReserve(), absl::OkStatus());
  EXPECT_LT(space(), kReserved);
  EXPECT_EQ(*files_->FileBytes("f"), 11u);
}

TEST_F(WalDiskTest, NamesAreListedRenamedAndRemoved) {
  ASSERT_TRUE(files_->Create("b").ok());
  ASSERT_TRUE(files_->Create("a").ok());
  EXPECT_EQ(files_->Rename("b", "c"), absl::OkStatus());
  EXPECT_EQ(*files_->List(), (std::vector<std::string>{"a", "c"}));
  EXPECT_EQ(files_->Remove("a"), absl::OkStatus());
  EXPECT_EQ(files_->SyncDirectory(), absl::OkStatus());
  const absl::Status status = files_->Remove("a");
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(status.message(), HasSubstr(path_ + "/a"));
  EXPECT_GT(*files_->FreeBytes(), 0u);
  EXPECT_THAT(OpenPosixFileSystem(path_ + "/none").status().message(),
              HasSubstr("cannot open the data directory"));
}

TEST_F(WalDiskTest, OtherKindsOfFilesAreRefused) {
  ASSERT_EQ(mkfifo((path_ + "/fifo").c_str(), 0600), 0);
  std::filesystem::create_directory(path_ + "/folder");
  for (const char* name : {"fifo", "folder"}) {
    const absl::Status status = files_->Open(name).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
    EXPECT_THAT(status.message(), HasSubstr(absl::StrCat(path_, "/", name, " is not a regular")));
  }
  EXPECT_FALSE(files_->OpenToWrite("fifo").ok());
}

TEST_F(WalDiskTest, SymbolicLinkStandsForItsFile) {
  ASSERT_EQ((*files_->Create("f"))->Write(0, {BytesOfText("hello")}), absl::OkStatus());
  std::filesystem::create_symlink("f", path_ + "/link");
  EXPECT_EQ(*files_->FileBytes("link"), 5u);
  std::filesystem::create_directory(path_ + "/folder");
  const std::unique_ptr<FileSystem> folder = *OpenPosixFileSystem(path_ + "/folder");
  ASSERT_EQ(folder->LinkFrom(*files_, "link"), absl::OkStatus());
  EXPECT_EQ(*folder->FileBytes("link"), 5u);
  std::filesystem::remove(path_ + "/f");
  EXPECT_TRUE(folder->Open("link").ok());
}

TEST_F(WalDiskTest, LockIsHeldOnce) {
  std::unique_ptr<DirectoryLock> lock = *files_->Lock(LockHolder::kServer);
  ExpectHeld(LockHolder::kServer, absl::StrCat("another server (pid ", getpid(), ") uses"));
  ExpectHeld(LockHolder::kBackup, absl::StrCat("a server (pid ", getpid(), ") uses"));
  lock.reset();
  lock = *files_->Lock(LockHolder::kBackup);
  ExpectHeld(LockHolder::kBackup, absl::StrCat("another backup (pid ", getpid(), ") uses"));
  lock.reset();
  EXPECT_TRUE(files_->Lock(LockHolder::kServer).ok());
}

TEST_F(WalDiskTest, LockHoldsWithoutItsFile) {
  const std::unique_ptr<DirectoryLock> lock = *files_->Lock(LockHolder::kServer);
  ASSERT_TRUE(std::filesystem::remove(path_ + "/LOCK"));
  ExpectHeld(LockHolder::kServer, "another process uses");
  // Nor did that one leave a file that makes room for the next.
  ExpectHeld(LockHolder::kServer, "another process uses");
  std::ofstream(path_ + "/LOCK") << "server of another kind";
  ExpectHeld(LockHolder::kServer, "another process uses");
}

// An older version locks LOCK alone.
TEST_F(WalDiskTest, LockOfAnOlderVersionCounts) {
  const rdma::UniqueFd file(open((path_ + "/LOCK").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  ASSERT_EQ(flock(file.get(), LOCK_EX | LOCK_NB), 0);
  ExpectHeld(LockHolder::kServer, "another process uses");
}

TEST_F(WalDiskTest, LockThatIsNoFileIsRefusedByName) {
  std::filesystem::create_symlink("elsewhere", path_ + "/LOCK");
  ExpectHeld(LockHolder::kServer, absl::StrCat(path_, "/LOCK is a symbolic link; remove it"));
  std::filesystem::remove(path_ + "/LOCK");
  std::filesystem::create_directory(path_ + "/LOCK");
  ExpectHeld(LockHolder::kServer, absl::StrCat(path_, "/LOCK is not a regular file; remove it"));
  std::filesystem::remove(path_ + "/LOCK");
  EXPECT_TRUE(files_->Lock(LockHolder::kServer).ok());
}

TEST_F(WalDiskTest, LockThatCannotBeCreatedSaysWhy) {
  const auto files = OpenPosixFileSystem("/sys");  // no user may create a file there
  ASSERT_TRUE(files.ok()) << files.status();
  EXPECT_THAT((*files)->Lock(LockHolder::kServer).status().message(),
              testing::HasSubstr("Permission denied"));
}

// As a missing file, it would pass for one that was never written.
TEST_F(WalDiskTest, DanglingLinkIsNamed) {
  std::filesystem::create_symlink("elsewhere", path_ + "/CURRENT");
  for (const absl::Status& status :
       {files_->Open("CURRENT").status(), files_->FileBytes("CURRENT").status()}) {
    EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
    EXPECT_THAT(status.message(), HasSubstr(path_ + "/CURRENT is a symbolic link that"));
  }
}

TEST_F(WalDiskTest, ThreadsShareSyncs) {
  constexpr uint64_t kThreads = 3, kRecords = 300;
  std::atomic<uint64_t> progressed{0};
  LogOptions options;
  options.segment_bytes = 32 << 10;
  options.progressed = [&progressed] { ++progressed; };
  Open(options);
  {
    const std::unique_ptr<SyncThread> sync_thread =
        *SyncThread::Start(*log_, SyncThread::Clock::duration::zero());
    std::vector<std::thread> threads;
    for (uint64_t t = 0; t < kThreads; ++t) {
      threads.emplace_back([&, t] {
        for (uint64_t i = 0; i < kRecords; ++i) {
          GroupBuilder group((GroupHeader()));
          const std::string key = absl::StrCat(t, "-", i);
          Entry entry;
          entry.key = key;
          group.Add(entry);
          const absl::StatusOr<uint64_t> number =
              log_->Append({{RecordKind::kEntries, group.Parts()}});
          ASSERT_TRUE(number.ok());
          ASSERT_EQ(log_->Write(), absl::OkStatus());
          EXPECT_GE(log_->written(), *number);
          sync_thread->Kick();
          // As a lone client that awaits each write.
          while (i % 100 == 0 && log_->synced() < *number) std::this_thread::yield();
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
  }
  EXPECT_EQ(log_->synced(), kThreads * kRecords);
  EXPECT_GT(progressed, 0u);
  EXPECT_LT(progressed, kThreads * kRecords);
  Open(LogOptions());
  EXPECT_EQ(puts_, kThreads * kRecords);
}

TEST_F(WalDiskTest, DelayedSyncComesInTime) {
  Open(LogOptions());
  const std::unique_ptr<SyncThread> sync_thread =
      *SyncThread::Start(*log_, std::chrono::milliseconds(30));
  EXPECT_EQ(sync_thread->oldest_unsynced(), SyncThread::Clock::time_point::max());
  const BodyPart part{BytesOfText("x"), false};
  ASSERT_TRUE(log_->Append({{RecordKind::kPiece, {&part, 1}}}).ok());
  ASSERT_EQ(log_->Write(), absl::OkStatus());
  const SyncThread::Clock::time_point before = SyncThread::Clock::now();
  sync_thread->Kick();
  EXPECT_GE(sync_thread->oldest_unsynced(), before);
  while (log_->synced() == 0 && SyncThread::Clock::now() < before + std::chrono::seconds(20))
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  EXPECT_EQ(log_->synced(), 1u);
  EXPECT_GE(SyncThread::Clock::now() - before, std::chrono::milliseconds(29));
}

TEST_F(WalDiskTest, HurriedSyncDoesNotWaitForTheDelay) {
  Open(LogOptions());
  const std::unique_ptr<SyncThread> sync_thread = *SyncThread::Start(*log_, std::chrono::hours(1));
  const BodyPart part{BytesOfText("x"), false};
  // The second one hurries a kick that waits.
  for (uint64_t number = 1; number <= 2; ++number) {
    ASSERT_TRUE(log_->Append({{RecordKind::kPiece, {&part, 1}}}).ok());
    ASSERT_EQ(log_->Write(), absl::OkStatus());
    if (number == 2) sync_thread->Kick();
    sync_thread->Hurry();
    for (int step = 0; step < 20000 && log_->synced() < number; ++step)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    EXPECT_EQ(log_->synced(), number);
  }
}

TEST_F(WalDiskTest, ErrorNamesTheSegment) {
  Open(LogOptions());
  const std::string value(100'000, 'v');
  const BodyPart part{BytesOfText(value), false};
  ASSERT_TRUE(log_->Append({{RecordKind::kPiece, {&part, 1}}}).ok());
  rlimit before;
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  const rlimit small{50'000, before.rlim_max};
  const auto signal_before = signal(SIGXFSZ, SIG_IGN);
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  const absl::Status status = log_->Write();
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &before), 0);
  signal(SIGXFSZ, signal_before);
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(status.message(), absl::StrCat("cannot write to the file ", path_, "/", SegmentName(2),
                                           ": File too large"));
}

// Signals are for the server's first thread.
TEST_F(WalDiskTest, SyncThreadBlocksSignals) {
  int blocked = -1;  // unknown
  LogOptions options;
  options.progressed = [&blocked] {
    sigset_t mask;
    pthread_sigmask(SIG_BLOCK, nullptr, &mask);
    blocked = sigismember(&mask, SIGTERM);
  };
  Open(options);
  const BodyPart part{BytesOfText("x"), false};
  ASSERT_TRUE(log_->Append({{RecordKind::kPiece, {&part, 1}}}).ok());
  ASSERT_EQ(log_->Write(), absl::OkStatus());
  (*SyncThread::Start(*log_, SyncThread::Clock::duration::zero()))->Kick();  // its end syncs
  EXPECT_EQ(log_->synced(), 1u);
  EXPECT_EQ(blocked, 1);
}

}  // namespace
}  // namespace osprey::server::wal
