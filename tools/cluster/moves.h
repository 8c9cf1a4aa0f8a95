// `kvcli cluster move`, `rebalance` and `drain`: which copies of shards are to be at another server. The servers carry
// moves out by themselves, one to each server at a time (shard_record.h). So the commands only write what is to be.
//
// Thread rule: plain functions.

#ifndef OSPREY_TOOLS_CLUSTER_MOVES_H_
#define OSPREY_TOOLS_CLUSTER_MOVES_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "server/cluster/configuration/cluster_keys.h"
#include "server/cluster/configuration/placement.h"
#include "server/cluster/configuration/shard_swaps.h"
#include "server/cluster/etcd/etcd_store.h"
#include "tools/cluster/cluster_status.h"

namespace osprey {

// Moves from servers that use a larger part of their slots to servers that use a smaller one, until no move evens them
// out further. No zone gets more copies of a shard. At most one move of each shard, so that a second plan may go on.
// Only servers that run take part.
std::vector<PlacedMove> PlanRebalance(const ClusterStatus& status);

// Moves of all copies of `server` to others. Errors: NOT_FOUND (no such server), FAILED_PRECONDITION (no room; names
// the shard; or a copy moves to it).
absl::StatusOr<std::vector<PlacedMove>> PlanDrain(const ClusterStatus& status,
                                                  const std::string& server);

// What moves cost.
struct MovesCost {
  uint64_t bytes = 0;  // of whole shards: etcd does not tell how much of them is used
  // That these bytes take at the --copy-rate of the primaries, each of which sends its shards one after the other.
  // Nothing: a primary has no such limit.
  std::optional<absl::Duration> time;
};
MovesCost CostOf(const ClusterStatus& status, absl::Span<const PlacedMove> moves);

// Begins the moves, if nothing of their shards has changed since `status` was read. Transactions are independent of
// each other. Errors: INVALID_ARGUMENT (no such shard), NOT_FOUND (`to` does not run), those of BeginMove.
absl::StatusOr<std::vector<Transaction>> BeginMoves(const ClusterKeys& keys,
                                                    const ClusterStatus& status,
                                                    absl::Span<const PlacedMove> moves);

// Ends the move of a shard: its copies stay where they are. Errors: INVALID_ARGUMENT, those of EndMove,
// FAILED_PRECONDITION (the new copy has joined; says how to move it back).
absl::StatusOr<Transaction> CancelMove(const ClusterKeys& keys, const ClusterStatus& status,
                                       uint64_t shard);

// What the status has of a shard. Errors: INVALID_ARGUMENT (there is no such shard), FAILED_PRECONDITION (its record
// cannot be read).
absl::StatusOr<StoredShard> ShardIn(const ClusterStatus& status, uint64_t shard);

}  // namespace osprey

#endif  // OSPREY_TOOLS_CLUSTER_MOVES_H_
