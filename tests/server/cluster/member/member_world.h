// The servers of a cluster, etcd, the links between them and clients, in virtual time. Their members are
// those that ship; etcd is a model, whose calls are late and lost.
//
//   faults   servers that stop for seconds and go on, or lose their memory and come back; servers that etcd
//            or another server does not reach; etcd down; clocks that gain and lose a tenth; moves of
//            copies
//   clients  write and read at whatever server says that it serves
//
// A shard is one register: the history of its writes.

#ifndef OSPREY_TESTS_SERVER_CLUSTER_MEMBER_MEMBER_WORLD_H_
#define OSPREY_TESTS_SERVER_CLUSTER_MEMBER_MEMBER_WORLD_H_

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "server/cluster/member/cluster_member.h"
#include "server/cluster/member/replica_host.h"
#include "tests/server/cluster/replication/register_writes.h"
#include "tests/server/cluster/right/model_store.h"
#include "tests/support/split_mix64.h"

namespace osprey {

// The table of one register.
class RegisterTable : public MemberTable {
 public:
  // `free_slots`: of the server, which has as many tables as shards; null: each table has memory.
  explicit RegisterTable(uint32_t* free_slots = nullptr) : free_slots_(free_slots) {}
  bool Take() override;
  bool CanTake() const override { return has_slot_ || free_slots_ == nullptr || *free_slots_ > 0; }
  absl::Status Reserve(const ReplicatedGroup& group) override;
  void Release(const ReplicatedGroup& group) override;
  void Apply(const ReplicatedGroup& group) override;
  void Clear() override;
  bool ClearSome() override;
  void BeginJoin() override { Clear(); }
  uint64_t EndPrimary() override { return 0; }
  void BeginCopy() override { copies_ = true; }
  bool HasChunk() override { return true; }
  std::string NextChunk() override;
  absl::Status TakeChunk(absl::string_view chunk) override;
  void EndCopy() override {}

  std::vector<uint64_t> Writes() const;

 private:
  std::vector<std::pair<uint64_t, uint64_t>> writes_;  // {lsn, write}
  uint64_t applied_ = 0;                               // lsn
  bool copies_ = false;
  uint32_t* free_slots_;
  bool has_slot_ = false;
};

struct MemberWorldStats {
  uint64_t acknowledged = 0;
  uint64_t reads = 0;         // by message
  uint64_t region_reads = 0;  // under a lease
  uint64_t terms = 0;
  uint64_t faults = 0;
  uint64_t moves = 0;     // of an operator's, those that the store took
  bool lost_all = false;  // a shard's record came to name only replicas that have lost their memory
};

struct MemberWorldOptions {
  int servers = 3;
  uint32_t shards = 4;
  uint32_t replicas = 2;
  // For how many shards each server has memory; enough for all replicas. 0: for all.
  uint32_t slots = 0;
};

class MemberWorld {
 public:
  MemberWorld(uint64_t seed, const MemberWorldOptions& options);

  // Empty, or what is wrong. With faults for so long, and then without until all shards are whole.
  std::string Run(absl::Duration with_faults, absl::Duration to_recover);
  const MemberWorldStats& stats() const { return stats_; }

 private:
  struct Message {
    absl::Time arrives;
    uint64_t to = 0;  // incarnation
    PeerMessageKind kind = PeerMessageKind::kAppend;
    std::string body;
  };
  struct Call {
    absl::Time executed;  // at the store; InfiniteFuture: never
    absl::Time answered;  // InfiniteFuture: never
    absl::Time sent_by_clock;
    absl::Time gives_up;
    StoreCall call;
    bool is_done = false;
    TransactionResult result;
    RangeAnswer read;
  };
  // One way, from a server to another's incarnation.
  struct Link {
    uint64_t from = 0;
    uint64_t to = 0;  // 0: there is no link
    std::deque<Message> messages;
    absl::Time retry = absl::InfinitePast();
  };
  class Sender : public PeerSender {
   public:
    Sender(MemberWorld& world, int from) : world_(world), from_(from) {}
    uint64_t RoomFor(uint64_t incarnation) const override;
    void Send(uint64_t incarnation, PeerMessageKind kind, std::string bytes) override;

   private:
    MemberWorld& world_;
    const int from_;
  };
  struct Server {
    Server(MemberWorld& world, int number);
    Sender sender;
    uint32_t free_slots;
    std::vector<std::unique_ptr<RegisterTable>> tables;  // by shard
    std::unique_ptr<ClusterMember> member;
    std::optional<Call> renewal, call;
  };
  struct Machine {
    std::unique_ptr<Server> server;  // null: it has crashed
    absl::Time clock = absl::UnixEpoch();
    int64_t clock_percent = 100;
    absl::Time paused_until = absl::InfinitePast();
    absl::Time restarts = absl::InfinitePast();
    absl::Time cut_from_store_until = absl::InfinitePast();
    std::vector<Link> links;       // by server
    std::set<std::string> needed;  // ClusterMember::NeededServers
    absl::Time needed_due = absl::InfinitePast();
    // What was READ from its region counts until then, however long the server is stopped: the longest
    // lease of any client, by a clock that is a tenth slow.
    std::vector<absl::Time> leased_until;  // by shard
  };

  bool IsPaused(int at) const { return now_ < machines_[at].paused_until; }
  bool IsCut(int a, int b) const { return now_ < cut_until_[a][b]; }
  bool IsCutFromStore(int at) const {
    return now_ < machines_[at].cut_from_store_until || now_ < store_down_until_;
  }
  std::string Step();
  void AskToHandOver(int at, int to);
  bool HaveOtherCopies(int at) const;
  void Fault();
  void AskForMove();
  void RunStore(int at);
  void Execute(Call& call);
  Call NewCall(int at, StoreCall call);
  void RunLinks(int at);
  std::string Deliver(int from, int to);
  std::string RunClients(int at);
  void GrantLeases(int at);
  std::string ReadRegion(int at);
  void Write(int at, uint32_t shard);
  std::string Settle(int at, uint32_t shard);
  bool IsWhole(uint32_t shard) const;
  bool AreAllWhole() const;
  bool IsLost(uint32_t shard) const;
  std::string Describe() const;

  SplitMix64 random_;
  const int servers_;
  const uint32_t shards_;
  const uint32_t slots_;
  const ClusterKeys keys_{"/osprey/test/"};
  ClusterRecord cluster_;
  ModelStore store_;
  std::vector<Call> late_;  // transactions whose callers do not wait any more
  absl::Time now_ = absl::UnixEpoch();
  absl::Time next_fault_ = absl::UnixEpoch();
  absl::Time faults_end_ = absl::InfiniteFuture();
  absl::Time store_down_until_ = absl::InfinitePast();
  std::vector<std::vector<absl::Time>> cut_until_;
  std::vector<Machine> machines_;
  std::vector<uint64_t> invoked_;  // by shard
  std::vector<SeenWrites> seen_;   // by shard
  std::set<uint64_t> crashed_;     // lives of replicas
  MemberWorldStats stats_;
};

}  // namespace osprey

#endif  // OSPREY_TESTS_SERVER_CLUSTER_MEMBER_MEMBER_WORLD_H_
