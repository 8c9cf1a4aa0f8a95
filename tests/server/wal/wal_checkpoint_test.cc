// Checkpoints, step by step, on the simulated disk.

#include <pthread.h>
#include <signal.h>

#include <atomic>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/time/clock.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/wal/checkpoint_reader.h"
#include "server/wal/checkpoint_writer.h"
#include "tests/server/wal/wal_fixture.h"

namespace osprey::server::wal {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class KeepingPart final : public PartVisitor {
 public:
  void Expect(absl::Span<const CheckpointItem> coming) override {
    EXPECT_TRUE(expected_.empty());
    for (const CheckpointItem& item : coming) expected_.emplace_back(item.key);
  }
  absl::Status OnItem(const CheckpointItem& item, Bytes value) override {
    last_ = std::string(item.key);
    // Each item was announced, in this order.
    EXPECT_FALSE(expected_.empty());
    if (!expected_.empty()) {
      EXPECT_EQ(expected_.front(), last_);
      expected_.pop_front();
    }
    items[last_] = std::string(TextOf(value));
    versions[last_] = item.version;
    return absl::OkStatus();
  }
  absl::Status OnValue(Bytes bytes) override {
    absl::StrAppend(&items[last_], TextOf(bytes));
    return absl::OkStatus();
  }
  absl::Status OnSession(Bytes session) override {
    sessions.emplace_back(TextOf(session));
    return absl::OkStatus();
  }
  absl::Status OnShard(const ShardState& shard) override {
    lsns.push_back(shard.lsn);
    return absl::OkStatus();
  }

  std::map<std::string, std::string> items;
  std::map<std::string, uint64_t> versions;
  std::vector<std::string> sessions;
  std::vector<uint64_t> lsns;

 private:
  std::string last_;
  std::deque<std::string> expected_;
};

class WalCheckpointTest : public WalFixture {
 protected:
  // A checkpoint of these items in two parts, from the next record on.
  absl::Status Checkpoint(const std::map<std::string, std::string>& items) {
    absl::StatusOr<std::unique_ptr<CheckpointWriter>> writer =
        CheckpointWriter::Begin(*directory_, *log_, 2, log_->appended() + 1);
    if (!writer.ok()) return writer.status();
    uint32_t part = 0;
    absl::Status status;
    for (const auto& [key, value] : items) {
      CheckpointItem item;
      item.key = key;
      item.version = 7;
      item.value_length = value.size();
      if (status.ok()) status = (*writer)->part(part++ % 2).AddItem(item, BytesOfText(value));
    }
    if (status.ok()) status = (*writer)->part(0).AddSession(BytesOfText("one"));
    if (status.ok()) status = (*writer)->part(0).AddSession(BytesOfText("three"));
    if (status.ok()) status = (*writer)->part(1).AddShard({0, 0, 42, 0, 0, 0});
    for (uint32_t i = 0; i < 2 && status.ok(); ++i) status = (*writer)->part(i).Finish();
    if (status.ok()) status = (*writer)->Commit(log_->appended());
    return status;
  }

  absl::Status Read(std::vector<KeepingPart>& parts) {
    parts.resize(2);
    return ReadCheckpoint(*directory_, 1,
                          [&](uint32_t part) -> PartVisitor& { return parts[part]; });
  }
  std::vector<std::string> Files() const {
    std::vector<std::string> files;
    for (const std::string& name : disk_.Names()) {
      uint64_t checkpoint = 0;
      uint32_t part = 0;
      if (SegmentNumber(name) > 0 || ParsePartName(name, checkpoint, part)) files.push_back(name);
    }
    return files;
  }
};

TEST_F(WalCheckpointTest, ReturnsWhatWasWritten) {
  ASSERT_EQ(Open(), absl::OkStatus());
  std::map<std::string, std::string> items;
  for (int i = 0; i < 3000; ++i) items[absl::StrCat("key", i)] = std::string(i % 700, 'v');
  items["long"] = std::string(3'000'000, 'l');
  items["empty"] = "";
  ASSERT_EQ(Checkpoint(items), absl::OkStatus());
  ASSERT_EQ(Open(), absl::OkStatus());
  std::vector<KeepingPart> parts;
  ASSERT_EQ(Read(parts), absl::OkStatus());
  std::map<std::string, std::string> read = parts[0].items;
  read.insert(parts[1].items.begin(), parts[1].items.end());
  EXPECT_EQ(read, items);
  EXPECT_EQ(parts[0].versions.begin()->second, 7u);
  EXPECT_THAT(parts[0].sessions, ElementsAre("one", "three"));
  EXPECT_THAT(parts[1].lsns, ElementsAre(42));
}

TEST_F(WalCheckpointTest, LongPartIsSyncedAsItGrows) {
  ASSERT_EQ(Open(), absl::OkStatus());
  int syncs = 0;
  disk_.set_during_sync([&](const std::string& name) { syncs += name == PartName(1, 0); });
  ASSERT_EQ(Checkpoint({{"long", std::string(40 << 20, 'l')}}), absl::OkStatus());
  EXPECT_GE(syncs, 4);
  EXPECT_LE(syncs, 6);
}

TEST_F(WalCheckpointTest, LogBeforeItIsRemovedAndNotReplayed) {
  ASSERT_EQ(Open(), absl::OkStatus());
  for (int i = 0; i < 20; ++i) Put("old", std::string(3000, 'v'));
  ASSERT_EQ(Checkpoint({{"old", "x"}}), absl::OkStatus());
  Put("new", "1");
  ASSERT_EQ(Checkpoint({{"old", "x"}, {"new", "1"}}), absl::OkStatus());
  Put("newer", "1");
  const CurrentHeader current = directory_->current().header;
  EXPECT_THAT(Files(),
              ElementsAre(PartName(2, 0), PartName(2, 1), SegmentName(current.redo_segment)));
  ASSERT_EQ(Open(), absl::OkStatus());
  EXPECT_EQ(Keys(), "newer ");
}

TEST_F(WalCheckpointTest, FailedOneLeavesTheOneBefore) {
  ASSERT_EQ(Open(), absl::OkStatus());
  Put("a", "1");
  ASSERT_EQ(Checkpoint({{"a", "1"}}), absl::OkStatus());
  const std::vector<std::string> files = Files();
  disk_.SetFaults(100, 0);
  EXPECT_EQ(Checkpoint({{"a", "2"}}).code(), absl::StatusCode::kUnavailable);
  disk_.SetFaults(0, 0);
  EXPECT_EQ(Files(), files);
  // Tried again.
  EXPECT_EQ(Checkpoint({{"a", "3"}}), absl::OkStatus());
  ASSERT_EQ(Open(), absl::OkStatus());
  std::vector<KeepingPart> parts;
  ASSERT_EQ(Read(parts), absl::OkStatus());
  EXPECT_EQ(parts[0].items["a"], "3");
}

TEST_F(WalCheckpointTest, WrongWriteIsFoundBeforeItCounts) {
  ASSERT_EQ(Open(), absl::OkStatus());
  disk_.SetWrongWrites(1);
  const absl::Status status = Checkpoint({{"a", "1"}});
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(status.message(), HasSubstr(PartName(1, 0)));
  EXPECT_EQ(directory_->current().header.checkpoint, 0u);
}

TEST_F(WalCheckpointTest, EveryFlippedBitIsFound) {
  ASSERT_EQ(Open(), absl::OkStatus());
  ASSERT_EQ(Checkpoint({{"a", "1"}, {"b", "2"}, {"c", std::string(70'000, 'c')}}),
            absl::OkStatus());
  for (const std::string& name : {PartName(1, 0), PartName(1, 1)}) {
    const uint64_t size = disk_.SizeOf(name);
    for (uint64_t offset = 0; offset < size;
         offset += offset < 400 || offset + 400 > size ? 1 : 997) {
      disk_.FlipBit(name, offset, offset % 8);
      std::vector<KeepingPart> parts;
      const absl::Status status = Read(parts);
      EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss) << name << " " << offset;
      EXPECT_THAT(status.message(), HasSubstr(name));
      disk_.FlipBit(name, offset, offset % 8);
    }
  }
}

// Each part waits for the other one's thread. Signals are for the server's first thread.
TEST_F(WalCheckpointTest, PartsAreReadOnSeveralThreads) {
  ASSERT_EQ(Open(), absl::OkStatus());
  ASSERT_EQ(Checkpoint({{"a", "1"}, {"b", "2"}}), absl::OkStatus());
  std::vector<KeepingPart> parts(2);
  const std::thread::id caller = std::this_thread::get_id();
  std::atomic<int> reading{0}, blocked{-1};
  const auto visitor_of = [&](uint32_t part) -> PartVisitor& {
    ++reading;
    const absl::Time end = absl::Now() + absl::Seconds(20);
    while (reading < 2 && absl::Now() < end) absl::SleepFor(absl::Milliseconds(1));
    if (std::this_thread::get_id() != caller) {
      sigset_t mask;
      pthread_sigmask(SIG_BLOCK, nullptr, &mask);
      blocked = sigismember(&mask, SIGTERM);
    }
    return parts[part];
  };
  ASSERT_EQ(ReadCheckpoint(*directory_, 8, visitor_of), absl::OkStatus());
  EXPECT_EQ(parts[0].items.size() + parts[1].items.size(), 2u);
  EXPECT_EQ(blocked, 1);
}

// The disk's CURRENT may name the parts of the checkpoint that failed, and the next one would have their
// names.
TEST_F(WalCheckpointTest, NoCheckpointBeginsOnceCurrentIsUncertain) {
  for (int attempt = 0; attempt == 0 || !directory_->uncertain(); ++attempt) {
    ASSERT_LT(attempt, 1000);
    Close();
    disk_.LosePower();
    ASSERT_EQ(Open(), absl::OkStatus());
    disk_.SetFaults(0, 20);
    (void)Checkpoint({{"a", "1"}});
    disk_.SetFaults(0, 0);
  }
  const std::vector<std::string> names = disk_.Names();
  EXPECT_EQ(Checkpoint({{"a", "2"}}).code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(disk_.Names(), names);
  Close();
  disk_.Kill();
  ASSERT_EQ(Open(), absl::OkStatus());
  KeepingPart part;
  EXPECT_EQ(ReadCheckpoint(*directory_, 1, [&](uint32_t) -> PartVisitor& { return part; }),
            absl::OkStatus());
  EXPECT_EQ(part.items["a"], "1");
}

}  // namespace
}  // namespace osprey::server::wal
