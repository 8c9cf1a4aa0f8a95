// Three servers of a shard, without time, threads or connections: a test delivers their messages and their swaps.

#ifndef OSPREY_TESTS_SERVER_CLUSTER_MEMBER_SHARD_MEMBER_FIXTURE_H_
#define OSPREY_TESTS_SERVER_CLUSTER_MEMBER_SHARD_MEMBER_FIXTURE_H_

#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "gtest/gtest.h"
#include "server/cluster/configuration/configuration_watch.h"
#include "server/cluster/member/shard_member.h"
#include "server/cluster/replication/replication_messages.h"
#include "server/cluster/right/server_record.h"
#include "tests/server/cluster/member/member_world.h"
#include "tests/server/cluster/replication/register_writes.h"
#include "tests/server/cluster/right/model_store.h"

namespace osprey {

inline constexpr uint64_t kIncarnations[] = {11, 12, 13};
inline constexpr size_t kLongChunk = 64 << 10;

inline ClusterRecord Cluster() {
  ClusterRecord cluster;
  cluster.id = 7;
  cluster.shards = 1;
  cluster.replicas = 3;
  cluster.min_in_sync = 1;
  cluster.hash_seed = 1;
  cluster.shard_bytes = kShardBytesMin;
  return cluster;
}

// Three servers, of which the first adopts the shard. Messages wait until they are delivered.
class ShardMemberTest : public testing::Test {
 protected:
  struct Node : public PeerSender {
    Node(ShardMemberTest& test, int number)
        : member(0,
                 {.keys = test.keys_,
                  .cluster = Cluster(),
                  .server = Id(number),
                  .copy_rate = &test.copy_rate_,
                  .random = [&test] { return ++test.lives_; },
                  .log = [&test](absl::string_view line) { test.log_.emplace_back(line); }},
                 table, *this) {
      member.SetAssigned(true);
    }
    uint64_t RoomFor(uint64_t) const override { return room; }
    void Send(uint64_t incarnation, PeerMessageKind kind, std::string bytes) override {
      sent.push_back({incarnation, {kind, std::move(bytes)}});
    }
    uint64_t room = 64 << 20;
    class Table : public RegisterTable {
     public:
      absl::Status Reserve(const ReplicatedGroup& group) override {
        return is_full ? absl::ResourceExhaustedError("memory is full")
                       : RegisterTable::Reserve(group);
      }
      bool Take() override { return has_memory; }
      std::string NextChunk() override {
        if (long_chunks == 0) return RegisterTable::NextChunk();
        --long_chunks;
        return std::string(kLongChunk, ' ');
      }
      absl::Status TakeChunk(absl::string_view chunk) override {
        return chunk.size() == kLongChunk ? absl::OkStatus() : RegisterTable::TakeChunk(chunk);
      }
      bool CanTake() const override { return true; }
      bool has_memory = true;
      bool is_full = false;
      int long_chunks = 0;  // come first, and say nothing
    };
    Table table;
    std::deque<std::pair<uint64_t, std::pair<PeerMessageKind, std::string>>> sent;
    ShardMember member;
  };

  explicit ShardMemberTest(uint64_t copy_rate = 0) : watch_(keys_, 1), copy_rate_(copy_rate) {
    store_.Execute(CreateCluster(keys_, Cluster()));
    for (int i = 0; i < 3; ++i) {
      Transaction creation;
      creation.operations = {StoreOperation::Put(
          keys_.Server(Id(i)), EncodeServerRecord({kIncarnations[i], {"shm:///x"}, 0}))};
      const TransactionResult created = store_.Execute(creation);
      nodes_[i].member.SetServer(created.header.revision, kIncarnations[i]);
      for (const uint64_t other : kIncarnations) {
        if (other != kIncarnations[i]) nodes_[i].member.LinkUp(other);
      }
    }
    ReadAll();
    Swap(0);
    EXPECT_TRUE(nodes_[0].member.serves());
    ReadAll();
  }

  static std::string Id(int number) { return std::string(1, static_cast<char>('a' + number)); }

  void ReadAll() {
    watch_.TakeServers(store_.Range(watch_.ServersRange()));
    ReadShard();
  }
  void ReadShard() {
    const StoreRange range = watch_.ShardsRange();
    watch_.TakeShards(range, store_.Range(range));
    for (Node& node : nodes_) node.member.Saw(*watch_.Shard(0), now_);
  }
  // The swap that is due at a server, begun and not sent.
  Transaction Begin(int at) {
    const std::optional<ShardSwap> swap = nodes_[at].member.WantedSwap(watch_, now_);
    EXPECT_TRUE(swap.has_value());
    nodes_[at].member.BeginSwap(*swap);
    return SwapTransaction(keys_, {*swap});
  }
  void Swap(int at) {
    EXPECT_TRUE(nodes_[at].member.TakeAnswer(store_.Execute(Begin(at)), 0, now_).ok());
  }
  // Delivers messages until there are none, but for those to `silent`.
  void Exchange(int silent = -1, int rounds = 50) {
    for (int round = 0; round < rounds; ++round) {
      now_ += absl::Milliseconds(20);
      for (Node& node : nodes_) node.member.Pump(now_);
      for (int from = 0; from < 3; ++from) {
        while (!nodes_[from].sent.empty()) {
          const auto [incarnation, message] = nodes_[from].sent.front();
          nodes_[from].sent.pop_front();
          const int to = static_cast<int>(incarnation - kIncarnations[0]);
          if (to != silent && from != silent) Take(to, message.first, message.second);
        }
      }
    }
  }
  void Take(int to, PeerMessageKind kind, const std::string& bytes) {
    ShardMember& member = nodes_[to].member;
    if (kind == PeerMessageKind::kAppend) member.TakeAppend(*DecodeAppend(bytes), now_);
    if (kind == PeerMessageKind::kAck) member.TakeAck(*DecodeAck(bytes), now_);
    if (kind == PeerMessageKind::kCopy) member.TakeCopy(*DecodeCopyMessage(bytes), watch_, now_);
  }
  // A message of a server's copy arrives at the primary. Returns the kind of its answer.
  CopyKind TakeAtPrimary(CopyKind kind, const ReplicaName& joiner) {
    nodes_[0].sent.clear();
    nodes_[0].member.TakeCopy({0, kind, 1, joiner, 0, ""}, watch_, now_);
    EXPECT_EQ(nodes_[0].sent.size(), 1u);
    return DecodeCopyMessage(nodes_[0].sent.back().second.second)->kind;
  }
  // This server's key is gone, and it has another one, under this incarnation.
  void BeginIncarnation(int at, uint64_t incarnation) {
    Transaction change;
    change.operations = {StoreOperation::Delete(keys_.Server(Id(at)))};
    store_.Execute(change);
    nodes_[at].member.SetServer(0, incarnation);
    change.operations = {StoreOperation::Put(keys_.Server(Id(at)),
                                             EncodeServerRecord({incarnation, {"shm:///x"}, 0}))};
    nodes_[at].member.SetServer(store_.Execute(change).header.revision, incarnation);
  }
  uint64_t Decide() { return nodes_[0].member.Decide(BodyOf({++writes_}), 1); }
  void Join() {
    Exchange();
    Swap(0);
    ReadAll();
  }
  // A server joins, and gets another incarnation. Its swap is due, by which that resumes its place.
  int JoinAndLoseRight() {
    Join();
    const int at = nodes_[0].member.record().record.in_sync.at(1).server[0] - 'a';
    BeginIncarnation(at, 21);
    ReadAll();
    return at;
  }

  const ClusterKeys keys_{"/osprey/test/"};
  ModelStore store_;
  ConfigurationWatch watch_;
  CopyRate copy_rate_;  // of all three
  absl::Time now_ = absl::UnixEpoch();
  uint64_t lives_ = 0;
  std::vector<std::string> log_;
  uint64_t writes_ = 0;
  Node nodes_[3] = {{*this, 0}, {*this, 1}, {*this, 2}};
};

}  // namespace osprey

#endif  // OSPREY_TESTS_SERVER_CLUSTER_MEMBER_SHARD_MEMBER_FIXTURE_H_
