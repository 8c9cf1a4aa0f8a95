// Servers of a cluster, step by step: what a member does by the store's answers, and by others' messages.

#include "server/cluster/member/cluster_member.h"

#include <algorithm>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "gtest/gtest.h"
#include "server/cluster/configuration/cluster_record.h"
#include "server/cluster/configuration/shard_swaps.h"
#include "server/cluster/replication/replication_messages.h"
#include "server/cluster/right/server_record.h"
#include "tests/server/cluster/member/member_world.h"
#include "tests/server/cluster/replication/register_writes.h"
#include "tests/server/cluster/right/model_store.h"

namespace osprey {
namespace {

constexpr uint32_t kShardsTested = 5;
constexpr absl::Duration kStep() { return absl::Milliseconds(20); }

// Servers of a cluster, mostly of one shard, which all reach the store and each other at once, but for those that have ended.
class ClusterMemberTest : public testing::Test {
 protected:
  struct Node : public PeerSender {
    uint64_t RoomFor(uint64_t) const override { return 64 << 20; }
    void Send(uint64_t incarnation, PeerMessageKind kind, std::string bytes) override {
      sent.push_back({incarnation, kind, std::move(bytes)});
    }
    struct Message {
      uint64_t to = 0;
      PeerMessageKind kind = PeerMessageKind::kAppend;
      std::string bytes;
    };
    RegisterTable tables[kShardsTested];
    std::deque<Message> sent;
    std::set<uint64_t> linked;  // incarnations
    bool loses_copies = false;
    bool is_cut_from_store = false;
    std::unique_ptr<ClusterMember> member;  // null: it has ended
  };

  explicit ClusterMemberTest(uint32_t shards = 1, uint32_t replicas = 3) {
    cluster_.id = 7;
    cluster_.shards = shards;
    cluster_.replicas = replicas;
    cluster_.min_in_sync = MinInSync(replicas);
    cluster_.hash_seed = 1;
    cluster_.shard_bytes = kShardBytesMin;
    store_.Execute(CreateCluster(keys_, cluster_));
  }

  static std::string Id(int number) { return std::string(1, static_cast<char>('a' + number)); }

  void Begin(int number) {
    Node& node = nodes_[number];
    std::vector<MemberTable*> tables;
    for (uint32_t i = 0; i < cluster_.shards; ++i) tables.push_back(&node.tables[i]);
    node.member = std::make_unique<ClusterMember>(
        MemberOptions{.keys = keys_,
                      .cluster = cluster_,
                      .server = Id(number),
                      .addresses = {"shm:///x"},
                      .slots = cluster_.shards,
                      .random = [this] { return ++random_; },
                      .log = [this](absl::string_view line) { log_.emplace_back(line); }},
        tables, node);
  }
  ClusterMember& At(int number) { return *nodes_[number].member; }
  ShardMember& ShardAt(int number) { return At(number).shard(0); }

  void Renew(int number) {
    if (now_ < At(number).next_renewal()) return;
    const Transaction renewal = At(number).NextRenewal();
    At(number).TakeRenewal(store_.Execute(renewal), now_, now_);
  }
  // Makes one call, if one is due. Returns the key of the removal that it was.
  std::string Call(int number) {
    const std::optional<StoreCall> call = At(number).NextCall(now_);
    if (!call.has_value()) return "";
    if (call->range.has_value()) {
      At(number).TakeRead(store_.Range(*call->range), now_);
      return "";
    }
    const StoreOperation& first = call->transaction.operations.at(0);
    At(number).TakeResult(store_.Execute(call->transaction), now_);
    return first.kind == StoreOperation::Kind::kDelete ? first.range.key : "";
  }
  void Deliver(Node& from) {
    while (!from.sent.empty()) {
      const Node::Message message = std::move(from.sent.front());
      from.sent.pop_front();
      for (Node& to : nodes_) {
        if (to.member == nullptr || to.member->incarnation() != message.to) continue;
        if (to.loses_copies && message.kind == PeerMessageKind::kCopy) continue;
        EXPECT_TRUE(
            to.member->TakeMessage(from.member->incarnation(), message.kind, message.bytes, now_)
                .ok());
      }
    }
  }
  void Link(int at) {
    const std::set<std::string> needed = At(at).NeededServers(now_);
    for (int other = 0; other < 3; ++other) {
      if (nodes_[other].member == nullptr || other == at) continue;
      const uint64_t incarnation = At(other).incarnation();
      if (needed.contains(Id(other))) {
        if (nodes_[at].linked.insert(incarnation).second) At(at).LinkUp(incarnation);
      } else if (nodes_[at].linked.erase(incarnation) > 0) {
        At(at).LinkDown(incarnation);
      }
    }
  }
  void RunFor(absl::Duration time) {
    for (const absl::Time end = now_ + time; now_ < end; now_ += kStep()) {
      for (int at = 0; at < 3; ++at) {
        if (nodes_[at].member == nullptr) continue;
        Renew(at);
        if (!nodes_[at].is_cut_from_store) Call(at);
        Link(at);
        At(at).Pump(now_);
        Deliver(nodes_[at]);
      }
    }
  }
  bool RunUntil(const std::function<bool()>& condition) {
    for (const absl::Time end = now_ + absl::Seconds(10); !condition(); RunFor(kStep())) {
      if (now_ > end) return false;
    }
    return true;
  }
  void End(int number) {
    const uint64_t incarnation = At(number).incarnation();
    nodes_[number].member.reset();
    nodes_[number].linked.clear();
    for (Node& node : nodes_) {
      if (node.member != nullptr) node.member->LinkDown(incarnation);
    }
  }

  const ClusterKeys keys_{"/osprey/test/"};
  ClusterRecord cluster_;
  ModelStore store_;
  absl::Time now_ = absl::UnixEpoch();
  uint64_t random_ = 0;
  std::vector<std::string> log_;
  Node nodes_[3];
};

TEST_F(ClusterMemberTest, AGapInReadsBeginsTheTimeOfOthersAgain) {
  // The key of an earlier incarnation of this server, which nothing renews.
  Transaction creation;
  creation.operations = {
      StoreOperation::Put(keys_.Server("a"), EncodeServerRecord({99, {"shm:///x"}, 0}))};
  store_.Execute(creation);
  Begin(0);
  Renew(0);
  Call(0);
  Call(0);
  now_ += absl::Seconds(4);  // the store was down, and the right of every server lapses
  for (int i = 0; i < 3; ++i) EXPECT_EQ(Call(0), "");
  for (int i = 0; i < 10; ++i) {
    now_ += absl::Milliseconds(300);
    EXPECT_EQ(Call(0), "") << i;
    EXPECT_EQ(Call(0), "") << i;
  }
  for (int i = 0; i < 2; ++i) {
    now_ += absl::Milliseconds(300);
    Call(0);
    Call(0);
    if (Call(0) == keys_.Server("a")) return;
  }
  ADD_FAILURE() << "the key was not removed";
}

TEST_F(ClusterMemberTest, TheEndOfTheRightIsLoggedOnceAndSoIsItsReturn) {
  const auto lines = [this](const std::string& text) {
    return std::count_if(log_.begin(), log_.end(), [&text](const std::string& line) {
      return line.find(text) != std::string::npos;
    });
  };
  Begin(0);
  At(0).Pump(now_);  // it has none yet
  RunFor(absl::Seconds(1));
  EXPECT_EQ(lines("the right of this server"), 0);
  now_ += absl::Seconds(3);
  for (int i = 0; i < 3; ++i) At(0).Pump(now_);
  EXPECT_EQ(lines("the right of this server to serve has ended"), 1);
  RunFor(absl::Seconds(1));
  ASSERT_TRUE(At(0).Serves(0, now_));
  EXPECT_EQ(lines("it has passed: the right of this server to serve has ended"), 1);
  EXPECT_EQ(lines("the right of this server"), 2);
}

TEST_F(ClusterMemberTest, AnotherStoreEndsTheRight) {
  Begin(0);
  RunFor(absl::Seconds(1));
  ASSERT_TRUE(At(0).Serves(0, now_));
  now_ += absl::Seconds(1);
  const std::optional<StoreCall> call = At(0).NextCall(now_);
  ASSERT_TRUE(call.has_value() && call->range.has_value());
  RangeAnswer answer = store_.Range(*call->range);
  answer.header.cluster_id = 2;
  At(0).TakeRead(answer, now_);
  EXPECT_FALSE(At(0).store_status().ok());
  EXPECT_EQ(log_.back(), At(0).store_status().message());
  EXPECT_FALSE(At(0).Serves(0, now_));
  EXPECT_FALSE(At(0).MayDecide(0, now_));
  EXPECT_FALSE(At(0).NextCall(now_ + absl::Seconds(9)).has_value());
}

// One whose name was given to another cluster meanwhile.
TEST_F(ClusterMemberTest, AnotherClusterOfTheNameEndsTheRight) {
  Begin(0);
  RunFor(absl::Seconds(15));
  ASSERT_TRUE(At(0).Serves(0, now_));
  ++cluster_.id;
  Transaction replacement;
  replacement.operations = {StoreOperation::Put(keys_.Cluster(), EncodeClusterRecord(cluster_))};
  store_.Execute(replacement);
  RunFor(absl::Seconds(11));
  ASSERT_FALSE(At(0).store_status().ok());
  EXPECT_EQ(log_.back(), At(0).store_status().message());
  EXPECT_FALSE(At(0).Serves(0, now_));
}

TEST_F(ClusterMemberTest, ASwapByAnotherStoreSaysNothing) {
  Begin(0);
  Renew(0);
  Call(0);
  Call(0);
  const std::optional<StoreCall> call = At(0).NextCall(now_);
  ASSERT_TRUE(call.has_value() && !call->range.has_value());
  TransactionResult result = store_.Execute(call->transaction);
  ASSERT_EQ(result.outcome, TransactionOutcome::kApplied);
  result.header.cluster_id = 2;
  At(0).TakeResult(result, now_);
  EXPECT_EQ(ShardAt(0).record().record.primary, "");
  EXPECT_FALSE(ShardAt(0).serves());
}

TEST_F(ClusterMemberTest, AMessageOfNoneOfItsKindsIsRefused) {
  Begin(0);
  Begin(1);
  RunFor(absl::Seconds(1));
  ASSERT_EQ(ShardAt(0).record().record.in_sync.size(), 2u);
  const uint64_t peer = At(1).incarnation();
  const auto refusal = [&](PeerMessageKind kind, const std::string& bytes) {
    const absl::Status status = At(0).TakeMessage(peer, kind, bytes, now_);
    EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
    return std::string(status.message());
  };
  nodes_[0].sent.clear();
  Append append;
  append.term = 9;
  append.from = {peer + 100, 1};
  append.to = ShardAt(0).replica().self();
  EXPECT_NE(refusal(PeerMessageKind::kAppend, EncodeAppend(append)).find("in the name of"),
            std::string::npos);
  append.from.incarnation = peer;
  append.shard = 1;
  const char kNoShard[] = "a message of shard 1, where there are 1 shards";
  EXPECT_EQ(refusal(PeerMessageKind::kAppend, EncodeAppend(append)), kNoShard);
  Ack ack;
  ack.shard = 1;
  ack.from = ShardAt(1).replica().self();
  ack.to = append.to;
  EXPECT_EQ(refusal(PeerMessageKind::kAck, EncodeAck(ack)), kNoShard);
  CopyMessage copy;
  copy.joiner = {peer + 100, 1};
  EXPECT_NE(refusal(PeerMessageKind::kCopy, EncodeCopyMessage(copy)).find("in the name of"),
            std::string::npos);
  copy.joiner.incarnation = peer;
  copy.shard = 1;
  EXPECT_EQ(refusal(PeerMessageKind::kCopy, EncodeCopyMessage(copy)), kNoShard);
  EXPECT_EQ(refusal(static_cast<PeerMessageKind>(9), "x"), "a message of kind 9");
  for (const auto kind : {PeerMessageKind::kAppend, PeerMessageKind::kAck, PeerMessageKind::kCopy})
    refusal(kind, "x");
  EXPECT_TRUE(nodes_[0].sent.empty());
}

TEST_F(ClusterMemberTest, ASuccessorReadsTheRecordAsSoonAsItIsOne) {
  for (int i = 0; i < 3; ++i) Begin(i);
  RunFor(absl::Seconds(3));
  ASSERT_EQ(ShardAt(0).record().record.in_sync.size(), 3u);
  for (int turn = 0; turn < 20; ++turn) {
    ASSERT_TRUE(ShardAt(0).serves());
    ShardAt(0).HandOverTo("b", now_);
    ASSERT_TRUE(RunUntil([&] { return ShardAt(0).record().record.primary == "b"; }));
    const absl::Time began = now_;
    ASSERT_TRUE(RunUntil([&] { return ShardAt(1).serves(); }));
    EXPECT_LE(now_ - began, absl::Milliseconds(100)) << turn;
    ShardAt(1).HandOverTo("a", now_);
    ASSERT_TRUE(RunUntil([&] { return ShardAt(0).serves(); }));
    RunFor(absl::Milliseconds(110));  // another phase of the reads
  }
}

// A server that ends has deleted its key by then.
TEST_F(ClusterMemberTest, TheEndOfALinkIsFollowedByARead) {
  for (int i = 0; i < 3; ++i) Begin(i);
  RunFor(absl::Seconds(3));
  const uint64_t other = At(1).incarnation();
  while (At(0).NextCall(now_).has_value()) At(0).TakeRead(absl::UnavailableError("late"), now_);
  At(0).LinkDown(other);
  const std::optional<StoreCall> call = At(0).NextCall(now_);
  ASSERT_TRUE(call.has_value() && call->range.has_value());
  EXPECT_EQ(call->range->key, keys_.Servers());
  At(0).TakeRead(store_.Range(*call->range), now_);
  EXPECT_FALSE(At(0).NextCall(now_).has_value());
}

// Two of three servers have copies.
class NeededServersTest : public ClusterMemberTest {
 protected:
  NeededServersTest() : ClusterMemberTest(/*shards=*/1, /*replicas=*/2) {}
  std::set<std::string> Needed(int at) { return At(at).NeededServers(now_); }
};

TEST_F(NeededServersTest, ThoseWithoutACommonShardHaveNoLink) {
  for (int i = 0; i < 3; ++i) Begin(i);
  RunFor(absl::Seconds(3));
  ASSERT_EQ(ShardAt(0).record().record.in_sync.size(), 2u);
  ASSERT_EQ(ShardAt(0).record().record.Find("c"), nullptr);
  EXPECT_EQ(Needed(0), std::set<std::string>{"b"});
  EXPECT_EQ(Needed(1), std::set<std::string>{"a"});
  EXPECT_EQ(Needed(2), std::set<std::string>{});
}

// The joiner asks the primary, which answers.
TEST_F(NeededServersTest, ACopyThatMovesTakesTheLinksWithIt) {
  for (int i = 0; i < 3; ++i) Begin(i);
  RunFor(absl::Seconds(3));
  const absl::StatusOr<ShardSwap> move = BeginMove(ShardAt(0).record(), {"b", "c"});
  ASSERT_TRUE(move.ok()) << move.status();
  ASSERT_EQ(store_.Execute(SwapTransaction(keys_, {*move})).outcome, TransactionOutcome::kApplied);
  ASSERT_TRUE(RunUntil([&] {
    const ShardRecord& record = ShardAt(0).record().record;
    return !record.move.has_value() && record.Find("c") != nullptr;
  }));
  EXPECT_EQ(Needed(2), std::set<std::string>{"a"});
  // A message may still be on its way.
  RunFor(absl::Seconds(9));
  EXPECT_EQ(Needed(0), (std::set<std::string>{"b", "c"}));
  EXPECT_EQ(Needed(1), std::set<std::string>{"a"});
  RunFor(absl::Seconds(2));
  EXPECT_EQ(Needed(0), std::set<std::string>{"c"});
  EXPECT_EQ(Needed(1), std::set<std::string>{});
}

TEST_F(NeededServersTest, AMessageIsAReasonForALinkForAWhile) {
  for (int i = 0; i < 3; ++i) Begin(i);
  RunFor(absl::Seconds(3));
  ASSERT_EQ(Needed(0), std::set<std::string>{"b"});
  const Ack ack{0, AckCode::kOtherReplica, 1, {At(2).incarnation(), 1}, {At(0).incarnation(), 1}, 0,
                0};
  ASSERT_TRUE(
      At(0).TakeMessage(At(2).incarnation(), PeerMessageKind::kAck, EncodeAck(ack), now_).ok());
  EXPECT_EQ(Needed(0), (std::set<std::string>{"b", "c"}));
  RunFor(absl::Seconds(9));
  EXPECT_EQ(Needed(0), (std::set<std::string>{"b", "c"}));
  RunFor(absl::Seconds(2));
  EXPECT_EQ(Needed(0), std::set<std::string>{"b"});
}

TEST_F(ClusterMemberTest, AMemberWhoseServerHasEndedIsDropped) {
  for (int i = 0; i < 3; ++i) Begin(i);
  RunFor(absl::Seconds(3));
  ASSERT_EQ(ShardAt(0).record().record.in_sync.size(), 3u);
  End(1);
  RunFor(absl::Seconds(2));
  ASSERT_EQ(ShardAt(0).record().record.in_sync.size(), 2u);
  // Without it there are too few: it is dropped when its right has ended.
  End(2);
  RunFor(absl::Seconds(2));
  EXPECT_EQ(ShardAt(0).record().record.in_sync.size(), 2u);
  RunFor(absl::Seconds(3));
  EXPECT_EQ(ShardAt(0).record().record.in_sync.size(), 1u);
  EXPECT_TRUE(At(0).Serves(0, now_));
  EXPECT_FALSE(At(0).MayDecide(0, now_));
  // And a new incarnation takes its place.
  Begin(2);
  RunFor(absl::Seconds(10));
  EXPECT_EQ(ShardAt(0).record().record.in_sync.size(), 2u);
  EXPECT_TRUE(At(0).MayDecide(0, now_));
}

// *Else* no shard of a server that has ended gets another primary.
struct BrokenRecord {
  bool is_last = false;  // of the shards that need another primary
  bool is_gone = false;
};
class BrokenRecordTest : public ClusterMemberTest,
                         public testing::WithParamInterface<BrokenRecord> {
 protected:
  BrokenRecordTest() : ClusterMemberTest(4, 2) {}
};
INSTANTIATE_TEST_SUITE_P(Of, BrokenRecordTest,
                         testing::Values(BrokenRecord{false, false}, BrokenRecord{false, true},
                                         BrokenRecord{true, false}, BrokenRecord{true, true}));

TEST_P(BrokenRecordTest, KeepsNoOtherShardFromAPrimary) {
  Begin(0);
  Begin(1);
  ASSERT_TRUE(RunUntil([&] {
    for (uint32_t shard = 0; shard < 4; ++shard) {
      if (At(0).shard(shard).record().record.in_sync.size() != 2) return false;
    }
    return true;
  }));
  RunFor(absl::Seconds(10));  // the servers share out the shards
  std::vector<uint32_t> orphans;
  for (uint32_t shard = 0; shard < 4; ++shard) {
    if (At(0).Serves(shard, now_)) orphans.push_back(shard);
  }
  ASSERT_GE(orphans.size(), 2u);
  const uint32_t broken = GetParam().is_last ? orphans.back() : orphans.front();
  std::erase(orphans, broken);
  Transaction change;
  change.operations = {GetParam().is_gone ? StoreOperation::Delete(keys_.Shard(broken))
                                          : StoreOperation::Put(keys_.Shard(broken), "{")};
  store_.Execute(change);
  End(0);
  EXPECT_TRUE(RunUntil([&] {
    return std::all_of(orphans.begin(), orphans.end(),
                       [&](uint32_t shard) { return At(1).Serves(shard, now_); });
  }));
}

// An operator has given up the shard. A server that still has a copy of it loses that, and the next one begins it.
TEST_F(ClusterMemberTest, AShardThatWasGivenUpBeginsEmpty) {
  for (int at = 0; at < 3; ++at) Begin(at);
  ASSERT_TRUE(RunUntil([&] { return ShardAt(0).record().record.in_sync.size() == 3; }));
  ASSERT_TRUE(ShardAt(0).may_decide());
  const uint64_t lsn = ShardAt(0).Decide(BodyOf({7}), 1);
  ASSERT_TRUE(RunUntil([&] {
    return ShardAt(1).replica().log().last() == lsn && ShardAt(2).replica().log().last() == lsn;
  }));
  RunFor(absl::Seconds(1));  // all have read the record
  const StoredShard before = ShardAt(1).record();
  Transaction transaction = SwapTransaction(keys_, {*GiveUpShard(before)});
  ASSERT_EQ(store_.Execute(transaction).outcome, TransactionOutcome::kApplied);
  ASSERT_TRUE(RunUntil([&] {
    const ShardRecord& record = ShardAt(2).record().record;
    return record.term > before.record.term && record.in_sync.size() == 3;
  }));
  for (int at = 0; at < 3; ++at) {
    EXPECT_LT(ShardAt(at).replica().log().last(), lsn) << at;
    EXPECT_TRUE(nodes_[at].tables[0].Writes().empty()) << at;
  }
}

// Two copies at three servers, of which the last one has none.
class RejoinTest : public ClusterMemberTest {
 protected:
  RejoinTest() : ClusterMemberTest(1, 2) {
    Begin(0);
    Begin(1);
    EXPECT_TRUE(RunUntil([&] { return ShardAt(0).record().record.in_sync.size() == 2; }));
    Begin(2);
    RunFor(absl::Seconds(2));
    primary_ = At(0).Serves(0, now_) ? 0 : 1;
    End(1 - primary_);
    // Its right ends after some 4 s, and it is dropped.
    RunFor(absl::Seconds(20));
    EXPECT_EQ(ShardAt(primary_).record().record.in_sync.size(), 1u);
  }
  bool Has(int number) { return ShardAt(primary_).record().record.Find(Id(number)) != nullptr; }
  int primary_;
};

TEST_F(RejoinTest, TheCopyOfAServerThatHasEndedWaitsForIt) {
  Begin(1 - primary_);
  RunFor(absl::Seconds(20));
  EXPECT_TRUE(Has(1 - primary_));
  EXPECT_FALSE(Has(2));
}

TEST_F(RejoinTest, AnotherServerMakesItAfterAWhile) {
  RunFor(absl::Seconds(20));
  EXPECT_TRUE(Has(2));
}

class BalanceTest : public ClusterMemberTest {
 protected:
  BalanceTest() : ClusterMemberTest(4) {}

  // How many shards each server serves, by number; a shard that none or two serve counts as 100.
  std::vector<size_t> Primaries() {
    std::vector<size_t> primaries(3);
    for (uint32_t shard = 0; shard < cluster_.shards; ++shard) {
      size_t servers = 0;
      for (int at = 0; at < 3; ++at) {
        if (nodes_[at].member == nullptr || !At(at).Serves(shard, now_)) continue;
        ++primaries[at];
        ++servers;
      }
      if (servers != 1) primaries[0] += 100;
    }
    return primaries;
  }
  bool Becomes(const std::vector<size_t>& primaries) {
    return RunUntil([&] { return Primaries() == primaries; });
  }
};

TEST_F(BalanceTest, PrimariesAreSpreadWhenServersJoin) {
  Begin(0);
  ASSERT_TRUE(Becomes({4, 0, 0}));
  RunFor(absl::Seconds(3));
  EXPECT_EQ(Primaries(), (std::vector<size_t>{4, 0, 0})) << "there is no other server";
  Begin(1);
  ASSERT_TRUE(Becomes({2, 2, 0})) << testing::PrintToString(Primaries());
  Begin(2);
  ASSERT_TRUE(Becomes({1, 2, 1})) << testing::PrintToString(Primaries());
  RunFor(absl::Seconds(10));
  EXPECT_EQ(Primaries(), (std::vector<size_t>{1, 2, 1})) << "a difference of one is left";
}

TEST_F(BalanceTest, AServerThatReturnsGetsShardsAgain) {
  for (int at = 0; at < 3; ++at) Begin(at);
  ASSERT_TRUE(RunUntil([&] {
    const std::vector<size_t> primaries = Primaries();
    return primaries[0] + primaries[1] + primaries[2] == 4 && primaries[0] >= 1 &&
           primaries[1] >= 1 && primaries[2] >= 1;
  })) << testing::PrintToString(Primaries());
  End(1);
  ASSERT_TRUE(RunUntil([&] { return Primaries()[0] == 2 && Primaries()[2] == 2; }))
      << testing::PrintToString(Primaries());
  Begin(1);
  ASSERT_TRUE(RunUntil([&] { return Primaries()[1] == 1; })) << testing::PrintToString(Primaries());
}

// The new primary would begin the copies of a joiner again.
TEST_F(BalanceTest, OneHandOverIsUnderWayAtATime) {
  Begin(0);
  ASSERT_TRUE(Becomes({4, 0, 0}));
  Begin(1);
  Begin(2);
  const auto hand_overs = [&] {
    int count = 0;
    for (uint32_t shard = 0; shard < cluster_.shards; ++shard)
      count += At(0).shard(shard).hands_over();
    return count;
  };
  ASSERT_TRUE(RunUntil([&] { return hand_overs() == 1; }));
  nodes_[0].is_cut_from_store = true;  // but for its renewals
  RunFor(absl::Seconds(5));
  EXPECT_EQ(hand_overs(), 1);
  EXPECT_EQ(
      std::count_if(log_.begin(), log_.end(),
                    [](const std::string& line) { return line.find("gets shard") != line.npos; }),
      1);
  nodes_[0].is_cut_from_store = false;
  EXPECT_TRUE(RunUntil([&] { return Primaries()[0] <= 2 && hand_overs() == 0; }));
}

TEST_F(BalanceTest, NoShardIsHandedOverWhileACopyIsMissing) {
  Begin(0);
  ASSERT_TRUE(Becomes({4, 0, 0}));
  nodes_[2].loses_copies = true;
  Begin(2);
  RunFor(absl::Seconds(1));
  Begin(1);
  RunFor(absl::Seconds(5));
  EXPECT_EQ(ShardAt(0).record().record.in_sync.size(), 2u);
  EXPECT_EQ(Primaries(), (std::vector<size_t>{4, 0, 0}));
  nodes_[2].loses_copies = false;
  EXPECT_TRUE(RunUntil([&] { return Primaries()[0] < 3; })) << testing::PrintToString(Primaries());
}

}  // namespace
}  // namespace osprey
