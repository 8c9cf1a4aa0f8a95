// A primary and its members, step by step: which of them count while a swap is under way.

#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "tests/server/cluster/member/shard_member_fixture.h"

namespace osprey {
namespace {

TEST_F(ShardMemberTest, AJoinerIsWaitedForBeforeTheSwapIsSent) {
  Exchange();
  const Transaction addition = Begin(0);
  const uint64_t lsn = Decide();
  EXPECT_LT(nodes_[0].member.commit_point(), lsn);
  // Without an answer it goes on waiting.
  EXPECT_TRUE(nodes_[0].member.TakeAnswer({}, 0, now_).ok());
  EXPECT_LT(nodes_[0].member.commit_point(), lsn);
  Exchange();
  EXPECT_EQ(nodes_[0].member.commit_point(), lsn);
  store_.Execute(addition);
  ReadAll();
  EXPECT_EQ(nodes_[0].member.record().record.in_sync.size(), 2u);
}

TEST_F(ShardMemberTest, ADroppedMemberIsWaitedForUntilTheRecordIsKnown) {
  Join();
  ASSERT_EQ(nodes_[0].member.record().record.in_sync.size(), 2u);
  const int silent = nodes_[1].member.replica().role() == ShardReplica::Role::kBackup ? 1 : 2;
  const uint64_t lsn = Decide();
  now_ += absl::Seconds(2);
  Exchange(silent);
  EXPECT_LT(nodes_[0].member.commit_point(), lsn);
  const Transaction removal = Begin(0);
  EXPECT_LT(nodes_[0].member.commit_point(), lsn);
  const TransactionResult result = store_.Execute(removal);
  EXPECT_LT(nodes_[0].member.commit_point(), lsn);
  EXPECT_TRUE(nodes_[0].member.TakeAnswer(result, 0, now_).ok());
  EXPECT_EQ(nodes_[0].member.commit_point(), lsn);
}

// It may be silent because this server stood still. *Else* no server has the data once this one has ended.
TEST_F(ShardMemberTest, AServerThatEndsDropsNoSilentMember) {
  Join();
  const int silent = nodes_[1].member.replica().role() == ShardReplica::Role::kBackup ? 1 : 2;
  Decide();
  nodes_[0].member.SetEnds(true);
  now_ += absl::Seconds(2);
  Exchange(silent);
  EXPECT_FALSE(nodes_[0].member.WantedSwap(watch_, now_).has_value());
  nodes_[0].member.SetEnds(false);
  EXPECT_TRUE(nodes_[0].member.WantedSwap(watch_, now_).has_value());
}

TEST_F(ShardMemberTest, AMemberWithoutRoomIsDroppedAndJoinsLater) {
  Join();
  const int full = nodes_[1].member.replica().role() == ShardReplica::Role::kBackup ? 1 : 2;
  nodes_[full].table.is_full = true;
  Decide();
  Exchange();
  ASSERT_EQ(log_.size(), 1u);
  EXPECT_EQ(log_[0],
            "shard 0 has no replica here any more, and joins again in 10s: memory is full");
  Swap(0);
  ReadAll();
  EXPECT_EQ(nodes_[0].member.record().record.Find(Id(full)), nullptr);
  EXPECT_EQ(nodes_[full].member.replica().role(), ShardReplica::Role::kOut);
  nodes_[full].table.is_full = false;
  Join();  // the third server
  Exchange();
  EXPECT_EQ(nodes_[full].member.replica().role(), ShardReplica::Role::kOut);
  now_ += absl::Seconds(10);
  Exchange();
  EXPECT_NE(nodes_[full].member.replica().role(), ShardReplica::Role::kOut);
}

TEST_F(ShardMemberTest, AJoinerAwaitsTheCommitOfWhatItsCopyMayHave) {
  Join();
  const int backup = nodes_[1].member.replica().role() == ShardReplica::Role::kBackup ? 1 : 2;
  const int joiner = 3 - backup;
  const uint64_t lsn = Decide();
  Exchange(backup, 35);
  EXPECT_EQ(nodes_[joiner].member.replica().role(), ShardReplica::Role::kJoining);
  EXPECT_EQ(nodes_[joiner].member.replica().log().last(), lsn);
  EXPECT_LT(nodes_[0].member.commit_point(), lsn);
  EXPECT_FALSE(nodes_[0].member.WantedSwap(watch_, now_).has_value());
  // What is lost is sent again on the next link.
  nodes_[0].member.LinkDown(kIncarnations[backup]);
  nodes_[0].member.LinkUp(kIncarnations[backup]);
  Exchange();
  EXPECT_EQ(nodes_[0].member.commit_point(), lsn);
  Swap(0);
  EXPECT_EQ(nodes_[0].member.record().record.in_sync.size(), 3u);
}

// *Else* each write alone costs a backup two appends and two answers.
TEST_F(ShardMemberTest, ACommitPointWaitsForTheNextGroups) {
  Join();
  Exchange();
  const int backup = nodes_[1].member.replica().role() == ShardReplica::Role::kBackup ? 1 : 2;
  const auto append = [&]() -> std::optional<Append> {
    nodes_[0].sent.clear();
    nodes_[0].member.Pump(now_);
    for (const auto& [to, message] : nodes_[0].sent) {
      if (to != kIncarnations[backup]) continue;
      Take(backup, message.first, message.second);
      Take(0, PeerMessageKind::kAck, nodes_[backup].sent.back().second.second);
      return *DecodeAppend(message.second);
    }
    return std::nullopt;
  };
  const uint64_t one = Decide();
  ASSERT_TRUE(append().has_value());
  EXPECT_EQ(nodes_[0].member.commit_point(), one);
  now_ += absl::Milliseconds(4);
  EXPECT_FALSE(append().has_value());
  const uint64_t two = Decide();
  EXPECT_EQ(append()->commit_point, one);
  now_ += absl::Milliseconds(5);
  EXPECT_EQ(append()->commit_point, two);
}

TEST_F(ShardMemberTest, ANameIsUsedForOneCopy) {
  const ReplicaName joiner{kIncarnations[1], 77};
  EXPECT_EQ(TakeAtPrimary(CopyKind::kJoin, joiner), CopyKind::kBegin);
  EXPECT_EQ(TakeAtPrimary(CopyKind::kJoin, joiner), CopyKind::kRefused);
  EXPECT_EQ(TakeAtPrimary(CopyKind::kWhole, joiner), CopyKind::kRefused);
  EXPECT_EQ(TakeAtPrimary(CopyKind::kJoin, {kIncarnations[1], 78}), CopyKind::kBegin);
}

TEST_F(ShardMemberTest, ACopyLeavesRoomToAppends) {
  EXPECT_EQ(TakeAtPrimary(CopyKind::kJoin, {kIncarnations[1], 77}), CopyKind::kBegin);
  const auto sends_copy = [&] {
    nodes_[0].sent.clear();
    nodes_[0].member.Pump(now_);
    for (const auto& [to, message] : nodes_[0].sent) {
      if (message.first == PeerMessageKind::kCopy) return true;
    }
    return false;
  };
  nodes_[0].room = kCopyBytesMax;
  EXPECT_FALSE(sends_copy());
  nodes_[0].room = kCopyBytesMax + (1 << 20);
  EXPECT_TRUE(sends_copy());
}

class CopyRateTest : public ShardMemberTest {
 protected:
  CopyRateTest() : ShardMemberTest(/*copy_rate=*/1 << 20) {}
};

TEST_F(CopyRateTest, ACopyTakesItsTime) {
  nodes_[0].table.long_chunks = 16;  // 1 MiB
  Exchange(/*silent=*/-1, /*rounds=*/45);
  EXPECT_FALSE(nodes_[0].member.WantedSwap(watch_, now_).has_value()) << "after 0.9 s";
  EXPECT_LE(nodes_[0].table.long_chunks, 2);
  Exchange(/*silent=*/-1, /*rounds=*/15);
  EXPECT_TRUE(nodes_[0].member.WantedSwap(watch_, now_).has_value()) << "after 1.2 s";
}

// A turn that comes late makes up for 50 ms, and for no more.
TEST(CopyRateOfTest, ALateTurnMakesUpForALittle) {
  CopyRate rate(1 << 20);
  absl::Time now = absl::UnixEpoch();
  const auto chunks = [&] {
    int sent = 0;
    for (; rate.MaySend(now); ++sent) rate.Sent(kLongChunk / 4, now);
    return sent;
  };
  (void)chunks();
  now += absl::Milliseconds(47);  // of 15.6 ms each
  EXPECT_EQ(chunks(), 3);
  now += absl::Hours(1);
  EXPECT_EQ(chunks(), 4);
}

TEST_F(ShardMemberTest, AReadFromBeforeAMembersKeyDoesNotEndIt) {
  Join();
  const int backup = nodes_[1].member.replica().role() == ShardReplica::Role::kBackup ? 1 : 2;
  BeginIncarnation(backup, 22);
  Swap(backup);  // its place
  ReadShard();
  EXPECT_EQ(nodes_[0].member.record().record.Find(Id(backup))->incarnation, 22u);
  EXPECT_FALSE(nodes_[0].member.WantedSwap(watch_, now_).has_value());
  ReadAll();
  EXPECT_FALSE(nodes_[0].member.WantedSwap(watch_, now_).has_value());
}

TEST_F(ShardMemberTest, AMemberIsPromotedWhenThePrimarysKeyIsGone) {
  Join();
  const int backup = nodes_[1].member.replica().role() == ShardReplica::Role::kBackup ? 1 : 2;
  EXPECT_FALSE(nodes_[backup].member.WantedSwap(watch_, now_).has_value());
  Transaction removal;
  removal.operations = {StoreOperation::Delete(keys_.Server(Id(0)))};
  store_.Execute(removal);
  ReadAll();
  Swap(backup);
  EXPECT_TRUE(nodes_[backup].member.serves());
  ReadAll();
  EXPECT_FALSE(nodes_[0].member.serves());
  EXPECT_EQ(nodes_[0].member.replica().role(), ShardReplica::Role::kOut);
}

TEST_F(ShardMemberTest, AHandOverAwaitsTheEndOfLeases) {
  Join();
  const int backup = nodes_[1].member.replica().role() == ShardReplica::Role::kBackup ? 1 : 2;
  nodes_[0].member.HandOverTo(Id(backup), now_);
  EXPECT_FALSE(nodes_[0].member.publishes());
  EXPECT_TRUE(nodes_[0].member.may_decide());
  EXPECT_FALSE(nodes_[0].member.WantedSwap(watch_, now_).has_value());
  now_ += absl::Milliseconds(430);
  EXPECT_FALSE(nodes_[0].member.WantedSwap(watch_, now_).has_value());
  Exchange();
  const uint64_t lsn = Decide();
  const Transaction swap = Begin(0);
  EXPECT_FALSE(nodes_[0].member.serves());
  // Without an answer it does not go on.
  EXPECT_TRUE(nodes_[0].member.TakeAnswer({}, 0, now_).ok());
  EXPECT_FALSE(nodes_[0].member.serves());
  store_.Execute(swap);
  ReadAll();
  EXPECT_EQ(nodes_[0].member.replica().role(), ShardReplica::Role::kBackup);
  Exchange();
  EXPECT_TRUE(nodes_[backup].member.serves());
  EXPECT_TRUE(nodes_[backup].member.publishes());
  EXPECT_LE(nodes_[backup].member.commit_point(), lsn);
}

// The cluster's thread was busy in between.
TEST_F(ShardMemberTest, AHandOverAwaitsLeasesThatWereGivenSince) {
  Join();
  const int backup = nodes_[1].member.replica().role() == ShardReplica::Role::kBackup ? 1 : 2;
  nodes_[0].member.HandOverTo(Id(backup), now_);
  now_ += absl::Milliseconds(400);
  nodes_[0].member.ReadersEnd(now_);  // the region says so only now
  now_ += absl::Milliseconds(430);
  EXPECT_FALSE(nodes_[0].member.WantedSwap(watch_, now_).has_value());
  now_ += absl::Milliseconds(20);
  EXPECT_TRUE(nodes_[0].member.WantedSwap(watch_, now_).has_value());
}

// It refuses the first append of the term, and answers the next one.
TEST_F(ShardMemberTest, AMemberThatLearnsOfATermLateIsSoonGreeted) {
  Join();
  Join();
  nodes_[0].member.HandOverTo(Id(1), now_);
  now_ += absl::Milliseconds(450);
  Decide();  // the tail of the next primary, which has to await the others
  Exchange(2, 3);
  store_.Execute(Begin(0));
  const StoreRange range = watch_.ShardsRange();
  watch_.TakeShards(range, store_.Range(range));
  for (const int node : {0, 1}) nodes_[node].member.Saw(*watch_.Shard(0), now_);
  Exchange(-1, 1);
  ASSERT_FALSE(nodes_[1].member.serves());
  nodes_[2].member.Saw(*watch_.Shard(0), now_);
  Exchange(-1, 4);
  EXPECT_TRUE(nodes_[1].member.serves());
}

TEST_F(ShardMemberTest, ARefusedHandOverEnds) {
  Join();
  const int backup = nodes_[1].member.replica().role() == ShardReplica::Role::kBackup ? 1 : 2;
  nodes_[0].member.HandOverTo(Id(backup), now_);
  now_ += absl::Milliseconds(450);
  (void)Begin(0);
  TransactionResult never_sent;
  never_sent.outcome = TransactionOutcome::kNotApplied;
  EXPECT_TRUE(nodes_[0].member.TakeAnswer(never_sent, 0, now_).ok());
  EXPECT_TRUE(nodes_[0].member.publishes());
}

TEST_F(ShardMemberTest, AServerWithANewIncarnationResumesItsPlace) {
  Join();
  Decide();
  Exchange();
  const uint64_t life = nodes_[0].member.replica().self().life;
  BeginIncarnation(0, 21);
  EXPECT_FALSE(nodes_[0].member.serves());
  ReadAll();
  Swap(0);  // its place
  EXPECT_EQ(nodes_[0].member.record().record.primary, "");
  EXPECT_FALSE(nodes_[0].member.serves());
  Swap(0);  // and the shard, since it has no primary
  EXPECT_EQ(nodes_[0].member.record().record.primary, "a");
  EXPECT_EQ(nodes_[0].member.replica().self().incarnation, 21u);
  EXPECT_EQ(nodes_[0].member.replica().self().life, life);
}

// *Else* a shard whose data this server has stays without a server for good.
TEST_F(ShardMemberTest, APlaceMayHaveBeenResumedByAnIncarnationInBetween) {
  Decide();
  const uint64_t life = nodes_[0].member.replica().self().life;
  BeginIncarnation(0, 21);
  ReadAll();
  const Transaction resume = Begin(0);
  EXPECT_EQ(store_.Execute(resume).outcome, TransactionOutcome::kApplied);
  TransactionResult lost;
  lost.outcome = TransactionOutcome::kUnknown;
  (void)nodes_[0].member.TakeAnswer(lost, 0, now_);
  BeginIncarnation(0, 22);
  ReadAll();
  EXPECT_EQ(nodes_[0].member.record().record.in_sync.at(0).incarnation, 21u);
  Swap(0);  // its place
  Swap(0);  // and the shard
  EXPECT_EQ(nodes_[0].member.record().record.primary, "a");
  EXPECT_EQ(nodes_[0].member.replica().self().incarnation, 22u);
  EXPECT_EQ(nodes_[0].member.replica().self().life, life);
}

// *Else* the primary takes it for another replica, drops what has all data, and may be left with the only copy.
TEST_F(ShardMemberTest, AnAppendBeforeTheAnswerToAResumedPlaceIsPutOff) {
  const int at = JoinAndLoseRight();
  const Transaction resume = Begin(at);
  const TransactionResult late = store_.Execute(resume);
  ASSERT_EQ(late.outcome, TransactionOutcome::kApplied);
  Append append;
  append.term = nodes_[0].member.replica().term();
  append.from = nodes_[0].member.replica().self();
  append.to = {21, nodes_[at].member.replica().self().life};
  const auto code_of_answer = [&] {
    nodes_[at].sent.clear();
    nodes_[at].member.TakeAppend(append, now_);
    return DecodeAck(nodes_[at].sent.back().second.second)->code;
  };
  EXPECT_EQ(code_of_answer(), AckCode::kUnknownTerm);
  EXPECT_TRUE(nodes_[at].member.TakeWantsRead());
  ASSERT_TRUE(nodes_[at].member.TakeAnswer(late, 0, now_).ok());
  EXPECT_EQ(code_of_answer(), AckCode::kConfirmed);
}

// Its server did not learn that its place was resumed, and the primary handed over to it. *Else* the shard has a primary
// that never serves.
TEST_F(ShardMemberTest, ThePlaceThatWasResumedMayBeThePrimarysAlready) {
  const int at = JoinAndLoseRight();
  const Transaction resume = Begin(at);
  EXPECT_EQ(store_.Execute(resume).outcome, TransactionOutcome::kApplied);
  TransactionResult lost;
  lost.outcome = TransactionOutcome::kUnknown;
  (void)nodes_[at].member.TakeAnswer(lost, 0, now_);
  const StoreRange range = watch_.ShardsRange();
  watch_.TakeShards(range, store_.Range(range));
  nodes_[0].member.Saw(*watch_.Shard(0), now_);
  nodes_[0].member.HandOverTo(Id(at), now_);
  now_ += absl::Milliseconds(900);
  Swap(0);
  ReadAll();
  ASSERT_EQ(nodes_[at].member.record().record.primary, Id(at));
  EXPECT_EQ(nodes_[at].member.replica().role(), ShardReplica::Role::kPrimary);
  (void)nodes_[at].member.WantedSwap(watch_, now_);
}

// *Else* it drops members at once, as silent since the earlier term.
TEST_F(ShardMemberTest, APrimaryAgainCountsSilenceFromItsTerm) {
  Join();
  const std::string other = nodes_[0].member.record().record.in_sync.at(1).server;
  const int at = other[0] - 'a';
  nodes_[0].member.HandOverTo(other, now_);
  Exchange();
  Swap(0);
  ReadAll();
  now_ += absl::Seconds(20);
  Exchange();
  ASSERT_TRUE(nodes_[at].member.serves());
  nodes_[at].member.HandOverTo("a", now_);
  Exchange();
  Swap(at);
  ReadAll();
  ASSERT_EQ(nodes_[0].member.record().record.primary, "a");
  EXPECT_EQ(nodes_[0].member.WantedSwap(watch_, now_), std::nullopt);
}

}  // namespace
}  // namespace osprey
