// Which replicas a shard has, as JSON in the key `shards/N`:
//
//   {"format":1,"in_sync":[{"create_revision":17,"incarnation":"00f1…","life":"9a04…","server":"a"}, …],
//    "primary":"a","term":4}                              … "move":{"from":"a","to":"d"}, while a copy moves
//
//   initial ──adopt──> primary, in_sync ──────────────────────────────────────────> …
//   (term 0)             │  ^    in one term: a backup is dropped, one is added,
//                        │  │    or resumes its place
//          the primary   │  │
//          resumes its   v  │ promotion, hand-over: the next term
//          place       no primary
//
// A record changes only by a transaction that compares its revision (shard_swaps.h). in_sync has every
// replica that holds all that the shard has acknowledged. The primary is one of them. There is no
// primary in two cases: in the initial record, and once the server of the primary has resumed its
// place with a new incarnation, which is no primary.
//
// A move is a wish: the copy of `from` goes to `to`. It joins, as for a missing copy. Then `from` is dropped, after a
// hand-over if it is the primary. The record says so until then. So a move outlives all servers that carry it out.
//
// Thread rule: plain values and functions.

#ifndef OSPREY_SERVER_CLUSTER_CONFIGURATION_SHARD_RECORD_H_
#define OSPREY_SERVER_CLUSTER_CONFIGURATION_SHARD_RECORD_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace osprey {

inline constexpr size_t kShardRecordBytesMax = 16 << 10;
inline constexpr uint32_t kShardRecordFormat = 1;
inline constexpr uint64_t kTermMax = uint64_t{1} << 53;  // exact in every program that reads JSON
// In in_sync: kReplicasMax, and one more while a replica moves.
inline constexpr size_t kMembersMax = 8;

// One copy of one shard. A server that restarts, or begins to copy the shard again, is another
// replica: it does not have what the one before had acknowledged.
struct Replica {
  std::string server;           // its ID
  int64_t create_revision = 0;  // of the server's key in the store; names its right to serve
  uint64_t incarnation = 0;     // of the server, not 0
  uint64_t life = 0;            // random, not 0: new with each beginning of a copy of the shard

  friend bool operator==(const Replica&, const Replica&) = default;
};

struct ShardMove {
  std::string from, to;  // IDs of servers, not the same

  friend bool operator==(const ShardMove&, const ShardMove&) = default;
};

struct ShardRecord {
  uint64_t term = 0;             // 0: there was none
  std::string primary;           // the ID of a server that in_sync names; empty: none
  std::vector<Replica> in_sync;  // no server twice; empty only in an initial record
  std::optional<ShardMove> move = std::nullopt;

  // Any server may adopt the shard, which is empty: it has no term yet, or an operator has accepted the loss of
  // what all terms so far had (GiveUpShard).
  bool is_initial() const { return in_sync.empty(); }
  // Members without the one that moves away: those that stay.
  size_t Staying() const;
  // The member of that server; nullptr: none.
  const Replica* Find(absl::string_view server) const;
  // Whether exactly this replica is a member.
  bool Has(const Replica& replica) const;
  // Whether exactly this replica is the primary: a name alone is not enough.
  bool HasAsPrimary(const Replica& replica) const {
    return primary == replica.server && Has(replica);
  }

  friend bool operator==(const ShardRecord&, const ShardRecord&) = default;
};

// A record as the store had it.
struct StoredShard {
  uint32_t shard = 0;
  int64_t mod_revision = 0;
  ShardRecord record;

  friend bool operator==(const StoredShard&, const StoredShard&) = default;
};

std::string EncodeShardRecord(const ShardRecord& record);

// Errors: DATA_LOSS (it is no such record; says what is wrong), FAILED_PRECONDITION (a newer program
// wrote it).
absl::StatusOr<ShardRecord> DecodeShardRecord(absl::string_view text);

}  // namespace osprey

#endif  // OSPREY_SERVER_CLUSTER_CONFIGURATION_SHARD_RECORD_H_
