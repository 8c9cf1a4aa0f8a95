// The log, step by step, on the simulated disk.

#include <algorithm>
#include <atomic>
#include <cstring>
#include <string>
#include <thread>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/server/wal/wal_fixture.h"

namespace osprey::server::wal {
namespace {

using ::testing::HasSubstr;

using WalLogTest = WalFixture;

TEST_F(WalLogTest, NewDirectoryHasAnEmptyLog) {
  ASSERT_EQ(Open(), absl::OkStatus());
  EXPECT_EQ(Keys(), "");
  EXPECT_EQ(log_->appended(), 0u);
  EXPECT_EQ(directory_->current().header.newest_segment, 2u);
  const DirectoryId id = directory_->format().directory;
  ASSERT_EQ(Open(), absl::OkStatus());
  EXPECT_EQ(directory_->format().directory, id);
}

TEST_F(WalLogTest, NumbersRiseFromAppendedToWrittenToSynced) {
  int calls = 0;
  options_.progressed = [&calls] { ++calls; };
  ASSERT_EQ(Open(), absl::OkStatus());
  EXPECT_EQ(*Append("a", "1"), 1u);
  EXPECT_EQ(*Append("b", "2"), 2u);
  EXPECT_EQ(log_->appended(), 2u);
  EXPECT_EQ(log_->written(), 0u);
  EXPECT_EQ(log_->Write(), absl::OkStatus());
  EXPECT_EQ(log_->written(), 2u);
  EXPECT_EQ(log_->synced(), 0u);
  EXPECT_EQ(log_->Sync(), absl::OkStatus());
  EXPECT_EQ(log_->synced(), 2u);
  EXPECT_EQ(calls, 1);
}

TEST_F(WalLogTest, KilledProcessLosesNothingWritten) {
  ASSERT_EQ(Open(), absl::OkStatus());
  Put("synced", "1");
  ASSERT_TRUE(Append("written", "2").ok());
  ASSERT_EQ(log_->Write(), absl::OkStatus());
  ASSERT_TRUE(Append("appended", "3").ok());
  Close();
  disk_.Kill();
  ASSERT_EQ(Open(), absl::OkStatus());
  EXPECT_EQ(Keys(), "synced written ");
  EXPECT_EQ(log_->synced(), 2u);
}

// Of the three unsynced records the disk keeps the third.
TEST_F(WalLogTest, DroppedRecordStaysDropped) {
  ASSERT_EQ(Open(), absl::OkStatus());
  Put("a", "1");
  const std::string name = SegmentName(directory_->current().header.newest_segment);
  for (const char* key : {"b", "c", "d"}) {
    ASSERT_TRUE(Append(key, std::string(600, 'v')).ok());
    ASSERT_EQ(log_->Write(), absl::OkStatus());
  }
  const uint64_t begin = kSegmentHeaderBytes + 192;
  std::string bytes = disk_.ContentOf(name);
  Close();
  // Record c is lost.
  const uint64_t length = (bytes.size() - begin) / 3;
  bytes.replace(begin + length, length, length, '\0');
  disk_.Put(name, bytes);
  ASSERT_EQ(Open(), absl::OkStatus());
  EXPECT_EQ(Keys(), "a b ");
  Put("C", std::string(600, 'w'));
  ASSERT_EQ(Open(), absl::OkStatus());
  EXPECT_EQ(Keys(), "a b C ");
}

TEST_F(WalLogTest, DamagedSyncedRecordIsAnErrorWithItsPlace) {
  ASSERT_EQ(Open(), absl::OkStatus());
  const std::string name = SegmentName(directory_->current().header.newest_segment);
  Put("a", "1");
  Put("b", "2");
  Put("c", "3");
  Close();
  disk_.FlipBit(name, kSegmentHeaderBytes + 100, 3);
  const absl::Status status = Open();
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(status.message(),
              HasSubstr(absl::StrCat("/data/", name, ", offset ", kSegmentHeaderBytes,
                                     ": the record's checksum is wrong; record 1 stood there")));
}

TEST_F(WalLogTest, LostSegmentIsAnErrorWithItsName) {
  ASSERT_EQ(Open(), absl::OkStatus());
  for (int i = 0; i < 20; ++i) Put("k", std::string(3000, 'v'));
  const uint64_t last = directory_->current().header.newest_segment + 3;
  ASSERT_GT(disk_.SizeOf(SegmentName(last)), 0u);
  for (uint64_t number = last - 3; disk_.SizeOf(SegmentName(number)) > 0; ++number) {
    Close();
    disk_.Hide(SegmentName(number));
    const absl::Status status = Open();
    EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss) << number;
    EXPECT_THAT(status.message(), HasSubstr(SegmentName(number)));
    disk_.Unhide();
  }
  EXPECT_EQ(Open(), absl::OkStatus());
}

TEST_F(WalLogTest, FullQueueTakesNothing) {
  options_.queue_bytes_max = 2000;
  ASSERT_EQ(Open(), absl::OkStatus());
  // One value may be longer than the queue.
  EXPECT_TRUE(Append("long", std::string(4000, 'v')).ok());
  EXPECT_FALSE(log_->HasRoom());
  EXPECT_EQ(Append("a", "1").status().code(), absl::StatusCode::kAborted);
  ASSERT_EQ(log_->Write(), absl::OkStatus());
  EXPECT_TRUE(log_->HasRoom());
  EXPECT_EQ(*Append("a", "1"), 2u);
}

TEST_F(WalLogTest, NoSegmentBeginsWithoutSpaceForTheCheckpoint) {
  ASSERT_EQ(Open(), absl::OkStatus());
  log_->SetCheckpointBytes(100 << 10);
  disk_.set_capacity(120 << 10);
  uint64_t taken = 0;
  absl::Status refused;
  for (int i = 0; i < 100 && refused.ok(); ++i) {
    refused = Append("k", std::string(1000, 'v')).status();
    taken += refused.ok();
    ASSERT_EQ(log_->Write(), absl::OkStatus());
  }
  EXPECT_EQ(refused.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(refused.message(), HasSubstr("the disk is too full for the log"));
  EXPECT_GT(taken, 5u);
  // Nothing is lost, and the log goes on when there is space.
  EXPECT_EQ(log_->status(), absl::OkStatus());
  disk_.set_capacity(1 << 20);
  EXPECT_TRUE(Append("k", std::string(1000, 'v')).ok());
}

TEST_F(WalLogTest, ReservedSpaceIsKeptFromOthers) {
  options_.queue_bytes_max = 8 << 10;
  ASSERT_EQ(Open(), absl::OkStatus());
  log_->SetCheckpointBytes(100 << 10);
  uint64_t used = 0;
  for (const std::string& name : disk_.Names()) used += disk_.SizeOf(name);
  const uint64_t needed = log_->SpaceNeeded();
  EXPECT_EQ(needed, 2 * options_.segment_bytes + options_.queue_bytes_max + (100 << 10));
  disk_.set_capacity(used + needed + (50 << 10));
  EXPECT_EQ(log_->ReserveSpace(51 << 10).code(), absl::StatusCode::kResourceExhausted);
  ASSERT_EQ(log_->ReserveSpace(30 << 10), absl::OkStatus());
  EXPECT_EQ(log_->SpaceNeeded(), needed + (30 << 10));
  EXPECT_EQ(log_->ReserveSpace(21 << 10).code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(log_->ReserveSpace(20 << 10), absl::OkStatus());
  // All of it can be appended, and as much again is left.
  for (int i = 0; i < 50; ++i) {
    log_->ReleaseSpace(1 << 10);
    ASSERT_TRUE(Append("k", std::string(800, 'v')).ok()) << i;
    ASSERT_EQ(log_->Write(), absl::OkStatus());
  }
  EXPECT_EQ(log_->SpaceNeeded(), needed);
  EXPECT_EQ(log_->ReserveSpace(40 << 10).code(), absl::StatusCode::kResourceExhausted);
}

// The server refuses all writes while more is needed than is free.
TEST_F(WalLogTest, RefusedSpaceIsAtNoTimeNeeded) {
  ASSERT_EQ(Open(), absl::OkStatus());
  const uint64_t needed = log_->SpaceNeeded();
  disk_.set_capacity(needed);
  std::atomic<bool> ended{false};
  std::thread refused([&] {
    for (int i = 0; i < 50000; ++i)
      EXPECT_EQ(log_->ReserveSpace(1000).code(), absl::StatusCode::kResourceExhausted);
    ended = true;
  });
  uint64_t most = 0;
  while (!ended) most = std::max(most, log_->SpaceNeeded());
  refused.join();
  EXPECT_EQ(most, needed);
}

class WalSpareTest : public WalLogTest {
 protected:
  static constexpr uint64_t kSpareBytes = 16 << 10;

  WalSpareTest() {
    options_.spare_bytes = kSpareBytes;
    options_.space_is_low = [this] { ++times_low_; };
  }
  // Another program has taken the rest.
  void FillDisk() { disk_.set_capacity(0); }
  absl::Status AppendMark() { return log_->Append({{RecordKind::kMark, {}}}).status(); }
  std::string Newest() const { return SegmentName(directory_->current().header.newest_segment); }

  int times_low_ = 0;
};

TEST_F(WalSpareTest, ChangesAndMarksGoOnWhereTheDiskIsFull) {
  ASSERT_EQ(Open(), absl::OkStatus());
  Put("a", std::string(10 << 10, 'v'));
  EXPECT_EQ(times_low_, 0);
  const std::string segment = Newest();
  FillDisk();
  Put("b", "1");
  uint64_t marks = 0;
  for (; marks < 1000 && log_->HasSpare(); ++marks) {
    ASSERT_EQ(AppendMark(), absl::OkStatus());
    ASSERT_EQ(log_->Write(), absl::OkStatus());
    ASSERT_EQ(log_->Sync(), absl::OkStatus());
    // They need no checkpoint.
    if (marks == 100) Put("c", "1");
  }
  EXPECT_GT(marks, kSpareBytes / 2 / sizeof(RecordHeader));
  EXPECT_GT(times_low_, 0);
  EXPECT_GT(disk_.SizeOf(segment), options_.segment_bytes);
  EXPECT_EQ(AppendMark().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(log_->status(), absl::OkStatus());

  disk_.set_capacity(UINT64_MAX);
  Put("d", "1");
  EXPECT_GT(disk_.SizeOf(SegmentName(SegmentNumber(segment) + 1)), 0u);
  disk_.LosePower();
  ASSERT_EQ(Open(), absl::OkStatus());
  EXPECT_EQ(Keys(), "a b c d ");
}

// Some of what is free is left for marks.
TEST_F(WalSpareTest, WhereNothingIsReservedAMarkNeedsSomeFreeBytes) {
  disk_.set_reserves(false);
  ASSERT_EQ(Open(), absl::OkStatus());
  Put("a", "1");
  EXPECT_EQ(times_low_, 0);
  uint64_t used = 0;
  for (const std::string& name : disk_.Names()) used += disk_.SpaceOf(name);
  disk_.set_capacity(used + (5 << 20));
  EXPECT_TRUE(log_->HasSpare());
  disk_.set_capacity(used + (3 << 20));
  EXPECT_FALSE(log_->HasSpare());
}

TEST_F(WalSpareTest, PiecesAreRefusedTheSpare) {
  ASSERT_EQ(Open(), absl::OkStatus());
  FillDisk();
  const std::string bytes(14 << 10, 'v');
  const BodyPart part{BytesOfText(bytes), false};
  const NewRecord piece{RecordKind::kPiece, {&part, 1}};
  EXPECT_EQ(log_->Append({piece, piece}).status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(log_->status(), absl::OkStatus());
}

TEST_F(WalSpareTest, TheEndFindsSpace) {
  ASSERT_EQ(Open(), absl::OkStatus());
  Put("a", std::string(11 << 10, 'v'));
  FillDisk();
  EXPECT_EQ(log_->End(5), absl::OkStatus());
  disk_.set_capacity(UINT64_MAX);
  ASSERT_EQ(Open(), absl::OkStatus());
  EXPECT_TRUE(end_.clean);
}

TEST_F(WalSpareTest, OnlyTheNewestSegmentHasASpare) {
  ASSERT_EQ(Open(), absl::OkStatus());
  const std::string first = Newest();
  const auto spare_of = [this](const std::string& name) {
    return disk_.SpaceOf(name) - disk_.SizeOf(name);
  };
  EXPECT_GE(spare_of(first), kSpareBytes / 2);
  while (log_->bytes_written() < options_.segment_bytes) Put("k", std::string(1000, 'v'));
  EXPECT_EQ(spare_of(first), 0u);
  const std::string second = SegmentName(SegmentNumber(first) + 1);
  EXPECT_GE(spare_of(second), kSpareBytes / 2);
  // A life that is killed leaves it to the next one.
  Close();
  disk_.Kill();
  ASSERT_EQ(Open(), absl::OkStatus());
  EXPECT_EQ(spare_of(second), 0u);
  const std::string third = Newest();
  EXPECT_GE(spare_of(third), kSpareBytes / 2);
  ASSERT_EQ(log_->End(5), absl::OkStatus());
  EXPECT_EQ(spare_of(third), 0u);
}

// The disk does not have the queue's bytes yet, and looks as if it had room for more.
TEST_F(WalLogTest, QueuedSegmentsNeedSpaceToo) {
  ASSERT_EQ(Open(), absl::OkStatus());
  uint64_t used = 0;
  for (const std::string& name : disk_.Names()) used += disk_.SizeOf(name);
  disk_.set_capacity(used + (80 << 10));
  uint64_t taken = 0;
  while (taken < 100 && Append("k", std::string(1000, 'v')).ok()) ++taken;
  EXPECT_GT(taken, 20u);
  EXPECT_LT(taken, 80u);
  EXPECT_EQ(log_->Write(), absl::OkStatus());
}

TEST_F(WalLogTest, FailedSyncEndsTheLog) {
  ASSERT_EQ(Open(), absl::OkStatus());
  Put("a", "1");
  ASSERT_TRUE(Append("b", "2").ok());
  ASSERT_EQ(log_->Write(), absl::OkStatus());
  disk_.SetFaults(0, 100);
  const absl::Status status = log_->Sync();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  disk_.SetFaults(0, 0);
  EXPECT_EQ(log_->Sync(), status);
  EXPECT_EQ(log_->Write(), status);
  EXPECT_EQ(Append("c", "3").status(), status);
  EXPECT_EQ(log_->status(), status);
  EXPECT_EQ(log_->synced(), 1u);
}

TEST_F(WalLogTest, LongValueComesBackInPieces) {
  ASSERT_EQ(Open(), absl::OkStatus());
  std::string value;
  for (int i = 0; i < 3000; ++i) absl::StrAppend(&value, i, ",");
  Entry entry;
  entry.key = "long";
  entry.value_length = value.size();
  entry.value_checksum = Checksum(BytesOfText(value), 0);
  for (size_t at = 0; at < value.size(); at += 4096) {
    const Bytes piece = BytesOfText(value).subspan(at, 4096);
    const BodyPart part{piece, true};
    const absl::StatusOr<uint64_t> number = log_->Append({{RecordKind::kPiece, {&part, 1}}});
    ASSERT_TRUE(number.ok());
    entry.pieces.push_back({*number, static_cast<uint32_t>(piece.size()), 0});
    ASSERT_TRUE(Append("between", "1").ok());
  }
  GroupBuilder group((GroupHeader()));
  group.Add(entry);
  ASSERT_TRUE(log_->Append({{RecordKind::kEntries, group.Parts()}}).ok());
  ASSERT_EQ(log_->Write(), absl::OkStatus());
  // The tail is rewritten, and again read.
  for (int life = 0; life < 2; ++life) {
    ASSERT_EQ(Open(), absl::OkStatus());
    ASSERT_EQ(visitor_.puts.back().key, "long");
    Close();
    absl::StatusOr<std::unique_ptr<DataDirectory>> directory =
        DataDirectory::Open(disk_, NewDirectory(), [] { return 5; });
    ASSERT_EQ(directory.status(), absl::OkStatus());
    KeepingVisitor visitor;
    ASSERT_EQ(Replay(**directory, visitor).status(), absl::OkStatus());
    const KeepingVisitor::Put& put = visitor.puts.back();
    EXPECT_EQ(*ReadValue(**directory, put.entry, put.pieces), value);
  }
}

// Reads the values that it needs itself.
class TrustingVisitor final : public ReplayVisitor {
 public:
  TrustingVisitor(const DataDirectory& directory, std::string key)
      : key_read_(std::move(key)), values_(directory) {}
  absl::Status OnGroup(const LogRecord&, const Group& group,
                       const std::vector<std::vector<PiecePlace>>& pieces) override {
    for (size_t i = 0; i < group.entries.size(); ++i) {
      if (group.entries[i].key != key_read_) continue;
      const absl::StatusOr<Bytes> value = values_.Read(group.entries[i], pieces[i]);
      if (!value.ok()) return value.status();
    }
    return absl::OkStatus();
  }
  bool WantsPiecesVerified() const override { return false; }

 private:
  const std::string key_read_;
  ValueReader values_;
};

TEST_F(WalLogTest, DamagedPieceShowsWhereItsValueIsRead) {
  ASSERT_EQ(Open(), absl::OkStatus());
  const std::string value(10000, 'v');
  const uint64_t offset = kSegmentHeaderBytes + log_->bytes_written();
  const BodyPart part{BytesOfText(value), true};
  ASSERT_TRUE(log_->Append({{RecordKind::kPiece, {&part, 1}}}).ok());
  Entry entry;
  entry.key = "long";
  entry.value_length = value.size();
  entry.value_checksum = Checksum(BytesOfText(value), 0);
  entry.pieces.push_back({1, static_cast<uint32_t>(value.size()), 0});
  GroupBuilder group((GroupHeader()));
  group.Add(entry);
  ASSERT_TRUE(log_->Append({{RecordKind::kEntries, group.Parts()}}).ok());
  ASSERT_EQ(log_->End(1), absl::OkStatus());
  EXPECT_EQ(directory_->current().header.synced_to, 3u);
  TrustingVisitor before(*directory_, "long");
  EXPECT_EQ(Replay(*directory_, before).status(), absl::OkStatus());

  const std::string segment = SegmentName(end_.newest_number + 1);
  disk_.FlipBit(segment, offset + sizeof(RecordHeader) + 5000, 0);
  KeepingVisitor verifying;
  TrustingVisitor trusting(*directory_, "long");
  for (ReplayVisitor* visitor :
       {static_cast<ReplayVisitor*>(&verifying), static_cast<ReplayVisitor*>(&trusting)}) {
    const absl::Status status = Replay(*directory_, *visitor).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
    EXPECT_THAT(status.message(), HasSubstr(absl::StrCat(segment, ", offset ", offset)));
  }
  TrustingVisitor reads_others(*directory_, "other");
  EXPECT_EQ(Replay(*directory_, reads_others).status(), absl::OkStatus());
}

// Power is lost while a value's pieces come in: the tail ends with one that is torn, or lost.
TEST_F(WalLogTest, TornPiecesOfAValueAreNothing) {
  const std::string value(40000, 'v');
  for (int round = 0; round < 20; ++round) {
    ASSERT_EQ(Open(), absl::OkStatus());
    const size_t puts = visitor_.puts.size();
    Put("before", "1");
    for (size_t at = 0; at < value.size(); at += 10000) {
      const BodyPart part{BytesOfText(value).subspan(at, 10000), true};
      ASSERT_TRUE(log_->Append({{RecordKind::kPiece, {&part, 1}}}).ok());
    }
    ASSERT_EQ(log_->Write(), absl::OkStatus());
    Close();
    disk_.LosePower();
    ASSERT_EQ(Open(), absl::OkStatus());
    EXPECT_EQ(visitor_.puts.size(), puts + 1);
    Put("after", "2");
    ASSERT_EQ(Open(), absl::OkStatus());
    EXPECT_EQ(visitor_.puts.size(), puts + 2);
    EXPECT_EQ(visitor_.puts.back().key, "after");
  }
}

TEST_F(WalLogTest, CleanEndCarriesTheTime) {
  ASSERT_EQ(Open(), absl::OkStatus());
  log_->RaiseMarks(1000, 77);
  Put("a", "1");
  ASSERT_EQ(log_->End(1234), absl::OkStatus());
  ASSERT_EQ(Open(), absl::OkStatus());
  EXPECT_TRUE(end_.clean);
  EXPECT_EQ(end_.clean_time, 1234u);
  EXPECT_EQ(end_.version_ceiling, 77u);
  Put("b", "1");
  ASSERT_EQ(Open(), absl::OkStatus());
  EXPECT_FALSE(end_.clean);
  EXPECT_EQ(end_.time_mark, 1234u);
}

TEST_F(WalLogTest, SecondServerIsRefused) {
  ASSERT_EQ(Open(), absl::OkStatus());
  const auto second = DataDirectory::Open(disk_, NewDirectory(), [] { return 1; });
  EXPECT_EQ(second.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(second.status().message(), HasSubstr("another server uses"));
}

TEST_F(WalLogTest, DirectoryWithOtherFilesIsRefused) {
  disk_.Put("holiday.jpg", "x");
  const absl::Status status = Open();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(status.message(), HasSubstr("/data/holiday.jpg exists, but /data/FORMAT does not"));
}

TEST_F(WalLogTest, LostFormatFileIsNoNewDirectory) {
  ASSERT_EQ(Open(), absl::OkStatus());
  Put("a", "1");
  Close();
  disk_.Hide(kFormatName);
  EXPECT_EQ(Open().code(), absl::StatusCode::kFailedPrecondition);
  disk_.Unhide();
  disk_.Hide(kCurrentName);
  const absl::Status status = Open();
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(status.message(), HasSubstr("/data/CURRENT, offset 0: the file is missing"));
}

TEST_F(WalLogTest, DirectoryOfAnotherVersionIsRefused) {
  ASSERT_EQ(Open(), absl::OkStatus());
  FormatFile format = directory_->format();
  Close();
  format.incompatible_features = 4;
  format.Seal();
  disk_.Put(kFormatName, std::string(TextOf(BytesOf(format))));
  absl::Status status = Open();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(status.message(), HasSubstr("/data/FORMAT: it has features that this program lacks"));
  format.format = 2;
  format.Seal();
  disk_.Put(kFormatName, std::string(TextOf(BytesOf(format))));
  status = Open();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(status.message(), HasSubstr("/data/FORMAT: its format is 2; this program has format "
                                          "1; start the version of kvserver that wrote it"));
  // Without a valid checksum the version says nothing.
  disk_.FlipBit(kFormatName, 8, 0);
  EXPECT_EQ(Open().code(), absl::StatusCode::kDataLoss);
}

// A record of a kind that a newer version wrote.
TEST_F(WalLogTest, UnknownKindIsRefusedUnlessItMayBeSkipped) {
  ASSERT_EQ(Open(), absl::OkStatus());
  Put("a", "1");
  const CurrentHeader current = directory_->current().header;
  const std::string name = SegmentName(current.newest_segment);
  Close();
  const std::string before = disk_.ContentOf(name);
  for (const uint8_t flags : {kMustUnderstand, uint8_t{0}}) {
    std::string bytes = before;
    RecordHeader header;
    std::memcpy(&header, bytes.data() + kSegmentHeaderBytes, sizeof(header));
    header.kind = 99;
    header.flags = flags;
    header.header_checksum = header.HeaderChecksum(
        SeedOf(current.newest_life, current.newest_segment, kSegmentHeaderBytes));
    std::memcpy(bytes.data() + kSegmentHeaderBytes, &header, sizeof(header));
    disk_.Put(name, bytes);
    const absl::Status status = Open();
    if (flags == 0) {
      EXPECT_EQ(status, absl::OkStatus());
      EXPECT_EQ(Keys(), "");
      EXPECT_EQ(log_->appended(), 1u);
      continue;
    }
    EXPECT_THAT(status.message(), HasSubstr("a record of the unknown kind 99"));
    Close();
  }
}

TEST_F(WalLogTest, TooLongRecordIsRefused) {
  ASSERT_EQ(Open(), absl::OkStatus());
  const std::string bytes(kPieceBytesMax + 1, 'x');
  const BodyPart part{BytesOfText(bytes), true};
  EXPECT_EQ(log_->Append({{RecordKind::kPiece, {&part, 1}}}).status().code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(log_->appended(), 0u);
}

}  // namespace
}  // namespace osprey::server::wal
