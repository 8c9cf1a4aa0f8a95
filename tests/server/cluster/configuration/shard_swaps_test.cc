// The swaps of a shard's record, over a store in memory, and what is counted while one is under way.

#include "server/cluster/configuration/shard_swaps.h"

#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/cluster/configuration/cluster_record.h"
#include "server/cluster/configuration/swap_tracker.h"
#include "tests/server/cluster/right/model_store.h"

namespace osprey {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;
using ::testing::UnorderedElementsAre;
using State = SwapTracker::State;

constexpr uint32_t kMinInSync = 2;

TransactionResult Answer(TransactionOutcome outcome) {
  TransactionResult result;
  result.outcome = outcome;
  result.status = absl::UnavailableError("test");
  return result;
}

class SwapsTest : public ::testing::Test {
 protected:
  SwapsTest() {
    EXPECT_EQ(store_.Execute(CreateCluster(keys_, {1, 1, 64, 3, 2, 1, kShardBytesMin})).outcome,
              TransactionOutcome::kApplied);
    for (const char* id : {"a", "b", "c", "d"}) BeginServer(id);
  }

  // Gives the server a key, and a replica of a new incarnation.
  void BeginServer(const std::string& id) {
    Transaction creation;
    creation.operations = {StoreOperation::Put(keys_.Server(id), "x")};
    const int64_t revision = store_.Execute(creation).header.revision;
    replicas_[id] = {id, revision, ++incarnations_, 100 + incarnations_};
  }
  void EndServer(const std::string& id) {
    Transaction removal;
    removal.operations = {StoreOperation::Delete(keys_.Server(id))};
    (void)store_.Execute(removal);
  }
  int64_t KeyOf(const std::string& id) {
    const std::vector<StoredKey> keys = store_.Range({keys_.Server(id)}).keys;
    return keys.empty() ? 0 : keys[0].create_revision;
  }

  ShardAuthor Author(const std::string& id) { return {keys_, replicas_[id]}; }
  StoredShard Seen(uint32_t shard = 0) {
    const StoredKey key = store_.Range({keys_.Shard(shard)}).keys[0];
    return {shard, key.mod_revision, *DecodeShardRecord(key.value)};
  }
  TransactionOutcome Send(const absl::StatusOr<ShardSwap>& swap) {
    EXPECT_TRUE(swap.ok()) << swap.status();
    return store_.Execute(SwapTransaction(keys_, {*swap})).outcome;
  }
  void MustApply(const absl::StatusOr<ShardSwap>& swap) {
    ASSERT_EQ(Send(swap), TransactionOutcome::kApplied);
  }
  void MustBeRefused(const absl::StatusOr<ShardSwap>& swap, const std::string& why) {
    EXPECT_EQ(swap.status().code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_THAT(std::string(swap.status().message()), HasSubstr(why));
  }
  // a is primary, with b and c.
  void MakeThree(uint32_t shard = 0) {
    MustApply(AdoptShard(Author("a"), Seen(shard), 0));
    MustApply(AddMember(Author("a"), Seen(shard), replicas_["b"]));
    MustApply(AddMember(Author("a"), Seen(shard), replicas_["c"]));
  }

  const ClusterKeys keys_{"/osprey/test/"};
  ModelStore store_;
  std::map<std::string, Replica> replicas_;
  uint64_t incarnations_ = 0;
};

// --- One swap

TEST_F(SwapsTest, AnInitialShardIsAdoptedOnce) {
  const auto by_b = AdoptShard(Author("b"), Seen(), 0);
  MustApply(AdoptShard(Author("a"), Seen(), 0));
  EXPECT_EQ(Seen().record, (ShardRecord{1, "a", {replicas_["a"]}}));
  EXPECT_EQ(Send(by_b), TransactionOutcome::kRefused);
  MustBeRefused(AdoptShard(Author("b"), Seen(), 0), "it has replicas in sync");
}

TEST_F(SwapsTest, AShardThatWasGivenUpIsAdoptedInALaterTerm) {
  MustBeRefused(GiveUpShard(Seen()), "no server has data of it");
  MakeThree();
  const StoredShard before = Seen();
  const auto late = DropMember(Author("a"), before, "c", 2);
  MustApply(GiveUpShard(before));
  EXPECT_EQ(Seen().record, (ShardRecord{before.record.term, "", {}}));
  EXPECT_EQ(Send(late), TransactionOutcome::kRefused);
  MustBeRefused(GiveUpShard(Seen()), "no server has data of it");
  MustApply(AdoptShard(Author("b"), Seen(), 0));
  EXPECT_EQ(Seen().record, (ShardRecord{before.record.term + 1, "b", {replicas_["b"]}}));
}

TEST_F(SwapsTest, AReplicaWithoutAllOfItsNameAdoptsNoShard) {
  ShardAuthor author = Author("a");
  author.self.life = 0;
  MustBeRefused(AdoptShard(author, Seen(), 0), "lacks a part of its name");
}

TEST_F(SwapsTest, MembersAreAddedAndDropped) {
  MakeThree();
  EXPECT_EQ(Seen().record.in_sync,
            (std::vector<Replica>{replicas_["a"], replicas_["b"], replicas_["c"]}));
  MustBeRefused(AddMember(Author("a"), Seen(), replicas_["c"]), "drop that replica first");
  for (const Replica& one :
       {Replica{"D", 1, 1, 1}, Replica{"d", 0, 1, 1}, Replica{"d", 1, 0, 1}, Replica{"d", 1, 1, 0}})
    MustBeRefused(AddMember(Author("a"), Seen(), one), "a part of its name");
  MustApply(DropMember(Author("a"), Seen(), "b", kMinInSync));
  EXPECT_EQ(Seen().record, (ShardRecord{1, "a", {replicas_["a"], replicas_["c"]}}));
  MustBeRefused(DropMember(Author("a"), Seen(), "b", kMinInSync), "no member");
  MustBeRefused(DropMember(Author("a"), Seen(), "a", 0), "itself");
}

TEST_F(SwapsTest, AMoveEndsWithTheMemberThatItIsFrom) {
  MakeThree();
  MustBeRefused(BeginMove(Seen(), {"d", "e"}), "server d has no copy in sync");
  MustBeRefused(BeginMove(Seen(), {"c", "b"}), "server b has a copy");
  MustBeRefused(BeginMove(Seen(), {"c", "../d"}), "is no name of a server");
  MustBeRefused(EndMove(Seen()), "no copy moves");
  const auto drop = DropMember(Author("a"), Seen(), "b", kMinInSync);
  MustApply(BeginMove(Seen(), {"c", "d"}));
  EXPECT_EQ(Send(drop), TransactionOutcome::kRefused) << "the record has changed";
  MustBeRefused(BeginMove(Seen(), {"b", "d"}), "its copy at c moves to d already");
  MustApply(AddMember(Author("a"), Seen(), replicas_["d"]));
  EXPECT_EQ(Seen().record.Staying(), 3u);
  MustApply(HandOver(Author("a"), Seen(), "b", 0));
  EXPECT_EQ(Seen().record.move, (ShardMove{"c", "d"})) << "it outlives its primary";
  MustApply(DropMember(Author("b"), Seen(), "c", kMinInSync));
  EXPECT_EQ(Seen().record.move, std::nullopt);

  MustApply(BeginMove(Seen(), {"b", "c"}));
  EndServer("b");
  MustApply(PromoteSelf(Author("a"), Seen(), KeyOf("b"), 0));
  EXPECT_EQ(Seen().record.move, std::nullopt) << "it was from the primary before";
  MustApply(BeginMove(Seen(), {"d", "c"}));
  MustApply(EndMove(Seen()));
  EXPECT_EQ(Seen().record.move, std::nullopt);
}

TEST_F(SwapsTest, NoPrimaryGoesBelowMinInSync) {
  MakeThree();
  MustApply(DropMember(Author("a"), Seen(), "b", kMinInSync));
  MustBeRefused(DropMember(Author("a"), Seen(), "c", kMinInSync), "hand over");
  MustApply(DropMember(Author("a"), Seen(), "c", 1));
  MustBeRefused(DropMember(Author("a"), Seen(), "c", 1), "no member");
}

TEST_F(SwapsTest, OnlyThePrimaryChangesItsMembers) {
  MakeThree();
  MustBeRefused(DropMember(Author("b"), Seen(), "c", 1), "as primary");
  MustBeRefused(AddMember(Author("b"), Seen(), replicas_["d"]), "as primary");
  MustBeRefused(HandOver(Author("b"), Seen(), "c", 0), "as primary");
  // A name is not enough: this one has restarted.
  EndServer("a");
  BeginServer("a");
  MustBeRefused(DropMember(Author("a"), Seen(), "c", 1), "as primary");
}

TEST_F(SwapsTest, AServerWithoutItsKeyChangesNothing) {
  MakeThree();
  const ShardAuthor a = Author("a");
  EndServer("a");
  EXPECT_EQ(Send(DropMember(a, Seen(), "b", kMinInSync)), TransactionOutcome::kRefused);
  EXPECT_EQ(Send(AddMember(a, Seen(), replicas_["d"])), TransactionOutcome::kRefused);
  EXPECT_EQ(Send(HandOver(a, Seen(), "b", 0)), TransactionOutcome::kRefused);
  EXPECT_EQ(Send(RenewRecord(a, Seen())), TransactionOutcome::kRefused);
  BeginServer("a");
  EXPECT_EQ(Send(DropMember(a, Seen(), "b", kMinInSync)), TransactionOutcome::kRefused);
}

TEST_F(SwapsTest, AJoinerThatIsGoneIsNotAdded) {
  MakeThree();
  const auto swap = AddMember(Author("a"), Seen(), replicas_["d"]);
  EndServer("d");
  EXPECT_EQ(Send(swap), TransactionOutcome::kRefused);
  BeginServer("d");
  EXPECT_EQ(Send(swap), TransactionOutcome::kRefused) << "another incarnation";
  MustApply(AddMember(Author("a"), Seen(), replicas_["d"]));
}

TEST_F(SwapsTest, AMemberIsPromotedOnceThePrimarysKeyIsGone) {
  MakeThree();
  MustBeRefused(PromoteSelf(Author("b"), Seen(), KeyOf("a"), 0), "is there");
  const auto too_early = PromoteSelf(Author("b"), Seen(), 0, 0);
  EXPECT_EQ(Send(too_early), TransactionOutcome::kRefused);
  EndServer("a");
  const auto by_c = PromoteSelf(Author("c"), Seen(), 0, 0);
  MustApply(PromoteSelf(Author("b"), Seen(), 0, 7));
  EXPECT_EQ(Seen().record, (ShardRecord{8, "b", {replicas_["b"], replicas_["c"]}}));
  EXPECT_EQ(Send(by_c), TransactionOutcome::kRefused);
  MustBeRefused(PromoteSelf(Author("b"), Seen(), 0, 0), "is primary");
  MustBeRefused(PromoteSelf(Author("a"), Seen(), 0, 0), "in sync");
}

TEST_F(SwapsTest, AnotherIncarnationOfThePrimaryIsNotItsKey) {
  MakeThree();
  EndServer("a");
  BeginServer("a");
  const auto seen_absent = PromoteSelf(Author("b"), Seen(), 0, 0);
  EXPECT_EQ(Send(seen_absent), TransactionOutcome::kRefused);
  MustApply(PromoteSelf(Author("b"), Seen(), KeyOf("a"), 0));
  EXPECT_EQ(Seen().record.primary, "b");
}

TEST_F(SwapsTest, OnlyAReplicaThatIsNamedIsPromoted) {
  MakeThree();
  EndServer("a");
  MustBeRefused(PromoteSelf(Author("d"), Seen(), 0, 0), "in sync");
  ShardAuthor b = Author("b");
  b.self.life = 1;  // it has begun to copy the shard again
  MustBeRefused(PromoteSelf(b, Seen(), 0, 0), "in sync");
  const ShardAuthor c = Author("c");
  const auto swap = PromoteSelf(c, Seen(), 0, 0);
  EndServer("c");
  EXPECT_EQ(Send(swap), TransactionOutcome::kRefused) << "its own right has ended";
}

TEST_F(SwapsTest, APrimaryHandsOverToAMember) {
  MakeThree();
  MustBeRefused(HandOver(Author("a"), Seen(), "d", 0), "no member");
  MustBeRefused(HandOver(Author("a"), Seen(), "a", 0), "is the primary");
  MustApply(HandOver(Author("a"), Seen(), "b", 0));
  EXPECT_EQ(Seen().record, (ShardRecord{2, "b", {replicas_["a"], replicas_["b"], replicas_["c"]}}));
  MustBeRefused(DropMember(Author("a"), Seen(), "c", 1), "as primary");
  MustApply(DropMember(Author("b"), Seen(), "a", kMinInSync));
}

TEST_F(SwapsTest, ABackupResumesItsPlace) {
  MakeThree();
  const Replica before = replicas_["b"];
  EndServer("b");
  BeginServer("b");
  replicas_["b"].life = before.life;
  MustApply(ResumePlace(Author("b"), Seen(), before));
  EXPECT_EQ(Seen().record, (ShardRecord{1, "a", {replicas_["a"], replicas_["b"], replicas_["c"]}}));
  MustBeRefused(ResumePlace(Author("b"), Seen(), replicas_["b"]), "new incarnation");
}

TEST_F(SwapsTest, OnlyTheReplicaThatIsNamedResumes) {
  MakeThree();
  const Replica before = replicas_["b"];
  EndServer("b");
  BeginServer("b");
  MustBeRefused(ResumePlace(Author("b"), Seen(), before), "new incarnation");  // another life
  replicas_["b"].life = before.life;
  const auto resumes = ResumePlace(Author("b"), Seen(), before);
  MustApply(DropMember(Author("a"), Seen(), "b", kMinInSync));
  EXPECT_EQ(Send(resumes), TransactionOutcome::kRefused);
  MustBeRefused(ResumePlace(Author("b"), Seen(), before), "join as a new one");
  // One that is back as another replica has not given its place to the earlier one.
  Replica joined = replicas_["b"];
  joined.life = 999;
  MustApply(AddMember(Author("a"), Seen(), joined));
  MustBeRefused(ResumePlace(Author("b"), Seen(), before), "join as a new one");
}

TEST_F(SwapsTest, APrimaryThatResumesIsNoPrimaryUntilItIsPromoted) {
  MakeThree();
  const Replica before = replicas_["a"];
  EndServer("a");
  const auto late = PromoteSelf(Author("c"), Seen(), 0, 0);
  BeginServer("a");
  replicas_["a"].life = before.life;
  MustApply(ResumePlace(Author("a"), Seen(), before));
  EXPECT_EQ(Seen().record, (ShardRecord{1, "", {replicas_["a"], replicas_["b"], replicas_["c"]}}));
  EXPECT_EQ(Send(late), TransactionOutcome::kRefused);
  MustBeRefused(DropMember(Author("a"), Seen(), "b", 1), "as primary");
  // Any member may be promoted now, without the loss of another.
  const auto by_a = PromoteSelf(Author("a"), Seen(), 0, 0);
  MustApply(PromoteSelf(Author("b"), Seen(), KeyOf("a"), 0));
  EXPECT_EQ(Seen().record, (ShardRecord{2, "b", {replicas_["a"], replicas_["b"], replicas_["c"]}}));
  EXPECT_EQ(Send(by_a), TransactionOutcome::kRefused);
}

TEST_F(SwapsTest, NoTermIsAboveTheHighest) {
  MakeThree();
  EndServer("a");
  MustBeRefused(PromoteSelf(Author("b"), Seen(), 0, kTermMax), "no term above");
  MustBeRefused(HandOver(Author("a"), Seen(), "b", kTermMax), "no term above");
  MustApply(PromoteSelf(Author("b"), Seen(), 0, kTermMax - 1));
  EXPECT_EQ(Seen().record.term, kTermMax);
}

// --- Several shards

TEST_F(SwapsTest, OneTransactionPromotesInManyShards) {
  std::vector<ShardSwap> swaps;
  for (uint32_t shard = 0; shard < 64; ++shard) MakeThree(shard);
  EndServer("a");
  for (uint32_t shard = 0; shard < 64; ++shard) {
    swaps.push_back(*PromoteSelf(Author("b"), Seen(shard), 0, 0));
    swaps.back().alone = shard == 5;
  }
  const auto groups = GroupSwaps(swaps);
  ASSERT_THAT(groups, SizeIs(3));
  EXPECT_THAT(groups[0], SizeIs(1));
  EXPECT_EQ(groups[0][0].shard, 5u);
  EXPECT_THAT(groups[1], SizeIs(kSwapsMax));
  EXPECT_THAT(groups[2], SizeIs(63 - kSwapsMax));
  for (const auto& group : groups) {
    const Transaction transaction = SwapTransaction(keys_, group);
    EXPECT_LE(transaction.compares.size(), 128u) << "etcd's limit";
    EXPECT_EQ(store_.Execute(transaction).outcome, TransactionOutcome::kApplied);
  }
  for (uint32_t shard = 0; shard < 64; ++shard) EXPECT_EQ(Seen(shard).record.primary, "b");
}

TEST_F(SwapsTest, AfterAConflictEachGoesAlone) {
  MakeThree(0);
  MakeThree(1);
  SwapTracker first(0), second(1);
  ASSERT_TRUE(first.Saw(Seen(0)));
  ASSERT_TRUE(second.Saw(Seen(1)));
  EndServer("a");
  std::vector<ShardSwap> swaps = {*PromoteSelf(Author("b"), first.shard(), 0, 0),
                                  *PromoteSelf(Author("b"), second.shard(), 0, 0)};
  MustApply(PromoteSelf(Author("c"), Seen(1), 0, 0));
  first.Begin(swaps[0]);
  second.Begin(swaps[1]);
  const TransactionResult result = store_.Execute(SwapTransaction(keys_, swaps));
  ASSERT_EQ(result.outcome, TransactionOutcome::kRefused);
  EXPECT_TRUE(first.TakeAnswer(result, 0).ok());
  EXPECT_TRUE(second.TakeAnswer(result, 1).ok());
  EXPECT_TRUE(first.sends_alone());
  EXPECT_EQ(second.shard().record.primary, "c") << "the refusal has read it";
  ShardSwap again = *PromoteSelf(Author("b"), first.shard(), 0, 0);
  again.alone = first.sends_alone();
  EXPECT_THAT(GroupSwaps({again, again}), SizeIs(2));
  first.Begin(again);
  EXPECT_TRUE(first.TakeAnswer(store_.Execute(SwapTransaction(keys_, {again})), 0).ok());
  EXPECT_EQ(first.shard().record.primary, "b");
  EXPECT_FALSE(first.sends_alone());
}

// --- What is counted

class SwapTrackerTest : public SwapsTest {
 protected:
  SwapTrackerTest() {
    MakeThree();
    EXPECT_TRUE(tracker_.Saw(Seen()));
    for (const char* id : {"a", "b", "c", "d"}) all_.push_back(replicas_[id]);
  }
  ShardSwap Add() { return *AddMember(Author("a"), tracker_.shard(), replicas_["d"]); }
  ShardSwap Drop() { return *DropMember(Author("a"), tracker_.shard(), "c", kMinInSync); }
  TransactionResult Execute(const ShardSwap& swap) {
    return store_.Execute(SwapTransaction(keys_, {swap}));
  }
  std::vector<Replica> Three() const { return {all_[0], all_[1], all_[2]}; }

  SwapTracker tracker_{0};
  std::vector<Replica> all_;
};

TEST_F(SwapTrackerTest, AJoinerCountsBeforeItsSwapIsSent) {
  EXPECT_EQ(tracker_.Counted(), Three());
  const ShardSwap swap = Add();
  tracker_.Begin(swap);
  EXPECT_EQ(tracker_.state(), State::kAwaitsAnswer);
  EXPECT_EQ(tracker_.Counted(), all_);
  EXPECT_TRUE(tracker_.TakeAnswer(Execute(swap), 0).ok());
  EXPECT_EQ(tracker_.state(), State::kIdle);
  EXPECT_EQ(tracker_.Counted(), all_);
  EXPECT_EQ(tracker_.shard(), Seen());
}

TEST_F(SwapTrackerTest, ADroppedMemberCountsUntilTheSwapHasHappened) {
  const ShardSwap swap = Drop();
  tracker_.Begin(swap);
  EXPECT_EQ(tracker_.Counted(), Three());
  EXPECT_TRUE(tracker_.TakeAnswer(Execute(swap), 0).ok());
  EXPECT_THAT(tracker_.Counted(), ElementsAre(all_[0], all_[1]));
}

TEST_F(SwapTrackerTest, ASwapThatIsNotAppliedIsOver) {
  tracker_.Begin(Add());
  EXPECT_TRUE(tracker_.TakeAnswer(Answer(TransactionOutcome::kNotApplied), 0).ok());
  EXPECT_EQ(tracker_.state(), State::kIdle);
  EXPECT_EQ(tracker_.Counted(), Three());
  EXPECT_TRUE(tracker_.MayBegin(Drop()));
}

TEST_F(SwapTrackerTest, AnUnchangedRecordSaysNothingOfAnUnknownSwap) {
  const ShardSwap swap = Add();
  tracker_.Begin(swap);
  EXPECT_TRUE(tracker_.TakeAnswer(Answer(TransactionOutcome::kUnknown), 0).ok());
  EXPECT_FALSE(tracker_.Saw(Seen()));
  EXPECT_EQ(tracker_.state(), State::kUnknown);
  EXPECT_EQ(tracker_.Counted(), all_);
  EXPECT_FALSE(tracker_.MayBegin(Drop()));
  ASSERT_EQ(Execute(swap).outcome, TransactionOutcome::kApplied) << "it was late";
  EXPECT_TRUE(tracker_.Saw(Seen()));
  EXPECT_EQ(tracker_.state(), State::kIdle);
  EXPECT_EQ(tracker_.Counted(), all_);
}

TEST_F(SwapTrackerTest, AnotherRevisionSaysThatItWillNotHappen) {
  const ShardSwap swap = Add();
  tracker_.Begin(swap);
  EXPECT_TRUE(tracker_.TakeAnswer(Answer(TransactionOutcome::kUnknown), 0).ok());
  const ShardSwap renewal = RenewRecord(Author("a"), tracker_.shard());
  ASSERT_TRUE(tracker_.MayBegin(renewal));
  tracker_.Begin(renewal);
  EXPECT_EQ(tracker_.Counted(), all_);
  EXPECT_TRUE(tracker_.TakeAnswer(Execute(renewal), 0).ok());
  EXPECT_EQ(tracker_.state(), State::kIdle);
  EXPECT_EQ(tracker_.Counted(), Three());
  EXPECT_EQ(Execute(swap).outcome, TransactionOutcome::kRefused);
}

// The same swap is sent twice. It is refused the second time, since the primary's server is back for a
// while, and the first one comes later.
TEST_F(SwapTrackerTest, ARefusalSaysNothingOfAnEarlierSending) {
  EndServer("a");
  const ShardSwap swap = *PromoteSelf(Author("b"), tracker_.shard(), 0, 0);
  tracker_.Begin(swap);
  EXPECT_TRUE(tracker_.TakeAnswer(Answer(TransactionOutcome::kUnknown), 0).ok());
  BeginServer("a");
  ASSERT_TRUE(tracker_.MayBegin(swap));
  tracker_.Begin(swap);
  const TransactionResult refused = Execute(swap);
  ASSERT_EQ(refused.outcome, TransactionOutcome::kRefused);
  EXPECT_TRUE(tracker_.TakeAnswer(refused, 0).ok());
  EXPECT_EQ(tracker_.state(), State::kUnknown);
  EXPECT_FALSE(tracker_.MayBegin(RenewRecord(Author("c"), {1, 1, Seen().record})));
  EndServer("a");
  EXPECT_EQ(Execute(swap).outcome, TransactionOutcome::kApplied);
}

TEST_F(SwapTrackerTest, AFailedRenewalLeavesTheSwapUnknown) {
  tracker_.Begin(Add());
  EXPECT_TRUE(tracker_.TakeAnswer(Answer(TransactionOutcome::kUnknown), 0).ok());
  for (const TransactionOutcome outcome :
       {TransactionOutcome::kUnknown, TransactionOutcome::kNotApplied}) {
    tracker_.Begin(RenewRecord(Author("a"), tracker_.shard()));
    EXPECT_TRUE(tracker_.TakeAnswer(Answer(outcome), 0).ok());
    EXPECT_EQ(tracker_.state(), State::kUnknown);
    EXPECT_EQ(tracker_.Counted(), all_);
  }
}

// The watch has read the record before the answer comes.
TEST_F(SwapTrackerTest, AReadMayComeBeforeTheAnswer) {
  const ShardSwap swap = Drop();
  tracker_.Begin(swap);
  const TransactionResult result = Execute(swap);
  MustApply(AddMember(Author("a"), Seen(), replicas_["d"]));
  EXPECT_TRUE(tracker_.Saw(Seen()));
  EXPECT_THAT(tracker_.Counted(), ElementsAre(all_[0], all_[1], all_[3]));
  EXPECT_FALSE(tracker_.MayBegin(RenewRecord(Author("a"), Seen()))) << "the answer comes first";
  EXPECT_TRUE(tracker_.TakeAnswer(result, 0).ok());
  EXPECT_EQ(tracker_.shard(), Seen());
  EXPECT_EQ(tracker_.state(), State::kIdle);
}

TEST_F(SwapTrackerTest, AnUnknownAnswerAfterANewRevisionIsNone) {
  tracker_.Begin(Drop());
  MustApply(AddMember(Author("a"), Seen(), replicas_["d"]));
  EXPECT_TRUE(tracker_.Saw(Seen()));
  EXPECT_TRUE(tracker_.TakeAnswer(Answer(TransactionOutcome::kUnknown), 0).ok());
  EXPECT_EQ(tracker_.state(), State::kIdle);
}

TEST_F(SwapTrackerTest, ARefusalBringsTheRecordThatIsThere) {
  const ShardSwap swap = Drop();
  MustApply(AddMember(Author("a"), Seen(), replicas_["d"]));
  tracker_.Begin(swap);
  EXPECT_TRUE(tracker_.TakeAnswer(Execute(swap), 0).ok());
  EXPECT_EQ(tracker_.shard(), Seen());
  EXPECT_THAT(tracker_.Counted(), UnorderedElementsAre(all_[0], all_[1], all_[2], all_[3]));
}

TEST_F(SwapTrackerTest, APrimaryThatHandsOverIsNoneUntilThatIsSettled) {
  EXPECT_TRUE(tracker_.IsPrimary(all_[0]));
  EXPECT_FALSE(tracker_.IsPrimary(all_[1]));
  tracker_.Begin(*HandOver(Author("a"), tracker_.shard(), "b", 0));
  EXPECT_FALSE(tracker_.IsPrimary(all_[0]));
  EXPECT_FALSE(tracker_.IsPrimary(all_[1]));
  EXPECT_TRUE(tracker_.TakeAnswer(Answer(TransactionOutcome::kUnknown), 0).ok());
  EXPECT_FALSE(tracker_.Saw(Seen()));
  EXPECT_FALSE(tracker_.IsPrimary(all_[0]));
  const ShardSwap renewal = RenewRecord(Author("a"), tracker_.shard());
  tracker_.Begin(renewal);
  EXPECT_FALSE(tracker_.IsPrimary(all_[0]));
  EXPECT_TRUE(tracker_.TakeAnswer(Execute(renewal), 0).ok());
  EXPECT_TRUE(tracker_.IsPrimary(all_[0]));
}

TEST_F(SwapTrackerTest, AnswersThatNoStoreGivesAreErrors) {
  TransactionResult no_record;
  no_record.outcome = TransactionOutcome::kRefused;
  no_record.status = absl::OkStatus();
  TransactionResult gone = no_record;
  gone.results.resize(1);
  TransactionResult two = gone;
  two.results[0].keys = {{keys_.Shard(0), EncodeShardRecord(Seen().record), 1, INT64_MAX, 1},
                         {keys_.Shard(1), EncodeShardRecord(Seen().record), 1, INT64_MAX, 1}};
  TransactionResult garbage = gone;
  garbage.results[0].keys = {{keys_.Shard(0), "garbage", 1, INT64_MAX, 1}};
  TransactionResult early;
  early.outcome = TransactionOutcome::kApplied;
  early.header = {1, 1, tracker_.shard().mod_revision};
  for (const TransactionResult& result : {no_record, gone, two, garbage, early}) {
    SwapTracker tracker(0);
    ASSERT_TRUE(tracker.Saw(Seen()));
    tracker.Begin(Add());
    EXPECT_EQ(tracker.TakeAnswer(result, 0).code(), absl::StatusCode::kDataLoss);
    EXPECT_EQ(tracker.state(), State::kUnknown);
    EXPECT_EQ(tracker.Counted(), all_);
  }
}

}  // namespace
}  // namespace osprey
