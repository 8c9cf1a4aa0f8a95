// Three servers that hold one shard, its record, their connections and clients, in steps that a seed
// chooses. tests/server/cluster/replication/replication_simulation_test.cc judges them.
//
//   clients ──writes 1, 2, …──> ShardReplica of each server ──appends, acks──> the others
//                                     │ ^
//                         swaps, late or lost │ reads
//                                     v │
//                                   the record
//
// Failures: a server loses its memory and comes back empty; or its right lapses while it is stopped, it is
// replaced, and goes on as if nothing had happened. Swaps and answers are late or lost. What was sent stays
// on its way.

#ifndef OSPREY_TESTS_SERVER_CLUSTER_REPLICATION_REPLICATION_WORLD_H_
#define OSPREY_TESTS_SERVER_CLUSTER_REPLICATION_REPLICATION_WORLD_H_

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "server/cluster/replication/replication_messages.h"
#include "server/cluster/replication/shard_replica.h"
#include "tests/support/split_mix64.h"

namespace osprey {

// A table of one key: all writes that it was given, in order. The last one is its value.
class History : public ReplicaStore {
 public:
  absl::Status Reserve(const ReplicatedGroup& group) override;
  void Release(const ReplicatedGroup& group) override;
  void Apply(const ReplicatedGroup& group) override;

  const std::vector<uint64_t>& writes() const { return writes_; }
  // As of this lsn, whatever it held before.
  void TakeCopy(const History& from, uint64_t lsn);
  void Clear();

 private:
  std::vector<uint64_t> writes_;
  uint64_t copied_to_ = 0;                 // groups up to this lsn are in the copy
  std::map<uint64_t, uint64_t> reserved_;  // first lsn -> term
};

std::vector<uint64_t> WritesOf(const ReplicatedGroup& group);
std::string BodyOf(const std::vector<uint64_t>& writes);

struct WorldLimits {
  int failures = 3;
  uint64_t writes = 40;
  uint32_t min_in_sync = 1;
  // Chances, in percent.
  uint64_t live_drops = 10;  // of members that answer, when drops are considered
  uint64_t hand_overs = 4;
  uint64_t late_answers = 50;
};

// Quiet ones, and others in which members come and go.
WorldLimits LimitsOf(uint64_t seed);

class ReplicationWorld {
 public:
  static constexpr int kServers = 3;

  ReplicationWorld(uint64_t seed, WorldLimits limits);

  // Empty, or what is wrong.
  std::string Step();

  uint64_t acknowledged() const { return seen_.size(); }
  uint64_t promotions() const { return promotions_; }
  uint64_t joins() const { return joins_; }
  uint64_t hand_overs() const { return hand_overs_; }

 private:
  struct Swap {
    int author = 0;
    uint64_t revision = 0;  // of the record that it compares
    ShardPlaces places;
    std::optional<ReplicaName> adds;
  };
  struct Connection {  // one way
    bool is_open = false;
    std::deque<std::string> messages;
  };
  struct Server {
    Server(ReplicaName name, uint32_t min_in_sync)
        : incarnation(name.incarnation), replica(0, name, min_in_sync, history) {}
    const uint64_t incarnation;
    History history;
    ShardReplica replica;
    bool is_up = true;
    bool has_lapsed = false;  // its key is gone
    uint64_t known_revision = 0;
    ShardPlaces known;             // the record as it was read last
    bool swap_is_unknown = false;  // one of `known_revision` was sent; its outcome is not known
    std::optional<ReplicaName> adding;
    std::optional<ReplicaName> joiner;  // its copy is made
    int hand_over = 0;  // 1: the region does not say that it serves; 2: nothing is decided any more
  };

  ReplicaName NewName(int server);
  int ServerOf(const ReplicaName& name) const { return static_cast<int>(name.incarnation % 8); }
  std::string See(const std::vector<uint64_t>& writes);
  void Invoke(int at);
  std::string CommitAndAnswer(int at);
  std::string Read(int at);
  void ReadRecord(int at);
  void Count(int at);
  void Propose(int at, const ShardPlaces& places, std::optional<ReplicaName> adds);
  void ExecuteSwap();
  void Promote(int at);
  void DropSome(int at);
  void JoinSome(int at);
  void AddSome(int at);
  void HandOver(int at);
  void Send(int from, int to);
  std::string Deliver(int from, int to);
  std::string Answer();
  void Reconnect(int from, int to);
  void Fail(int at);
  void ComeBack(int at);

  SplitMix64 random_;
  WorldLimits limits_;
  uint64_t lives_ = 0;
  std::vector<std::unique_ptr<Server>> servers_;
  Connection connections_[kServers][kServers];
  uint64_t revision_ = 1;
  ShardPlaces record_;
  std::vector<Swap> swaps_;                           // on their way
  std::vector<std::pair<int, std::string>> answers_;  // likewise, each to a server
  uint64_t invoked_ = 0;
  std::vector<uint64_t> seen_;  // what clients have seen as done, in the shard's order
  // By term and replica: up to which lsn it has confirmed.
  std::map<std::pair<uint64_t, ReplicaName>, uint64_t> confirmed_;
  uint64_t promotions_ = 0;
  uint64_t joins_ = 0;
  uint64_t hand_overs_ = 0;
};

}  // namespace osprey

#endif  // OSPREY_TESTS_SERVER_CLUSTER_REPLICATION_REPLICATION_WORLD_H_
