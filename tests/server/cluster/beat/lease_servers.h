// Three servers of one shard in virtual time: they renew, beat, replicate one number, hand over, are
// stopped between any two steps, lose their rights and take over from each other. Their rights, watches
// and beats are those that ship; replication is as simple as possible.
//
// The number is what a READ finds. A write raises it: it is appended to all that are in sync, then
// READable, then acknowledged. A backup applies later.

#ifndef OSPREY_TESTS_SERVER_CLUSTER_BEAT_LEASE_SERVERS_H_
#define OSPREY_TESTS_SERVER_CLUSTER_BEAT_LEASE_SERVERS_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "absl/time/time.h"
#include "absl/types/optional.h"
#include "index/layout/serving_record.h"
#include "server/cluster/beat/serving_beat.h"
#include "server/cluster/right/peer_watch.h"
#include "server/cluster/right/serving_right.h"
#include "tests/index/index_test_util.h"
#include "tests/server/cluster/right/drifting_clock.h"
#include "tests/server/cluster/right/model_store.h"
#include "tests/support/split_mix64.h"

namespace osprey {

// Each breaks a rule of server/cluster/README.md.
enum class LeaseMistake {
  kNone,
  // Servers.
  kBeatUnchecked,     // a beat is stored whatever the right
  kCheckBeforeStore,  // the check comes before the store of the beat before
  kShortHandOver,     // the wait after a loss is half a lease
  // Clients.
  kOneBeat,           // a lease needs one beat more than was found at its posting
  kLeaseFromLanding,  // it counts from when that READ landed
  kGrantFromReply,    // … from when the reply came
  kLossIgnored,       // the record's loss revision, and that the shard is gone
  kUnnamed,           // GETs count that began before the shard was named
  // Both.
  kClocksTrusted,  // no allowance for clocks that differ
};

class LeaseServers {
 public:
  static constexpr size_t kServers = 3;

  // `calm`: servers hand over more often, and are stopped less often.
  LeaseServers(SplitMix64& random, LeaseMistake mistake, bool calm);

  // Lets time pass, and each server that is not stopped take a step.
  void Step(absl::Duration time);

  // What the network card answers, whatever the server does.
  absl::optional<index::ServingState> ReadRecord(size_t server) const;
  uint64_t ReadNumber(size_t server) const { return servers_[server]->number; }
  // A request for a lease is executed; nullopt: refused.
  absl::optional<index::ServingState> Grant(size_t server) const;
  bool stopped(size_t server) const { return servers_[server]->stopped; }
  // The newest write that the server acknowledged.
  uint64_t acknowledged(size_t server) const { return servers_[server]->acknowledged; }

  uint64_t takeovers() const { return takeovers_; }
  uint64_t hand_overs() const { return hand_overs_; }

 private:
  // What a server does as a primary, in this order.
  enum class Role { kBackup, kPromoted, kServes, kHandsOver };
  enum class Write { kNone, kAppended, kReadable };
  struct Renewal {
    absl::Time sent;
    TransactionResult result;
  };
  struct Server {
    explicit Server(size_t number_of_it);

    const std::string key;
    index::RegionMemory memory{4096};
    ServingBeat beat;
    std::optional<ServingRight> right;
    std::optional<Renewal> renewal;
    std::optional<PeerWatch> watch;
    std::string watched;
    DriftingClock clock;
    bool stopped = false;
    bool checked = false;
    absl::Time checked_at = absl::UnixEpoch();
    Role role = Role::kBackup;
    Write write = Write::kNone;
    absl::Time lost_at;
    uint64_t term = 0;       // the highest that it has seen
    uint64_t tail = 0;       // the last write that it holds
    uint64_t committed = 0;  // the last of which it has word
    uint64_t number = 0;
    uint64_t acknowledged = 0;
  };
  // The shard's record in the store.
  struct Shard {
    size_t primary = 0;
    int64_t create_revision = 0;  // of the primary's key
    uint64_t term = 0;
    uint32_t in_sync = (1u << kServers) - 1;
  };

  ServingBounds BoundsOf(const Server& server) const;
  bool HasRight(const Server& server) const { return server.clock.now() < server.right->until(); }
  bool KeyIsThere(const Server& server, int64_t create_revision) const;
  void BeginLife(Server& server);
  void Renew(Server& server);
  void Beat(Server& server);
  void Watch(Server& server);
  void BeBackup(size_t index);
  void BePrimary(size_t index);
  bool AppendToAll(size_t index, uint64_t tail);
  void AddMembers(size_t index);
  void Resign(Server& server);

  SplitMix64& random_;
  const LeaseMistake mistake_;
  const bool calm_;
  ModelStore store_;
  Shard shard_;
  std::array<std::unique_ptr<Server>, kServers> servers_;
  uint64_t lives_ = 0;
  uint64_t takeovers_ = 0;
  uint64_t hand_overs_ = 0;
};

}  // namespace osprey

#endif  // OSPREY_TESTS_SERVER_CLUSTER_BEAT_LEASE_SERVERS_H_
