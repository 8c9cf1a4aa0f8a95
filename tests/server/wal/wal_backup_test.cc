// Snapshots and backups, step by step, on simulated disks.

#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/wal/backup.h"
#include "server/wal/checkpoint_reader.h"
#include "server/wal/checkpoint_writer.h"
#include "server/wal/snapshot.h"
#include "tests/server/wal/wal_fixture.h"

namespace osprey::server::wal {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

// The keys of a checkpoint's part.
class PartKeys final : public PartVisitor {
 public:
  explicit PartKeys(std::vector<std::string>& keys) : keys_(keys) {}
  absl::Status OnItem(const CheckpointItem& item, Bytes) override {
    keys_.emplace_back(item.key);
    return absl::OkStatus();
  }
  absl::Status OnValue(Bytes) override { return absl::OkStatus(); }
  absl::Status OnSession(Bytes) override { return absl::OkStatus(); }
  absl::Status OnShard(const ShardState&) override { return absl::OkStatus(); }

 private:
  std::vector<std::string>& keys_;
};

// "checkpoint's keys | log's keys", or the error.
std::string ContentOf(const DataDirectory& directory) {
  std::vector<std::string> keys;
  PartKeys part(keys);
  const absl::Status status =
      ReadCheckpoint(directory, 1, [&](uint32_t) -> PartVisitor& { return part; });
  if (!status.ok()) return std::string(status.message());
  keys.emplace_back("|");
  KeepingVisitor visitor;
  const absl::StatusOr<LogEnd> end = Replay(directory, visitor);
  if (!end.ok()) return std::string(end.status().message());
  for (const KeepingVisitor::Put& put : visitor.puts) keys.push_back(put.key);
  return absl::StrJoin(keys, " ");
}

std::string SnapshotContent(FileSystem& files) {
  std::string content;
  const absl::Status status = ReadSnapshot(files, [&](const DataDirectory& directory) {
    content = ContentOf(directory);
    return absl::OkStatus();
  });
  return status.ok() ? content : std::string(status.message());
}

class WalBackupTest : public WalFixture {
 protected:
  WalBackupTest() : copy_(2) { options_.segment_bytes = 8 << 10; }

  // A checkpoint of the keys, from the next record on.
  void Checkpoint(const std::vector<std::string>& keys) {
    std::unique_ptr<CheckpointWriter> writer =
        *CheckpointWriter::Begin(*directory_, *log_, 2, log_->appended() + 1);
    for (size_t i = 0; i < keys.size(); ++i) {
      CheckpointItem item;
      item.key = keys[i];
      ASSERT_EQ(writer->part(i % 2).AddItem(item, {}), absl::OkStatus());
    }
    for (uint32_t i = 0; i < 2; ++i) ASSERT_EQ(writer->part(i).Finish(), absl::OkStatus());
    ASSERT_EQ(writer->Commit(log_->appended()), absl::OkStatus());
  }
  // A key of its own segment.
  void PutLong(const std::string& key) { Put(key, std::string(6000, 'v')); }

  Random Draws() {
    return [this] { return ++draws_ * 0x9e3779b9 | 1; };
  }
  absl::StatusOr<BackupReport> BackUp(SimDisk& from, SimDisk& to) {
    return Backup(from, to, Draws(), [](uint64_t) {});
  }
  absl::StatusOr<BackupReport> BackUp() { return BackUp(disk_, copy_); }

  static std::map<std::string, std::string> FilesOf(const SimDisk& disk) {
    std::map<std::string, std::string> files;
    for (const std::string& name : disk.Names()) files[name] = disk.ContentOf(name);
    return files;
  }
  // Opens the disk as a server does, and writes the key to it.
  std::string StartAndPut(SimDisk& disk, const std::string& key) {
    const std::unique_ptr<DataDirectory> directory =
        *DataDirectory::Open(disk, NewDirectory(), Draws());
    const std::string content = ContentOf(*directory);
    KeepingVisitor visitor;
    const LogEnd end = *Replay(*directory, visitor);
    const std::unique_ptr<Log> log = *StartLog(*directory, end, options_);
    GroupBuilder group((GroupHeader()));
    Entry entry;
    entry.key = key;
    group.Add(entry);
    EXPECT_TRUE(log->Append({{RecordKind::kEntries, group.Parts()}}).ok());
    EXPECT_EQ(log->Write(), absl::OkStatus());
    EXPECT_EQ(log->Sync(), absl::OkStatus());
    return content;
  }

  SimDisk copy_;
};

TEST_F(WalBackupTest, SnapshotEndsWhereTheLogStood) {
  ASSERT_EQ(Open(), absl::OkStatus());
  PutLong("a");
  Put("b", "1");
  const std::map<std::string, std::string> before = FilesOf(disk_);
  std::string content;
  ASSERT_EQ(ReadSnapshot(disk_,
                         [&](const DataDirectory& directory) {
                           EXPECT_EQ(FilesOf(disk_), before);
                           Put("c", "1");
                           PutLong("d");
                           PutLong("e");
                           content = ContentOf(directory);
                           return absl::OkStatus();
                         }),
            absl::OkStatus());
  EXPECT_EQ(content, "| a b");
  EXPECT_EQ(SnapshotContent(disk_), "| a b c d e");
}

TEST_F(WalBackupTest, SnapshotHasWhatIsWrittenAndNotSynced) {
  ASSERT_EQ(Open(), absl::OkStatus());
  ASSERT_TRUE(Append("a", "1").ok());
  ASSERT_EQ(log_->Write(), absl::OkStatus());
  EXPECT_EQ(SnapshotContent(disk_), "| a");
}

TEST_F(WalBackupTest, SnapshotIsReadAgainAfterACheckpoint) {
  ASSERT_EQ(Open(), absl::OkStatus());
  PutLong("a");
  PutLong("b");
  int attempts = 0;
  std::string content;
  ASSERT_EQ(ReadSnapshot(disk_,
                         [&](const DataDirectory& directory) {
                           if (++attempts == 1) Checkpoint({"a", "b"});
                           content = ContentOf(directory);
                           return content == "a b |" ? absl::OkStatus()
                                                     : absl::DataLossError(content);
                         }),
            absl::OkStatus());
  EXPECT_EQ(attempts, 2);
}

TEST_F(WalBackupTest, SnapshotGivesUpAfterSomeAttempts) {
  ASSERT_EQ(Open(), absl::OkStatus());
  int attempts = 0;
  const absl::Status status = ReadSnapshot(disk_, [&](const DataDirectory&) {
    ++attempts;
    Checkpoint({});
    return absl::DataLossError("a file is missing");
  });
  EXPECT_EQ(attempts, kSnapshotAttemptsMax);
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(status.message(), HasSubstr("/data/CURRENT was replaced during 5 attempts"));
}

TEST_F(WalBackupTest, OtherErrorsOfAReaderEndTheSnapshot) {
  ASSERT_EQ(Open(), absl::OkStatus());
  int attempts = 0;
  EXPECT_EQ(ReadSnapshot(disk_,
                         [&](const DataDirectory&) {
                           ++attempts;
                           Checkpoint({});
                           return absl::CancelledError("x");
                         }),
            absl::CancelledError("x"));
  EXPECT_EQ(attempts, 1);
}

TEST_F(WalBackupTest, SnapshotOfDamageIsReadOnce) {
  ASSERT_EQ(Open(), absl::OkStatus());
  int attempts = 0;
  EXPECT_EQ(ReadSnapshot(disk_,
                         [&](const DataDirectory&) {
                           ++attempts;
                           return absl::DataLossError("x");
                         }),
            absl::DataLossError("x"));
  EXPECT_EQ(attempts, 1);
  disk_.FlipBit(kCurrentName, 40, 1);
  EXPECT_THAT(SnapshotContent(disk_), HasSubstr("/data/CURRENT, offset 0"));
  disk_.Hide(kFormatName);
  EXPECT_THAT(SnapshotContent(disk_), HasSubstr("is no data directory"));
}

TEST_F(WalBackupTest, CopyHasAllThatWasWritten) {
  ASSERT_EQ(Open(), absl::OkStatus());
  PutLong("a");
  Checkpoint({"a"});
  PutLong("b");
  PutLong("c");
  ASSERT_TRUE(Append("d", "1").ok());
  ASSERT_EQ(log_->Write(), absl::OkStatus());
  const BackupReport report = *BackUp();
  EXPECT_EQ(report.parts_linked, 2u);
  EXPECT_GE(report.segments_copied, 2u);
  EXPECT_TRUE(report.format.copied_from == directory_->format().directory);
  EXPECT_FALSE(report.format.directory == directory_->format().directory);
  EXPECT_EQ(report.current.synced_to, log_->written());
  EXPECT_EQ(report.removal, absl::OkStatus());
  // Both are read and written independently.
  EXPECT_EQ(StartAndPut(copy_, "of copy"), "a | b c d");
  Put("e", "1");
  ASSERT_EQ(Open(), absl::OkStatus());
  EXPECT_EQ(Keys(), "b c d e ");
  EXPECT_EQ(StartAndPut(copy_, "x"), "a | b c d of copy");
}

TEST_F(WalBackupTest, CopySurvivesThePowerLossBehindIt) {
  ASSERT_EQ(Open(), absl::OkStatus());
  PutLong("a");
  Checkpoint({"a"});
  PutLong("b");
  ASSERT_TRUE(Append("c", "1").ok());
  ASSERT_EQ(log_->Write(), absl::OkStatus());
  ASSERT_TRUE(BackUp().ok());
  Close();
  disk_.LosePower();
  copy_.LosePower();
  // The origin too has what was copied.
  EXPECT_EQ(SnapshotContent(disk_), "a | b c");
  EXPECT_EQ(SnapshotContent(copy_), "a | b c");
}

TEST_F(WalBackupTest, LostTailOfACopyIsDamage) {
  ASSERT_EQ(Open(), absl::OkStatus());
  Put("a", "1");
  ASSERT_TRUE(BackUp().ok());
  const std::string name = SegmentName(2);
  copy_.Put(name, copy_.ContentOf(name).substr(0, kSegmentHeaderBytes));
  EXPECT_THAT(SnapshotContent(copy_), HasSubstr("was known to be synced"));
}

TEST_F(WalBackupTest, CopyOfACopyNamesAllOrigins) {
  ASSERT_EQ(Open(), absl::OkStatus());
  PutLong("a");
  Checkpoint({"a"});
  Put("b", "1");
  ASSERT_TRUE(BackUp().ok());
  EXPECT_EQ(StartAndPut(copy_, "c"), "a | b");
  SimDisk second(3), third(4);
  const BackupReport report = *BackUp(copy_, second);
  EXPECT_EQ(report.format.origins, 1u);
  EXPECT_EQ(StartAndPut(second, "d"), "a | b c");
  EXPECT_EQ((*BackUp(second, third)).format.origins, 2u);
  EXPECT_EQ(SnapshotContent(third), "a | b c d");
  const std::unique_ptr<DataDirectory> directory =
      *DataDirectory::Open(third, NewDirectory(), Draws());
  ASSERT_EQ(directory->ids().size(), 4u);
  EXPECT_TRUE(directory->ids()[3] == directory_->format().directory);
  // Files of a directory that is no origin are refused.
  const std::string format = second.ContentOf(kFormatName);
  third.Put(kFormatName, copy_.ContentOf(kFormatName));
  EXPECT_THAT(SnapshotContent(third), HasSubstr("/data/CURRENT, offset 0"));
}

TEST_F(WalBackupTest, SegmentsOfOtherDirectoriesAreRefused) {
  ASSERT_EQ(Open(), absl::OkStatus());
  Put("a", "1");
  ASSERT_TRUE(BackUp().ok());
  const std::string name = SegmentName(2);
  std::string bytes = copy_.ContentOf(name);
  SegmentHeader header;
  std::memcpy(&header, bytes.data(), sizeof(header));
  header.directory = {{99, 99}};
  header.Seal();
  bytes.replace(0, sizeof(header), reinterpret_cast<const char*>(&header), sizeof(header));
  copy_.Put(name, bytes);
  EXPECT_THAT(SnapshotContent(copy_), HasSubstr("the segment is of another data directory"));
}

TEST_F(WalBackupTest, SecondBackupCopiesOnlyWhatIsNew) {
  ASSERT_EQ(Open(), absl::OkStatus());
  PutLong("a");
  Checkpoint({"a"});
  PutLong("b");
  PutLong("c");
  ASSERT_TRUE(BackUp().ok());
  BackupReport report = *BackUp();
  EXPECT_EQ(report.parts_kept, 2u);
  EXPECT_EQ(report.segments_copied, 0u);
  EXPECT_EQ(report.bytes_copied, 0u);
  EXPECT_EQ(report.current.generation, 2u);
  Put("d", "1");
  report = *BackUp();
  EXPECT_EQ(report.parts_kept, 2u);
  EXPECT_EQ(report.segments_copied, 1u);
  EXPECT_EQ(SnapshotContent(copy_), "a | b c d");
  Checkpoint({"a", "b", "c", "d"});
  PutLong("e");
  report = *BackUp();
  EXPECT_EQ(report.parts_linked, 2u);
  EXPECT_EQ(SnapshotContent(copy_), "a c b d | e");
  // What only the backup before needed is gone.
  EXPECT_EQ(copy_.SizeOf(PartName(1, 0)), 0u);
  EXPECT_EQ(copy_.SizeOf(SegmentName(2)), 0u);
  EXPECT_EQ(StartAndPut(copy_, "x"), "a c b d | e");
}

TEST_F(WalBackupTest, PartsAreCopiedWhereLinksAreNotPossible) {
  ASSERT_EQ(Open(), absl::OkStatus());
  copy_.set_links(false);
  PutLong("a");
  Checkpoint({"a"});
  BackupReport report = *BackUp();
  EXPECT_EQ(report.parts_copied, 2u);
  EXPECT_EQ(report.parts_linked, 0u);
  EXPECT_EQ((*BackUp()).parts_kept, 2u);
  EXPECT_EQ(SnapshotContent(copy_), "a |");
}

TEST_F(WalBackupTest, OtherDirectoriesAreRefusedAndUnchanged) {
  ASSERT_EQ(Open(), absl::OkStatus());
  Put("a", "1");
  SimDisk something(5), stranger(6), backup_of_stranger(7), used(8), damaged(9);
  something.Put("photo.jpg", "x");
  StartAndPut(stranger, "s");
  ASSERT_TRUE(BackUp(stranger, backup_of_stranger).ok());
  ASSERT_TRUE(BackUp(disk_, used).ok());
  StartAndPut(used, "u");
  ASSERT_TRUE(BackUp(disk_, damaged).ok());
  damaged.FlipBit(kCurrentName, 50, 1);
  const std::vector<std::pair<SimDisk*, std::string>> cases = {
      {&something, "photo.jpg exists"},
      {&stranger, "is of another data directory"},
      {&backup_of_stranger, "is of another data directory"},
      {&used, "is of a server that has used the backup"},
      {&damaged, "/data/CURRENT, offset 0"},
      {&disk_, "is of the very data directory"}};
  for (const auto& [disk, message] : cases) {
    const std::map<std::string, std::string> before = FilesOf(*disk);
    const absl::StatusOr<BackupReport> report = BackUp(disk_, *disk);
    EXPECT_THAT(report.status().message(), HasSubstr(message));
    EXPECT_EQ(FilesOf(*disk), before) << message;
  }
  const std::unique_ptr<DirectoryLock> lock = *copy_.Lock(LockHolder::kBackup);
  EXPECT_EQ(BackUp().status().code(), absl::StatusCode::kFailedPrecondition);
}

// Two directories with one id: the origin was restored from a copy of its files.
TEST_F(WalBackupTest, RolledBackOriginIsRefused) {
  ASSERT_TRUE(DataDirectory::Open(disk_, NewDirectory(), Draws()).ok());
  SimDisk restored(10);
  for (const auto& [name, bytes] : FilesOf(disk_)) restored.Put(name, bytes);
  StartAndPut(disk_, "a");
  StartAndPut(restored, "b");
  ASSERT_TRUE(BackUp().ok());
  const absl::Status status = BackUp(restored, copy_).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(status.message(), HasSubstr("the data directory was replaced"));
  EXPECT_EQ(SnapshotContent(copy_), "| a");
}

TEST_F(WalBackupTest, CheckpointMeanwhileIsMet) {
  ASSERT_EQ(Open(), absl::OkStatus());
  for (const char* key : {"a", "b", "c"}) PutLong(key);
  bool is_done = false;
  const absl::StatusOr<BackupReport> report = Backup(disk_, copy_, Draws(), [&](uint64_t) {
    if (std::exchange(is_done, true)) return;
    Checkpoint({"a", "b", "c"});
    PutLong("d");
    Checkpoint({"a", "b", "c", "d"});
  });
  ASSERT_EQ(report.status(), absl::OkStatus());
  EXPECT_EQ(report->current.checkpoint, 2u);
  EXPECT_EQ(SnapshotContent(copy_), "a c b d |");
}

TEST_F(WalBackupTest, FullDiskLeavesTheBackupBefore) {
  ASSERT_EQ(Open(), absl::OkStatus());
  copy_.set_links(false);
  PutLong("a");
  Checkpoint({"a"});
  PutLong("b");
  ASSERT_TRUE(BackUp().ok());
  PutLong("c");
  PutLong("d");
  uint64_t used = 0;
  for (const auto& [name, bytes] : FilesOf(copy_)) used += bytes.size();
  copy_.set_capacity(used + 9000);
  const absl::Status status = BackUp().status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << status;
  EXPECT_THAT(copy_.Names(), Not(::testing::Contains(kCopyNewName)));
  EXPECT_THAT(SnapshotContent(copy_), ::testing::StartsWith("a | b"));
  copy_.set_capacity(UINT64_MAX);
  ASSERT_TRUE(BackUp().ok());
  EXPECT_EQ(SnapshotContent(copy_), "a | b c d");
}

TEST_F(WalBackupTest, FirstInterruptedOneSaysSo) {
  ASSERT_EQ(Open(), absl::OkStatus());
  PutLong("a");
  PutLong("b");
  copy_.CrashAfter(6);
  EXPECT_FALSE(BackUp().ok());
  copy_.Kill();
  const absl::Status status = DataDirectory::Open(copy_, NewDirectory(), Draws()).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(status.message(), HasSubstr("run the same kvcli backup again"));
  ASSERT_TRUE(BackUp().ok());
  EXPECT_EQ(StartAndPut(copy_, "x"), "| a b");
}

// At each step the power fails. The copy has what it had, or all of the new backup, or the log of
// the one before and some more of it. Then the same command completes it.
TEST_F(WalBackupTest, InterruptedAtAnyStepIsBegunAgain) {
  ASSERT_EQ(Open(), absl::OkStatus());
  PutLong("a");
  Checkpoint({"a"});
  PutLong("b");
  Put("c", "1");
  ASSERT_TRUE(BackUp().ok());
  const std::map<std::string, std::string> first = FilesOf(copy_);
  for (const char* key : {"d", "e", "f"}) PutLong(key);
  Checkpoint({"a", "b", "c", "d", "e", "f"});
  PutLong("g");
  const std::string last = "a c e b d f | g";
  for (const bool links : {false, true}) {
    uint64_t step = 0;
    for (bool is_done = false; !is_done; ++step) {
      SimDisk copy(step);
      copy.set_links(links);
      for (const auto& [name, bytes] : first) copy.Put(name, bytes);
      copy.CrashAfter(step);
      is_done = BackUp(disk_, copy).ok();
      copy.LosePower();
      const std::string content = SnapshotContent(copy);
      EXPECT_TRUE(content == "a | b c" || content == last) << step << ": " << content;
      if (step % 2 == 0) {
        EXPECT_EQ(BackUp(disk_, copy).status(), absl::OkStatus()) << step;
        EXPECT_EQ(SnapshotContent(copy), last) << step;
      }
      EXPECT_EQ(StartAndPut(copy, "x"), step % 2 == 0 ? last : content) << step;
    }
    EXPECT_GT(step, 15u);
  }
}

// Bits of what the backup reads; the blocks of linked parts are those of the origin.
TEST_F(WalBackupTest, DamagedOriginIsAnErrorOrCopiedAsItIs) {
  ASSERT_EQ(Open(), absl::OkStatus());
  PutLong("a");
  Checkpoint({"a", "b"});
  PutLong("c");
  Put("d", "1");
  Close();
  const std::string content = SnapshotContent(disk_);
  int errors = 0;
  for (const auto& [name, bytes] : FilesOf(disk_)) {
    if (name == kLockName) continue;
    for (uint64_t offset = 0; offset < bytes.size(); offset += offset < 200 ? 3 : 241) {
      disk_.FlipBit(name, offset, offset % 8);
      const std::string damage = SnapshotContent(disk_);
      SimDisk copy(offset);
      const absl::StatusOr<BackupReport> report = BackUp(disk_, copy);
      if (report.ok()) {
        EXPECT_EQ(SnapshotContent(copy), damage) << name << " " << offset;
      } else {
        ++errors;
        EXPECT_THAT(report.status().message(), HasSubstr("/data/")) << name << " " << offset;
        EXPECT_NE(damage, content) << name << " " << offset << report.status();
      }
      disk_.FlipBit(name, offset, offset % 8);
    }
  }
  EXPECT_GT(errors, 100);
}

}  // namespace
}  // namespace osprey::server::wal
