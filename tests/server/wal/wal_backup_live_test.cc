// Backups and snapshots of a directory of the machine that other threads write meanwhile.

#include <atomic>
#include <filesystem>
#include <memory>
#include <set>
#include <string>
#include <thread>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "gtest/gtest.h"
#include "server/wal/backup.h"
#include "server/wal/disk/posix_file_system.h"
#include "server/wal/snapshot.h"
#include "tests/server/wal/directory_writer.h"
#include "tests/support/subprocess.h"

namespace osprey::server::wal {
namespace {

LogOptions SmallSegments() {
  LogOptions options;
  options.segment_bytes = 64 << 10;
  options.zeros_bytes = 16 << 10;  // which records replace while they are read
  return options;
}

class WalBackupLiveTest : public ::testing::Test {
 protected:
  WalBackupLiveTest() : path_(NewTemporaryDirectory()) {
    std::filesystem::create_directory(From());
    std::filesystem::create_directory(To());
  }
  std::string From() const { return path_ + "/from"; }
  std::string To() const { return path_ + "/to"; }

  // Writes until the object's end: records, syncs and checkpoints.
  class Load {
   public:
    explicit Load(DirectoryWriter& writer) {
      threads_[0] = std::thread([this, &writer] {
        for (uint64_t i = 0; !ends_; ++i) {
          const absl::StatusOr<uint64_t> number = writer.Put(std::string(i % 2000, 'v'));
          ASSERT_TRUE(number.ok()) << number.status();
          if (i % 10 != 0) continue;
          ASSERT_EQ(writer.Sync(), absl::OkStatus());
          synced_ = *number;
        }
      });
      threads_[1] = std::thread([this, &writer] {
        while (!ends_) {
          ASSERT_EQ(writer.Checkpoint(3), absl::OkStatus());
          ++checkpoints_;
          absl::SleepFor(absl::Milliseconds(pause_ms_.load()));
        }
      });
    }
    ~Load() {
      ends_ = true;
      for (std::thread& thread : threads_) thread.join();
    }
    uint64_t synced() const { return synced_; }
    uint64_t checkpoints() const { return checkpoints_; }
    // From now on there is twice the time between checkpoints.
    void SlowDown() { pause_ms_ = 2 * pause_ms_; }

   private:
    std::atomic<bool> ends_{false};
    std::atomic<uint64_t> synced_{0};
    std::atomic<uint64_t> checkpoints_{0};
    std::atomic<int64_t> pause_ms_{50};
    std::thread threads_[2];
  };

  // Keys 1, 2, 3 … without a gap; returns the last.
  static uint64_t LastOf(const std::set<std::string>& keys) {
    uint64_t last = 0;
    while (keys.contains(absl::StrCat(kKeyPrefix, last + 1))) ++last;
    EXPECT_EQ(last, keys.size()) << "a record is missing in between";
    return last;
  }

  const std::string path_;
  // The disk's speed decides how many rounds these are.
  const absl::Time end_ = absl::Now() + absl::Seconds(5);
};

TEST_F(WalBackupLiveTest, BackupHasAllThatWasSyncedWhenItBegan) {
  const std::unique_ptr<DirectoryWriter> writer = *DirectoryWriter::Open(From(), SmallSegments());
  const std::unique_ptr<FileSystem> from = *OpenPosixFileSystem(From());
  const std::unique_ptr<FileSystem> to = *OpenPosixFileSystem(To());
  uint64_t draws = 0;
  uint64_t backups = 0;
  uint64_t synced = 0;
  {
    const Load load(*writer);
    while (absl::Now() < end_ || backups < 3) {
      const uint64_t synced_before = load.synced();
      const absl::StatusOr<BackupReport> report = Backup(
          *from, *to, [&draws] { return ++draws << 9; }, [](uint64_t) {});
      // On a machine with other load, a checkpoint may come during each attempt.
      if (absl::IsUnavailable(report.status())) continue;
      ASSERT_EQ(report.status(), absl::OkStatus());
      std::set<std::string> keys;
      ASSERT_EQ(ReadSnapshot(*to,
                             [&keys](const DataDirectory& directory) {
                               keys = KeysOf(directory).value_or(std::set<std::string>());
                               return absl::OkStatus();
                             }),
                absl::OkStatus());
      ASSERT_GE(LastOf(keys), synced_before);
      synced = synced_before;
      ++backups;
    }
    EXPECT_GT(load.checkpoints(), 1u);
  }
  // A server starts from the copy, and from the origin.
  EXPECT_GT(synced, 0u);
  std::unique_ptr<DirectoryWriter> restored = *DirectoryWriter::Open(To(), SmallSegments());
  EXPECT_GT(*restored->Put("x"), synced);
  EXPECT_EQ(restored->Checkpoint(2), absl::OkStatus());
  restored.reset();
  restored = *DirectoryWriter::Open(To(), SmallSegments());
  EXPECT_GT(LastOf(*KeysOf(restored->directory())), synced);
  EXPECT_TRUE(writer->Put("x").ok());
}

TEST_F(WalBackupLiveTest, SnapshotIsNeverDamaged) {
  const std::unique_ptr<DirectoryWriter> writer = *DirectoryWriter::Open(From(), SmallSegments());
  const std::unique_ptr<FileSystem> from = *OpenPosixFileSystem(From());
  Load load(*writer);
  uint64_t last = 0;
  for (int reads = 0; absl::Now() < end_ || reads < 3;) {
    const uint64_t synced = load.synced();
    std::set<std::string> keys;
    const absl::Status status = ReadSnapshot(*from, [&keys](const DataDirectory& directory) {
      absl::StatusOr<std::set<std::string>> found = KeysOf(directory);
      if (found.ok()) keys = *std::move(found);
      return found.status();
    });
    // On a slow machine each attempt takes longer than the time between checkpoints.
    if (absl::IsUnavailable(status)) {
      load.SlowDown();
      continue;
    }
    ASSERT_EQ(status, absl::OkStatus());
    ++reads;
    const uint64_t now = LastOf(keys);
    EXPECT_GE(now, synced);
    EXPECT_GE(now, last);
    last = now;
  }
}

// The directory of the test may be on a file system that has no links to others, so both are here.
TEST_F(WalBackupLiveTest, LinksAreMadeWithinAFileSystemAlone) {
  const std::unique_ptr<FileSystem> from = *OpenPosixFileSystem(From());
  const std::unique_ptr<FileSystem> to = *OpenPosixFileSystem(To());
  ASSERT_TRUE(from->Create("f").ok());
  EXPECT_EQ(to->LinkFrom(*from, "f"), absl::OkStatus());
  EXPECT_EQ(to->LinkFrom(*from, "f").code(), absl::StatusCode::kAlreadyExists);
  EXPECT_EQ(to->LinkFrom(*from, "none").code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(std::filesystem::hard_link_count(To() + "/f"), 2u);
  EXPECT_EQ(*to->FileBytes("f"), 0u);
  EXPECT_EQ(to->FileBytes("none").status().code(), absl::StatusCode::kNotFound);
  // A file of another file system.
  const std::unique_ptr<FileSystem> proc = *OpenPosixFileSystem("/proc/self");
  EXPECT_EQ(to->LinkFrom(*proc, "status").code(), absl::StatusCode::kUnimplemented);
}

}  // namespace
}  // namespace osprey::server::wal
