// A primary's pollers and its cluster thread, at the log between them.

#include "server/cluster/node/replicated_writes.h"

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <future>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "gtest/gtest.h"
#include "rdma/reasons.h"
#include "server/cluster/table/replicated_changes.h"
#include "server/cluster/table/value_parts.h"
#include "server/wal/format/entries.h"

namespace osprey::server {
namespace {

constexpr std::chrono::seconds kPatience(30);

// Whether the call goes on waiting.
bool Waits(std::future<absl::Status>& call) {
  return call.wait_for(std::chrono::milliseconds(50)) == std::future_status::timeout;
}

class ReplicatedWritesTest : public ::testing::Test {
 protected:
  // A Commit on a thread of its own, which has begun to wait.
  std::future<absl::Status> CommitAside() {
    std::future<absl::Status> call =
        std::async(std::launch::async, [this] { return writes_.Commit(); });
    for (const absl::Time end = absl::Now() + absl::Seconds(30);
         writes_.awaiting() == 0 && absl::Now() < end;)
      absl::SleepFor(absl::Milliseconds(1));
    EXPECT_EQ(writes_.awaiting(), 1u);
    return call;
  }

  absl::Status Result(std::future<absl::Status>& call) {
    if (call.wait_for(kPatience) == std::future_status::ready) return call.get();
    writes_.End(absl::UnavailableError("the test is over"));
    return absl::DeadlineExceededError("it still waits");
  }

  int wakes_ = 0;
  ReplicatedWrites writes_{[this] { ++wakes_; }};
};

TEST_F(ReplicatedWritesTest, CommitsFailUntilTheServerIsThePrimary) {
  EXPECT_EQ(writes_.Commit().code(), absl::StatusCode::kUnavailable);
  writes_.Begin();
  EXPECT_TRUE(writes_.Commit().ok());
}

TEST_F(ReplicatedWritesTest, ACommitWaitsForWhatWasDecidedBefore) {
  writes_.Begin();
  writes_.Decide(0, "one", 1);
  writes_.Decide(1, "two", 1);
  std::future<absl::Status> call = CommitAside();
  writes_.NoteCommitted(1);
  EXPECT_TRUE(Waits(call));
  writes_.NoteCommitted(2);
  EXPECT_TRUE(Result(call).ok());
  EXPECT_EQ(writes_.awaiting(), 0u);
}

TEST_F(ReplicatedWritesTest, ACommitDoesNotWaitForWhatWasDecidedLater) {
  writes_.Begin();
  writes_.Decide(0, "one", 1);
  std::future<absl::Status> call = CommitAside();
  writes_.Decide(0, "two", 1);
  writes_.NoteCommitted(1);
  EXPECT_TRUE(Result(call).ok());
}

// A poller gives its sessions meanwhile: the server that its write waits for may be one that joins.
TEST_F(ReplicatedWritesTest, ACommitThatWaitsLetsItsCallerWork) {
  writes_.Begin();
  writes_.Decide(0, "one", 1);
  int calls = 0;
  const absl::Status committed = writes_.CommitWith([&] {
    // The lock is free: the owner goes on.
    if (++calls == 3) writes_.NoteCommitted(1);
  });
  EXPECT_TRUE(committed.ok());
  EXPECT_EQ(calls, 3);
  // Nothing is left to wait for.
  EXPECT_TRUE(writes_.CommitWith([&] { ++calls; }).ok());
  EXPECT_EQ(calls, 3);
}

TEST_F(ReplicatedWritesTest, TheEndFailsCommitsThatWaitAndLaterOnes) {
  writes_.Begin();
  writes_.Decide(0, "one", 1);
  std::future<absl::Status> call = CommitAside();
  writes_.End(absl::UnavailableError("another is the primary"));
  EXPECT_EQ(Result(call).message(), "another is the primary");
  EXPECT_EQ(writes_.Commit().message(), "another is the primary");
}

// Its answer would come from a server that may be no primary any more.
TEST_F(ReplicatedWritesTest, WhatIsCommittedFailsAfterTheEnd) {
  writes_.Begin();
  writes_.Decide(0, "one", 1);
  writes_.NoteCommitted(1);
  writes_.End(absl::UnavailableError("another is the primary"));
  EXPECT_FALSE(writes_.Commit().ok());
}

TEST_F(ReplicatedWritesTest, GroupsAreTakenInOrderAndOnce) {
  writes_.Begin();
  writes_.Decide(3, "one", 1);
  writes_.Decide(0, "two", 2);
  const std::vector<ReplicatedWrites::Group> groups = writes_.TakeDecided();
  ASSERT_EQ(groups.size(), 2u);
  EXPECT_EQ(groups[0].number, 1u);
  EXPECT_EQ(groups[0].body, "one");
  EXPECT_EQ(groups[1].number, 2u);
  EXPECT_EQ(groups[1].body, "two");
  EXPECT_EQ(groups[1].entries, 2u);
  EXPECT_TRUE(writes_.TakeDecided().empty());
}

TEST_F(ReplicatedWritesTest, WhatWasNotTakenIsDroppedAtTheEndAndNumbersGoOn) {
  writes_.Begin();
  writes_.Decide(0, "one", 1);
  writes_.End(absl::UnavailableError("another is the primary"));
  writes_.Decide(0, "two", 1);  // of an engine that has not ended yet
  EXPECT_EQ(writes_.TakeDropped(), (std::vector<std::string>{"one", "two"}));
  EXPECT_TRUE(writes_.TakeDropped().empty());
  writes_.Begin();
  EXPECT_TRUE(writes_.TakeDecided().empty());
  // It is the primary again, and nothing of before is waited for.
  EXPECT_TRUE(writes_.Commit().ok());
  writes_.Decide(0, "three", 1);
  std::future<absl::Status> call = CommitAside();
  EXPECT_TRUE(Waits(call));
  ASSERT_EQ(writes_.TakeDecided().at(0).number, 3u);
  writes_.NoteCommitted(3);
  EXPECT_TRUE(Result(call).ok());
}

TEST_F(ReplicatedWritesTest, TheOwnerIsWokenOnceACommitWaits) {
  writes_.Begin();
  writes_.Decide(0, "one", 1);
  EXPECT_EQ(wakes_, 0);
  std::future<absl::Status> call = CommitAside();
  writes_.NoteCommitted(1);
  EXPECT_TRUE(Result(call).ok());
  EXPECT_EQ(wakes_, 1);
  EXPECT_TRUE(writes_.Commit().ok());
  EXPECT_EQ(wakes_, 1) << "nothing is waited for";
}

// Commits at once, or leaves that to the owner.
class FakeDriver final : public CommitDriver {
 public:
  explicit FakeDriver(ReplicatedWrites& writes) : writes_(writes) {}
  void Drive(absl::FunctionRef<bool()> is_over) override {
    EXPECT_FALSE(is_over());
    ++drives;
    if (!commits) return;
    writes_.NoteCommitted(writes_.decided());
    EXPECT_TRUE(is_over());
  }
  int drives = 0;
  bool commits = true;

 private:
  ReplicatedWrites& writes_;
};

TEST_F(ReplicatedWritesTest, ACommitThatHasToWaitDrives) {
  FakeDriver driver(writes_);
  writes_.Begin(&driver);
  EXPECT_TRUE(writes_.Commit().ok());
  EXPECT_EQ(driver.drives, 0);
  writes_.Decide(0, "one", 1);
  EXPECT_TRUE(writes_.Commit().ok());
  EXPECT_EQ(driver.drives, 1);
  driver.commits = false;
  writes_.Decide(0, "two", 1);
  std::future<absl::Status> call = CommitAside();
  EXPECT_TRUE(Waits(call));
  writes_.NoteCommitted(2);
  EXPECT_TRUE(Result(call).ok());
  EXPECT_EQ(driver.drives, 2);
  EXPECT_EQ(wakes_, 0) << "that is the driver's";
}

TEST_F(ReplicatedWritesTest, WritesAreRefusedAndTakenAgain) {
  EXPECT_TRUE(writes_.MayWrite().ok());
  writes_.RefuseWith(absl::UnavailableError("too few servers"));
  EXPECT_EQ(writes_.MayWrite().message(), "too few servers");
  writes_.RefuseWith(absl::OkStatus());
  EXPECT_TRUE(writes_.MayWrite().ok());
}

TEST_F(ReplicatedWritesTest, SessionsBeginAndEndByGroupsOfTheirOwn) {
  writes_.Begin();
  writes_.SessionBegun(5);
  writes_.SessionEnded(5);
  const std::vector<ReplicatedWrites::Group> groups = writes_.TakeDecided();
  ASSERT_EQ(groups.size(), 2u);
  EXPECT_EQ(groups[0].body, SessionBody(wal::EntryKind::kSessionBegin, 5));
  EXPECT_EQ(groups[1].body, SessionBody(wal::EntryKind::kSessionEnd, 5));
  EXPECT_EQ(groups[1].entries, 1u);
}

// *Else* a server with too few copies answers no client that connects.
TEST_F(ReplicatedWritesTest, SessionsAreDecidedOnceWritesMayBe) {
  writes_.Begin();
  writes_.RefuseWith(absl::UnavailableError("too few servers"));
  writes_.SessionBegun(5);
  ASSERT_EQ(writes_.decided(), 0u);
  EXPECT_EQ(writes_.Commit(), absl::OkStatus());
  writes_.RefuseWith(absl::OkStatus());
  EXPECT_EQ(wakes_, 1);
  writes_.Decide(0, "its write", 1);
  const std::vector<ReplicatedWrites::Group> groups = writes_.TakeDecided();
  ASSERT_EQ(groups.size(), 2u);
  EXPECT_EQ(groups[0].body, SessionBody(wal::EntryKind::kSessionBegin, 5));
  EXPECT_EQ(groups[1].body, "its write");
}

TEST_F(ReplicatedWritesTest, ASessionThatBeganAndEndedMeanwhileIsNotDecided) {
  writes_.Begin();
  writes_.SessionBegun(4);
  writes_.RefuseWith(absl::UnavailableError("too few servers"));
  writes_.SessionBegun(5);
  writes_.SessionEnded(4);
  writes_.SessionEnded(5);
  writes_.RefuseWith(absl::OkStatus());
  const std::vector<ReplicatedWrites::Group> groups = writes_.TakeDecided();
  ASSERT_EQ(groups.size(), 2u);
  EXPECT_EQ(groups[0].body, SessionBody(wal::EntryKind::kSessionBegin, 4));
  EXPECT_EQ(groups[1].body, SessionBody(wal::EntryKind::kSessionEnd, 4));
}

TEST_F(ReplicatedWritesTest, SessionsOfAPrimaryThatHasEndedAreNotDecidedLater) {
  writes_.Begin();
  writes_.RefuseWith(absl::UnavailableError("too few servers"));
  writes_.SessionBegun(5);
  writes_.End(absl::UnavailableError("the primary is another one"));
  writes_.Begin();
  writes_.RefuseWith(absl::OkStatus());
  EXPECT_TRUE(writes_.TakeDecided().empty());
}

// *Else* the groups of the next time as a primary never count as made.
TEST_F(ReplicatedWritesTest, WhatWasDroppedIsNotPending) {
  writes_.Begin();
  ReplicatedChanges changes(0, writes_, [] { return uint64_t{1}; });
  changes.BeginPending(/*hash=*/5);
  writes_.Decide(0, "one", 1);
  EXPECT_EQ(changes.oldest_pending(), 1u);
  changes.DropPending();
  EXPECT_EQ(changes.oldest_pending(), UINT64_MAX);
  EXPECT_FALSE(changes.IsPending(5));
}

// --- Values in parts -----------------------------------------------------------

class PartsTest : public ReplicatedWritesTest {
 protected:
  PartsTest() { writes_.Begin(); }
  std::unique_ptr<ValueUpload> NewUpload() {
    absl::StatusOr<std::unique_ptr<ValueUpload>> upload =
        writes_.BeginUpload(3, "key", value_.size());
    EXPECT_TRUE(upload.ok()) << upload.status();
    return *std::move(upload);
  }
  // As many parts as may go now.
  int Add(ValueUpload& upload) {
    int added = 0;
    for (uint64_t before = writes_.decided();; before = writes_.decided(), ++added) {
      EXPECT_TRUE(upload.Log(value_, value_.size()).ok());
      if (writes_.decided() == before) return added;
    }
  }
  void AddAll(ValueUpload& upload) {
    while (!upload.IsLogged()) {
      writes_.NoteCommitted(writes_.decided());
      ASSERT_GT(Add(upload), 0);
    }
  }
  std::vector<wal::EntryKind> TakeKinds() {
    std::vector<wal::EntryKind> kinds;
    for (const ReplicatedWrites::Group& taken : writes_.TakeDecided()) {
      wal::Group group;
      EXPECT_EQ(wal::ParseGroup(wal::BytesOfText(taken.body), group), "");
      EXPECT_EQ(group.header.shard, 3u);
      for (const wal::Entry& entry : group.entries) kinds.push_back(entry.kind);
    }
    return kinds;
  }

  static constexpr size_t kParts = 12;
  const std::vector<std::byte> value_ =
      std::vector<std::byte>(kParts * kValuePartBytesMax - 5, std::byte{7});
};

TEST_F(PartsTest, AShortValueComesWithItsPut) {
  EXPECT_EQ(*writes_.BeginUpload(0, "key", kReplicatedValueBytesMax), nullptr);
}

TEST_F(PartsTest, AServerThatTakesNoneBoundsValues) {
  writes_.SetTakesParts(false);
  const absl::Status refusal = writes_.BeginUpload(0, "key", value_.size()).status();
  EXPECT_EQ(ReasonOf(refusal), Reason::kValueTooLong);
  EXPECT_EQ(*writes_.BeginUpload(0, "key", kReplicatedValueBytesMax), nullptr);
  writes_.SetTakesParts(true);
  EXPECT_NE(NewUpload(), nullptr);
}

TEST_F(PartsTest, GoWhenTheValueIsWhole) {
  const std::unique_ptr<ValueUpload> upload = NewUpload();
  EXPECT_TRUE(upload->Log(value_, value_.size() - 1).ok());
  EXPECT_EQ(writes_.decided(), 0u);
  // Its bytes are awaited.
  EXPECT_FALSE(upload->IsBehind());
  EXPECT_GT(Add(*upload), 0);
  EXPECT_GT(wakes_, 0);
}

TEST_F(PartsTest, WaitForThoseBefore) {
  const std::unique_ptr<ValueUpload> upload = NewUpload();
  const int first = Add(*upload);
  EXPECT_LT(first, static_cast<int>(kParts));
  EXPECT_TRUE(upload->IsBehind());
  writes_.NoteCommitted(1);
  EXPECT_FALSE(upload->IsBehind());
  EXPECT_EQ(Add(*upload), 1);
  AddAll(*upload);
  EXPECT_TRUE(upload->IsLogged());
  EXPECT_FALSE(upload->IsBehind());
  EXPECT_EQ(TakeKinds(), std::vector<wal::EntryKind>(kParts, wal::EntryKind::kValuePart));
}

TEST_F(PartsTest, GoForOneValueAfterTheOther) {
  std::unique_ptr<ValueUpload> first = NewUpload();
  std::unique_ptr<ValueUpload> second = NewUpload();
  EXPECT_GT(Add(*first), 0);
  EXPECT_EQ(Add(*second), 0);
  EXPECT_TRUE(second->IsBehind());
  AddAll(*first);
  EXPECT_EQ(Add(*second), 0) << "the first one's put is not made";
  static_cast<PartedValue&>(*first).NoteNamed();
  first.reset();
  writes_.NoteCommitted(writes_.decided());
  EXPECT_FALSE(second->IsBehind());
  EXPECT_GT(Add(*second), 0);
}

TEST_F(PartsTest, EndWhenTheirPutDoesNotCome) {
  std::unique_ptr<ValueUpload> upload = NewUpload();
  const int added = Add(*upload);
  upload.reset();
  std::vector<wal::EntryKind> kinds(static_cast<size_t>(added), wal::EntryKind::kValuePart);
  kinds.push_back(wal::EntryKind::kPartsDropped);
  EXPECT_EQ(TakeKinds(), kinds);
  // One that is given up is ended once.
  writes_.NoteCommitted(writes_.decided());
  upload = NewUpload();
  std::unique_ptr<ValueUpload> next = NewUpload();
  EXPECT_GT(Add(*upload), 0);
  EXPECT_EQ(Add(*next), 0);
  upload->GiveUp();
  EXPECT_EQ(Add(*upload), 0);
  EXPECT_TRUE(upload->IsBehind());
  writes_.NoteCommitted(writes_.decided());
  EXPECT_GT(Add(*next), 0);
  const uint64_t decided = writes_.decided();
  upload.reset();
  EXPECT_EQ(writes_.decided(), decided);
  next.reset();
  (void)TakeKinds();
  // One that has sent none leaves nothing.
  NewUpload().reset();
  EXPECT_TRUE(TakeKinds().empty());
}

// A joiner's groups begin behind what is applied.
TEST_F(PartsTest, CountAsAppliedWithTheirPut) {
  writes_.Decide(3, "before", 1);
  std::unique_ptr<ValueUpload> upload = NewUpload();
  AddAll(*upload);
  const uint64_t last_part = writes_.decided();
  EXPECT_EQ(writes_.TakeWhole(last_part), 1u);
  writes_.Decide(3, "put", 1);
  static_cast<PartedValue&>(*upload).NoteNamed();
  EXPECT_EQ(writes_.TakeWhole(last_part + 1), 1u) << "the put is not made";
  upload.reset();
  EXPECT_EQ(writes_.TakeWhole(last_part), 1u) << "another write is older than the put";
  EXPECT_EQ(writes_.TakeWhole(last_part + 1), last_part + 1);
  writes_.Decide(3, "after", 1);
  EXPECT_EQ(writes_.TakeWhole(last_part + 2), last_part + 2);
}

// It is the engines' that end, and the log of this server keeps the groups for the backup that it becomes.
TEST_F(PartsTest, OfAPrimaryThatEndsStayOpen) {
  std::unique_ptr<ValueUpload> upload = NewUpload();
  Add(*upload);
  const uint64_t added = writes_.decided();
  writes_.End(absl::UnavailableError("another is the primary"));
  EXPECT_FALSE(upload->IsBehind()) << "it ends, and does not wait";
  EXPECT_EQ(Add(*upload), 0);
  EXPECT_TRUE(upload->IsLogged()) << "its Commit fails";
  upload.reset();
  EXPECT_EQ(writes_.decided(), added);
  EXPECT_EQ(writes_.TakeWhole(added), 0u);
  writes_.Begin();
  EXPECT_EQ(writes_.TakeWhole(added), added);
}

}  // namespace
}  // namespace osprey::server
