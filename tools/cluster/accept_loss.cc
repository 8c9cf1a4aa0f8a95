#include "tools/cluster/accept_loss.h"

#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "rdma/lease_time.h"
#include "server/cluster/configuration/shard_swaps.h"
#include "server/cluster/right/right_times.h"
#include "tools/cluster/moves.h"

namespace osprey {

absl::Duration EndedRightWait() { return AwaitedFor(kRightTtl()); }

absl::StatusOr<Transaction> AcceptLoss(const ClusterKeys& keys, const ClusterStatus& status,
                                       uint64_t shard) {
  const absl::StatusOr<StoredShard> stored = ShardIn(status, shard);
  if (!stored.ok()) return stored.status();
  absl::StatusOr<ShardSwap> swap = GiveUpShard(*stored);
  if (!swap.ok()) return swap.status();
  std::vector<StoreOperation> removals;
  for (const Replica& member : stored->record.in_sync) {
    const std::string key = keys.Server(member.server);
    const auto server = status.servers.find(member.server);
    if (server != status.servers.end() && server->second.is_new) {
      return absl::FailedPreconditionError(
          absl::StrCat("shard ", shard, ": server ", member.server,
                       " has just come back, perhaps with its data; try again in some seconds"));
    }
    if (!status.HasKey(member)) {
      // A server's key has a create revision once.
      const int64_t now =
          server == status.servers.end() ? 0 : server->second.stored.create_revision;
      swap->conditions.push_back(StoreCompare::CreateRevision(key, now));
      continue;
    }
    if (server->second.is_renewed) {
      return absl::FailedPreconditionError(absl::StrCat(
          "shard ", shard, ": server ", member.server,
          " has its data, and runs; nothing is lost. It serves the shard in a few seconds"));
    }
    swap->conditions.push_back(StoreCompare::ModRevision(key, server->second.stored.mod_revision));
    removals.push_back(StoreOperation::Delete(key));
  }
  Transaction transaction = SwapTransaction(keys, {*swap});
  transaction.operations.insert(transaction.operations.end(), removals.begin(), removals.end());
  return transaction;
}

}  // namespace osprey
