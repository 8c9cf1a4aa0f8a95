// A server as a member of a cluster: its right to serve, what it has read of the others, and its part in each
// shard. Without clock, thread or connection: the owner makes the calls to the store, and carries the
// messages.
//
//   lane 1   NextRenewal ──> store ──> TakeRenewal                 the right (serving_right.h)
//   lane 2   NextCall ──> store ──> TakeRead, TakeResult           reads, removals of keys, swaps
//   links    LinkUp, LinkDown, TakeMessage; Pump                   appends, acknowledgements, copies
//
// One call is under way in each lane. Renewals have their own: *else* a slow swap costs the right.
//
//   new incarnation ──created──> has its key ──the key is gone──> new incarnation
//
// A server whose key is gone still has its memory. It takes a new incarnation, and its replicas resume
// their places, if the records still name them.
//
// Thread rule: one thread. Time is that of the server's lease clock.

#ifndef OSPREY_SERVER_CLUSTER_MEMBER_CLUSTER_MEMBER_H_
#define OSPREY_SERVER_CLUSTER_MEMBER_CLUSTER_MEMBER_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "server/cluster/configuration/cluster_keys.h"
#include "server/cluster/configuration/cluster_record.h"
#include "server/cluster/configuration/configuration_watch.h"
#include "server/cluster/configuration/placement.h"
#include "server/cluster/configuration/store_identity.h"
#include "server/cluster/etcd/etcd_store.h"
#include "server/cluster/member/copy_rate.h"
#include "server/cluster/member/replica_host.h"
#include "server/cluster/member/shard_member.h"
#include "server/cluster/right/peer_watch.h"
#include "server/cluster/right/serving_right.h"

namespace osprey {

struct MemberOptions {
  ClusterKeys keys;
  ClusterRecord cluster;
  std::string server;                     // its ID
  std::vector<std::string> addresses;     // for other servers
  std::vector<std::string> clients = {};  // addresses of shard 0 for clients
  uint32_t slots = 0;                     // for so many shards the tables have memory
  std::string zone = {};                  // empty: as all servers without one
  absl::Duration ttl = absl::Seconds(3);
  absl::Duration read_interval = absl::Milliseconds(300);
  absl::Duration backup_timeout = absl::Seconds(1);
  // The copies of a server that has ended wait for it for so long, before others make them.
  absl::Duration rejoin_after = absl::Seconds(30);
  uint64_t copy_rate = 0;                           // CopyRate
  std::function<uint64_t()> random;                 // 64 bits. Required.
  std::function<void(absl::string_view line)> log;  // may be empty
};

// A call to the store: a read, or a transaction.
struct StoreCall {
  std::optional<StoreRange> range;
  Transaction transaction;
  int64_t revision_before = 0;  // of StoreIdentity, when it was made
};

class ClusterMember {
 public:
  // `tables`: one of each shard. They and `sender` outlive this.
  ClusterMember(MemberOptions options, const std::vector<MemberTable*>& tables, PeerSender& sender);

  // --- Lane 1
  absl::Time next_renewal() const { return next_renewal_; }
  Transaction NextRenewal();
  // `sent`: before the call.
  void TakeRenewal(const TransactionResult& result, absl::Time sent, absl::Time now);

  // The server ends: nothing more is called but store_status. Deletes its key (ServingRight::Release); nothing:
  // it has none. REQUIRES: no renewal is under way, and no lease of a reader is left.
  std::optional<Transaction> Release() { return right_->Release(); }

  // --- Lane 2
  // Nothing: no call is due. REQUIRES: the answer to the last one was taken.
  std::optional<StoreCall> NextCall(absl::Time now);
  void TakeRead(const absl::StatusOr<RangeAnswer>& answer, absl::Time now);
  void TakeResult(const TransactionResult& result, absl::Time now);

  // --- Links
  // All servers of the cluster, by ID, as the store names them.
  const std::map<std::string, WatchedServer>& servers() const { return watch_.servers(); }
  // Those to which links are to be, by ID: they have a shard in common with this one, or have sent a message. Each stays
  // among them for a while afterwards.
  std::set<std::string> NeededServers(absl::Time now);
  // Whether another server has its key, or had it not long ago (MemberOptions::rejoin_after).
  bool HasOthers() const;
  uint64_t incarnation() const { return incarnation_; }
  void LinkUp(uint64_t incarnation);
  void LinkDown(uint64_t incarnation);
  // Errors: DATA_LOSS (malformed; nothing was changed).
  absl::Status TakeMessage(uint64_t from, PeerMessageKind kind, absl::string_view body,
                           absl::Time now);
  // Sends what is due.
  void Pump(absl::Time now);

  // Not OK: the store is another one, or of an earlier state. The server serves nothing from then on.
  const absl::Status& store_status() const { return identity_.status(); }

  // --- Serving
  // While the lease clock shows less, answers may leave.
  absl::Time right_until() const;
  bool Serves(uint32_t shard, absl::Time now) const {
    return now < right_until() && shards_[shard]->serves();
  }
  // What the region may say: readers' leases have their own check (server/cluster/beat).
  bool Publishes(uint32_t shard, absl::Time now) const {
    return now < right_until() && shards_[shard]->publishes();
  }
  bool MayDecide(uint32_t shard, absl::Time now) const {
    return now < right_until() && shards_[shard]->may_decide();
  }
  ShardMember& shard(uint32_t shard) { return *shards_[shard]; }
  const ShardMember& shard(uint32_t shard) const { return *shards_[shard]; }

 private:
  struct Away {
    PlacementServer server;
    absl::Time until;
  };

  void BeginIncarnation();
  bool CheckHeader(const StoreHeader& header, int64_t before);
  void CheckCluster(const RangeAnswer& answer);
  std::optional<Transaction> NextRemoval(absl::Time now);
  bool IsAwaited(absl::string_view server) const;
  std::optional<Transaction> NextSwaps(absl::Time now);
  void NoteAway(absl::Time now);
  PlacementView Placement() const;
  void Assign();
  void Balance(absl::Time now);
  void LogChange(const absl::Status& status, std::string& last) const;
  void NoteRight(absl::Time now);
  void Log(absl::string_view line) const {
    if (options_.log) options_.log(line);
  }

  const MemberOptions options_;
  StoreIdentity identity_;
  ConfigurationWatch watch_;
  CopyRate copy_rate_;
  std::vector<std::unique_ptr<ShardMember>> shards_;

  uint64_t incarnation_ = 0;
  std::optional<ServingRight> right_;
  absl::Time next_renewal_ = absl::InfinitePast();
  int64_t renewal_revision_ = 0;  // of the identity, when the renewal was made

  // Logged last; empty: none that lasts.
  std::string renewal_error_, read_error_, cluster_error_, right_error_;
  bool had_right_ = false;

  // By incarnation: when there was last a reason for a link to it.
  std::map<uint64_t, absl::Time> needed_at_;
  std::map<std::string, PeerWatch> peers_;
  bool lacks_copies_ = false;  // of some shard
  HandOverPlan hand_overs_;
  std::map<std::string, PlacementServer> seen_;  // servers of the last read
  std::map<std::string, Away> away_;             // that have ended since
  std::optional<StoreCall> call_;                // under way
  std::vector<uint32_t> swapped_;                // shards of its swaps; empty: it has none
  absl::Time servers_read_ = absl::InfinitePast();
  absl::Time servers_due_ = absl::InfinitePast();
  absl::Time shards_due_ = absl::InfinitePast();
  uint32_t swaps_from_ = 0;  // the shard whose swap has its turn
  absl::Time swaps_due_ = absl::InfinitePast();
  absl::Time cluster_due_ = absl::InfiniteFuture();  // counted from the first call
  absl::Time balance_due_ = absl::InfinitePast();
};

}  // namespace osprey

#endif  // OSPREY_SERVER_CLUSTER_MEMBER_CLUSTER_MEMBER_H_
