// The parts of replication one by one.

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "gtest/gtest.h"
#include "server/cluster/replication/replica_log.h"
#include "server/cluster/replication/replication_messages.h"
#include "server/cluster/replication/shard_backup.h"
#include "server/cluster/replication/shard_primary.h"
#include "server/cluster/replication/shard_replica.h"

namespace osprey {
namespace {

constexpr ReplicaName kA{1, 1}, kB{2, 1}, kC{3, 1};

ReplicatedGroup Group(uint64_t first, uint64_t last, uint64_t term, const std::string& body = "x") {
  return {first, last, term, std::make_shared<const std::string>(body)};
}

class Store : public ReplicaStore {
 public:
  absl::Status Reserve(const ReplicatedGroup& group) override {
    if (group.bytes() > room) return absl::ResourceExhaustedError("memory is full");
    ++reserved;
    return absl::OkStatus();
  }
  void Release(const ReplicatedGroup&) override { --reserved; }
  void Apply(const ReplicatedGroup& group) override {
    --reserved;
    applied += *group.body;
  }

  uint64_t room = 1000;
  int reserved = 0;
  std::string applied;
};

Append AppendOf(uint64_t term, uint64_t commit_point, std::vector<ReplicatedGroup> groups) {
  Append append;
  append.term = term;
  append.from = kA;
  append.to = kB;
  append.commit_point = commit_point;
  append.groups = std::move(groups);
  return append;
}

Ack AckOf(uint64_t term, ReplicaName from, uint64_t confirmed, uint64_t applied = 0) {
  return {0, AckCode::kConfirmed, term, from, kA, confirmed, applied};
}

TEST(ReplicaLogTest, GroupsAreAppliedDiscardedAndCut) {
  ReplicaLog log;
  log.Append(Group(1, 2, 1, "ab"));
  log.Append(Group(3, 3, 1, "c"));
  log.Append(Group(4, 6, 1, "def"));
  EXPECT_EQ(log.pending_bytes(), 6u);
  log.MarkApplied();
  EXPECT_EQ(log.applied(), 2u);
  log.Discard(3);  // which is not applied
  EXPECT_EQ(log.kept_after(), 2u);
  EXPECT_EQ(log.kept_bytes(), 4u);
  EXPECT_EQ(log.After(0), nullptr);
  EXPECT_EQ(log.After(4), nullptr);  // within a group
  EXPECT_EQ(log.After(3)->last_lsn, 6u);
  EXPECT_EQ(log.BytesUpTo(3), 1u);
  EXPECT_EQ(log.BytesUpTo(6), 4u);
  log.CutAfter(3);
  EXPECT_EQ(log.last(), 3u);
  EXPECT_EQ(log.pending_bytes(), 1u);
  log.Append(Group(4, 4, 2, "gh"));
  EXPECT_EQ(log.BytesUpTo(4), 3u);
}

TEST(ShardBackupTest, TheCommitPointAppliesWhatIsConfirmed) {
  ReplicaLog log;
  Store store;
  ShardBackup backup(0, kB, log, store);
  backup.Follow(1, kA);
  Ack ack = backup.TakeAppend(AppendOf(1, 0, {Group(1, 1, 1, "a"), Group(2, 2, 1, "b")}));
  EXPECT_EQ(ack.confirmed, 2u);
  EXPECT_EQ(store.applied, "");
  ack = backup.TakeAppend(AppendOf(1, 9, {}));
  EXPECT_EQ(ack.applied, 2u);
  EXPECT_EQ(store.applied, "ab");
  EXPECT_EQ(store.reserved, 0);
}

TEST(ShardBackupTest, RefusesWhatIsNotForIt) {
  ReplicaLog log;
  Store store;
  ShardBackup backup(0, kB, log, store);
  backup.Follow(2, kA);
  Ack ack = backup.TakeAppend(AppendOf(1, 0, {Group(1, 1, 1)}));
  EXPECT_EQ(ack.code, AckCode::kLowerTerm);
  EXPECT_EQ(ack.term, 2u);
  EXPECT_EQ(backup.TakeAppend(AppendOf(3, 0, {Group(1, 1, 3)})).code, AckCode::kUnknownTerm);
  Append other = AppendOf(2, 0, {Group(1, 1, 2)});
  other.from = kC;
  EXPECT_EQ(backup.TakeAppend(other).code, AckCode::kUnknownTerm);
  other = AppendOf(2, 0, {Group(1, 1, 2)});
  other.to = {kB.incarnation, 7};
  ack = backup.TakeAppend(other);
  EXPECT_EQ(ack.code, AckCode::kOtherReplica);
  EXPECT_EQ(ack.from, other.to);
  ack = backup.TakeAppend(AppendOf(2, 0, {Group(2, 2, 2)}));
  EXPECT_EQ(ack.code, AckCode::kGap);
  EXPECT_EQ(ack.confirmed, 0u);
  EXPECT_EQ(log.last(), 0u);
}

TEST(ShardBackupTest, AGroupWithoutRoomIsNotConfirmed) {
  ReplicaLog log;
  Store store;
  store.room = 1;
  ShardBackup backup(0, kB, log, store);
  backup.Follow(1, kA);
  const Ack ack =
      backup.TakeAppend(AppendOf(1, 0, {Group(1, 1, 1, "a"), Group(2, 2, 1, "too long")}));
  EXPECT_EQ(ack.code, AckCode::kNoRoom);
  EXPECT_EQ(ack.confirmed, 1u);
  EXPECT_EQ(backup.failure().message(), "memory is full");
}

TEST(ShardBackupTest, GroupsOfALaterTermReplacePendingOnes) {
  ReplicaLog log;
  Store store;
  ShardBackup backup(0, kB, log, store);
  backup.Follow(1, kA);
  backup.TakeAppend(
      AppendOf(1, 1, {Group(1, 1, 1, "a"), Group(2, 2, 1, "b"), Group(3, 3, 1, "c")}));
  backup.Follow(2, kA);
  EXPECT_EQ(log.last(), 3u);  // until others come
  Ack ack = backup.TakeAppend(AppendOf(2, 3, {}));
  EXPECT_EQ(ack.confirmed, 1u);
  EXPECT_EQ(store.applied, "a");
  ack = backup.TakeAppend(AppendOf(2, 3, {Group(2, 2, 1, "b"), Group(3, 4, 2, "de")}));
  EXPECT_EQ(ack.confirmed, 4u);
  EXPECT_EQ(store.applied, "ab");
  backup.TakeAppend(AppendOf(2, 4, {}));
  EXPECT_EQ(store.applied, "abde");
  EXPECT_EQ(store.reserved, 0);
}

class ShardPrimaryTest : public testing::Test {
 protected:
  ShardPrimaryTest() {
    primary_.SetCounted({kB}, 2);
    primary_.Connected(kB);
    EXPECT_TRUE(primary_.NextAppend(kB)->groups.empty());  // a greeting
    EXPECT_FALSE(primary_.NextAppend(kB).has_value());
    primary_.TakeAck(AckOf(3, kB, 0));
  }

  ReplicaLog log_;
  ShardPrimary primary_{0, 3, kA, 2, log_};
};

TEST_F(ShardPrimaryTest, CommitsWhatAllMembersHaveConfirmed) {
  EXPECT_EQ(primary_.Decide("ab", 2), 2u);
  EXPECT_EQ(primary_.commit_point(), 0u);
  const absl::optional<Append> append = primary_.NextAppend(kB);
  ASSERT_TRUE(append.has_value());
  EXPECT_EQ(append->groups.size(), 1u);
  EXPECT_EQ(append->term, 3u);
  EXPECT_FALSE(primary_.NextAppend(kB).has_value());
  primary_.TakeAck(AckOf(3, kB, 2));
  EXPECT_EQ(primary_.commit_point(), 2u);
  EXPECT_FALSE(primary_.NextAppend(kB, /*tells_commit_point=*/false).has_value());
  EXPECT_EQ(primary_.NextAppend(kB)->commit_point, 2u);  // the backup receives it
  primary_.SetCounted({kB, kC}, 3);
  primary_.Decide("c", 1);
  primary_.TakeAck(AckOf(3, kB, 3));
  EXPECT_EQ(primary_.commit_point(), 2u);
  primary_.SetCounted({kB}, 2);
  EXPECT_EQ(primary_.commit_point(), 3u);
}

TEST_F(ShardPrimaryTest, CommitsNothingOfItsOwnBelowTheLeastNumber) {
  primary_.Decide("a", 1);
  primary_.SetCounted({}, 1);
  EXPECT_EQ(primary_.commit_point(), 0u);
  primary_.SetCounted({kC}, 1);  // which joins
  primary_.Connected(kC);
  primary_.TakeAck(AckOf(3, kC, 1));
  EXPECT_EQ(primary_.commit_point(), 0u);
  primary_.SetCounted({kC}, 2);
  EXPECT_EQ(primary_.commit_point(), 1u);
}

TEST_F(ShardPrimaryTest, AJoinerHasWhatMembersHoldThoughItIsNotCommitted) {
  primary_.SetCounted({}, 1);  // too few
  primary_.AddJoiner(kC);
  primary_.Connected(kC);
  primary_.TakeAck(AckOf(3, kC, 0));
  primary_.EndCopy(kC);
  EXPECT_TRUE(primary_.HasCaughtUp(kC));
  primary_.Decide("mark", 1);
  EXPECT_EQ(primary_.held_point(), 1u);
  EXPECT_EQ(primary_.commit_point(), 0u);
  EXPECT_FALSE(primary_.HasCaughtUp(kC));
  primary_.TakeAck(AckOf(3, kC, 1));
  EXPECT_TRUE(primary_.HasCaughtUp(kC));
  primary_.SetCounted({kC}, 1);
  primary_.Decide("mark", 1);
  EXPECT_EQ(primary_.held_point(), 1u);
  primary_.TakeAck(AckOf(3, kC, 2));
  EXPECT_EQ(primary_.held_point(), 2u);
  EXPECT_EQ(primary_.commit_point(), 0u);
}

TEST(ShardPrimaryAloneTest, CommitsItsTailAndKeepsNoGroups) {
  ReplicaLog log;
  log.Append(Group(1, 1, 2, "tail"));
  ShardPrimary primary(0, 3, kA, 2, log);
  primary.SetCounted({}, 1);
  EXPECT_EQ(primary.commit_point(), 1u);
  EXPECT_FALSE(primary.has_tail_applied());
  log.MarkApplied();
  primary.OnApplied();
  EXPECT_TRUE(primary.has_tail_applied());
  EXPECT_EQ(log.kept_bytes(), 0u);
}

TEST_F(ShardPrimaryTest, CountsNoOtherAcknowledgements) {
  primary_.Decide("a", 1);
  primary_.TakeAck(AckOf(2, kB, 1));                   // of an earlier term
  primary_.TakeAck(AckOf(3, {kB.incarnation, 2}, 1));  // of another copy
  primary_.TakeAck(AckOf(3, kC, 1));                   // of a server that is no member
  Ack ack = AckOf(3, kB, 1);
  ack.to = {kA.incarnation, 2};  // to another copy of this server
  primary_.TakeAck(ack);
  EXPECT_EQ(primary_.commit_point(), 0u);
  primary_.TakeAck(AckOf(3, kB, 1));
  EXPECT_EQ(primary_.commit_point(), 1u);
}

TEST_F(ShardPrimaryTest, SendsAgainAfterALostConnection) {
  primary_.Decide("a", 1);
  primary_.Decide("b", 1);
  EXPECT_EQ(primary_.NextAppend(kB)->groups.size(), 2u);
  primary_.Disconnected(kB);
  EXPECT_FALSE(primary_.NextAppend(kB).has_value());
  primary_.Connected(kB);
  EXPECT_TRUE(primary_.NextAppend(kB)->groups.empty());
  primary_.TakeAck(AckOf(3, kB, 1));
  const absl::optional<Append> append = primary_.NextAppend(kB);
  ASSERT_EQ(append->groups.size(), 1u);
  EXPECT_EQ(append->groups[0].first_lsn, 2u);
}

TEST_F(ShardPrimaryTest, GoesOnBehindAllThatWasConfirmed) {
  primary_.Decide("a", 1);
  primary_.Decide("b", 1);
  primary_.NextAppend(kB);
  primary_.Connected(kB);
  primary_.NextAppend(kB);
  primary_.TakeAck(AckOf(3, kB, 1));     // of the new connection, and delayed
  primary_.TakeAck(AckOf(3, kB, 2, 2));  // of the earlier one
  log_.MarkApplied();
  log_.MarkApplied();
  primary_.TakeAck(AckOf(3, kB, 2, 2));
  EXPECT_EQ(log_.kept_after(), 2u);
  primary_.Decide("c", 1);
  const absl::optional<Append> append = primary_.NextAppend(kB);
  ASSERT_TRUE(append.has_value() && append->groups.size() == 1);
  EXPECT_EQ(append->groups[0].first_lsn, 3u);
}

TEST_F(ShardPrimaryTest, GreetsAgainABackupWithoutTheTerm) {
  primary_.Connected(kB);
  EXPECT_TRUE(primary_.NextAppend(kB).has_value());
  Ack ack = AckOf(2, kB, 0);
  ack.code = AckCode::kUnknownTerm;
  primary_.TakeAck(ack);
  EXPECT_FALSE(primary_.NextAppend(kB).has_value());
  primary_.GreetAgain();
  EXPECT_TRUE(primary_.NextAppend(kB).has_value());
}

TEST_F(ShardPrimaryTest, BoundsWhatIsOnItsWay) {
  const std::string long_body(kAppendBytes, 'x');
  for (int i = 0; i < 40; ++i) primary_.Decide(long_body, 1);
  uint64_t sent = 0;
  while (const auto append = primary_.NextAppend(kB)) sent += append->groups.size();
  EXPECT_EQ(sent, kUnacknowledgedBytesMax / kAppendBytes);
  primary_.TakeAck(AckOf(3, kB, 4));
  while (const auto append = primary_.NextAppend(kB)) sent += append->groups.size();
  EXPECT_EQ(sent, kUnacknowledgedBytesMax / kAppendBytes + 4);
}

TEST_F(ShardPrimaryTest, NoticesThatItIsDeposedAndThatAPeerIsUnfit) {
  Ack ack = AckOf(4, kB, 0);
  ack.code = AckCode::kLowerTerm;
  primary_.TakeAck(ack);
  EXPECT_TRUE(primary_.is_deposed());
  ack.code = AckCode::kNoRoom;
  primary_.TakeAck(ack);
  EXPECT_TRUE(primary_.peers().at(kB).is_unfit);
  EXPECT_FALSE(primary_.NextAppend(kB).has_value());
}

// The record went to another server and came back before this one read it. *Else* it applies, or gives back, what it
// has not reserved.
TEST(ShardReplicaTest, APrimaryAgainReservesWhatItHadDecided) {
  Store store;
  ShardReplica replica(0, kA, /*min_in_sync=*/1, store);
  replica.BeginEmpty(kA);
  replica.TakePlaces({5, kA, {kA, kB}});
  replica.primary()->SetCounted({kB}, 2);
  (void)replica.primary()->Decide("a", 1);
  replica.TakePlaces({7, kA, {kA, kB}});
  EXPECT_EQ(store.reserved, 1);
  replica.primary()->SetCounted({kB}, 2);
  (void)replica.primary()->TakeAck(AckOf(7, kB, 1));
  replica.ApplyTail();
  EXPECT_EQ(store.applied, "a");
  EXPECT_EQ(store.reserved, 0);
}

TEST(ReplicationMessagesTest, AreReadAsTheyWereWritten) {
  Append append = AppendOf(7, 4, {Group(3, 4, 6, "abc"), Group(5, 5, 7, "12345678")});
  append.shard = 9;
  append.discard_to = 2;
  const auto read = DecodeAppend(EncodeAppend(append));
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->shard, 9u);
  EXPECT_EQ(read->from, kA);
  EXPECT_EQ(read->to, kB);
  EXPECT_EQ(read->commit_point, 4u);
  EXPECT_EQ(read->discard_to, 2u);
  ASSERT_EQ(read->groups.size(), 2u);
  EXPECT_TRUE(read->groups[0].IsSameAs(append.groups[0]));
  EXPECT_EQ(*read->groups[1].body, "12345678");

  const Ack ack{9, AckCode::kGap, 7, kB, kA, 4, 3};
  const auto answer = DecodeAck(EncodeAck(ack));
  ASSERT_TRUE(answer.ok()) << answer.status();
  EXPECT_EQ(answer->code, AckCode::kGap);
  EXPECT_EQ(answer->confirmed, 4u);
}

TEST(ReplicationMessagesTest, HostileBytesAreRefused) {
  const std::string good = EncodeAppend(AppendOf(7, 4, {Group(3, 4, 6, "abc")}));
  for (size_t length = 0; length < good.size(); ++length)
    EXPECT_FALSE(DecodeAppend(good.substr(0, length)).ok()) << length;
  EXPECT_FALSE(DecodeAppend(good + "12345678").ok());
  const auto changed = [&](size_t at, char byte) {
    std::string bytes = good;
    bytes[at] = byte;
    return DecodeAppend(bytes).status();
  };
  EXPECT_TRUE(changed(0, 1).ok());    // another shard is the receiver's matter
  EXPECT_FALSE(changed(4, 2).ok());   // groups
  EXPECT_FALSE(changed(8, 5).ok());   // a term below the group's
  EXPECT_FALSE(changed(16, 0).ok());  // from no replica
  EXPECT_FALSE(changed(56, 9).ok());  // applied beyond the commit point
  EXPECT_FALSE(changed(64, 0).ok());  // lsn 0
  EXPECT_FALSE(changed(72, 2).ok());  // ends before it begins
  EXPECT_FALSE(changed(88, 0).ok());  // no body
  EXPECT_FALSE(changed(95, 1).ok());  // a body of 2^56 bytes

  const std::string ack = EncodeAck(AckOf(7, kB, 4, 4));
  EXPECT_TRUE(DecodeAck(ack).ok());
  EXPECT_FALSE(DecodeAck(ack + "x").ok());
  EXPECT_FALSE(DecodeAck(ack.substr(1)).ok());
  std::string code = ack;
  code[4] = 6;
  EXPECT_EQ(DecodeAck(code).status().message(),
            "an acknowledgement: its code is 6; do the servers of this cluster have one version?");
}

}  // namespace
}  // namespace osprey
