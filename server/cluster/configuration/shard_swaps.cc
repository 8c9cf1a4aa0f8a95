#include "server/cluster/configuration/shard_swaps.h"

#include <algorithm>
#include <cassert>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"

namespace osprey {
namespace {

template <typename... Why>
absl::Status Refused(const StoredShard& seen, const Why&... why) {
  return absl::FailedPreconditionError(absl::StrCat("shard ", seen.shard, ": ", why...));
}

absl::Status MustBePrimary(const ShardAuthor& author, const StoredShard& seen) {
  if (seen.record.HasAsPrimary(author.self)) return absl::OkStatus();
  return Refused(seen, "its record does not name this replica of ", author.self.server,
                 " as primary; read it again");
}

// Of a record that stays as it is; on the condition that the author's key is there.
ShardSwap SwapOf(const ShardAuthor& author, const StoredShard& seen) {
  ShardSwap swap;
  swap.shard = seen.shard;
  swap.mod_revision = seen.mod_revision;
  swap.next = seen.record;
  swap.conditions = {StoreCompare::CreateRevision(author.keys.Server(author.self.server),
                                                  author.self.create_revision)};
  return swap;
}

absl::Status BeginTerm(const StoredShard& seen, uint64_t highest_term, ShardRecord& next) {
  const uint64_t term = std::max(seen.record.term, highest_term);
  if (term >= kTermMax) return Refused(seen, "there is no term above ", term);
  next.term = term + 1;
  return absl::OkStatus();
}

// Whether a record may name it.
bool IsReplica(const Replica& replica) {
  return IsServerId(replica.server) && replica.create_revision >= 1 && replica.incarnation != 0 &&
         replica.life != 0;
}

void Erase(ShardRecord& record, absl::string_view server) {
  std::erase_if(record.in_sync, [&](const Replica& one) { return one.server == server; });
  if (record.move.has_value() && record.move->from == server) record.move.reset();
}

ShardSwap SwapWithoutAuthor(const StoredShard& seen) {
  ShardSwap swap;
  swap.shard = seen.shard;
  swap.mod_revision = seen.mod_revision;
  swap.next = seen.record;
  return swap;
}

}  // namespace

absl::StatusOr<ShardSwap> AdoptShard(const ShardAuthor& author, const StoredShard& seen,
                                     uint64_t highest_term) {
  if (!seen.record.is_initial()) return Refused(seen, "it has replicas in sync");
  if (!IsReplica(author.self)) return Refused(seen, "the author lacks a part of its name");
  ShardSwap swap = SwapOf(author, seen);
  if (absl::Status begun = BeginTerm(seen, highest_term, swap.next); !begun.ok()) return begun;
  swap.next.primary = author.self.server;
  swap.next.in_sync = {author.self};
  return swap;
}

absl::StatusOr<ShardSwap> DropMember(const ShardAuthor& author, const StoredShard& seen,
                                     absl::string_view server, uint32_t min_in_sync) {
  if (absl::Status is = MustBePrimary(author, seen); !is.ok()) return is;
  if (server == author.self.server) return Refused(seen, "a primary does not drop itself");
  if (seen.record.Find(server) == nullptr) return Refused(seen, server, " is no member");
  if (seen.record.in_sync.size() <= min_in_sync)
    return Refused(seen, "without ", server, " it would have fewer than ", min_in_sync,
                   " replicas in sync; add another first, or hand over");
  ShardSwap swap = SwapOf(author, seen);
  Erase(swap.next, server);
  return swap;
}

absl::StatusOr<ShardSwap> AddMember(const ShardAuthor& author, const StoredShard& seen,
                                    const Replica& joiner) {
  if (absl::Status is = MustBePrimary(author, seen); !is.ok()) return is;
  if (!IsReplica(joiner)) return Refused(seen, "the joiner lacks a part of its name");
  if (seen.record.Find(joiner.server) != nullptr)
    return Refused(seen, joiner.server, " is a member; drop that replica first");
  if (seen.record.in_sync.size() >= kMembersMax)
    return Refused(seen, "it has ", kMembersMax, " members; drop one first");
  ShardSwap swap = SwapOf(author, seen);
  swap.next.in_sync.push_back(joiner);
  swap.conditions.push_back(
      StoreCompare::CreateRevision(author.keys.Server(joiner.server), joiner.create_revision));
  return swap;
}

absl::StatusOr<ShardSwap> PromoteSelf(const ShardAuthor& author, const StoredShard& seen,
                                      int64_t primary_key, uint64_t highest_term) {
  if (!seen.record.Has(author.self))
    return Refused(seen, "it does not name this replica of ", author.self.server, " as in sync");
  if (seen.record.primary == author.self.server) return Refused(seen, "this replica is primary");
  ShardSwap swap = SwapOf(author, seen);
  if (absl::Status begun = BeginTerm(seen, highest_term, swap.next); !begun.ok()) return begun;
  if (const Replica* primary = seen.record.Find(seen.record.primary); primary != nullptr) {
    if (primary_key == primary->create_revision)
      return Refused(seen, "the key of its primary ", primary->server, " is there");
    // A key has a create revision once. So this says that the primary's is gone.
    swap.conditions.push_back(
        StoreCompare::CreateRevision(author.keys.Server(primary->server), primary_key));
    Erase(swap.next, seen.record.primary);
  }
  swap.next.primary = author.self.server;
  return swap;
}

absl::StatusOr<ShardSwap> HandOver(const ShardAuthor& author, const StoredShard& seen,
                                   absl::string_view successor, uint64_t highest_term) {
  if (absl::Status is = MustBePrimary(author, seen); !is.ok()) return is;
  if (successor == author.self.server) return Refused(seen, successor, " is the primary");
  if (seen.record.Find(successor) == nullptr)
    return Refused(seen, successor, " is no member; add it first");
  ShardSwap swap = SwapOf(author, seen);
  if (absl::Status begun = BeginTerm(seen, highest_term, swap.next); !begun.ok()) return begun;
  swap.next.primary = std::string(successor);
  return swap;
}

absl::StatusOr<ShardSwap> ResumePlace(const ShardAuthor& author, const StoredShard& seen,
                                      const Replica& before) {
  const Replica& self = author.self;
  if (self.server != before.server || self.life != before.life ||
      self.incarnation == before.incarnation || self.create_revision == before.create_revision ||
      !IsReplica(self))
    return Refused(seen, "only a new incarnation of the same replica resumes its place");
  if (!seen.record.Has(before))
    return Refused(seen, "it does not name the replica that ", self.server,
                   " has; join as a new one");
  ShardSwap swap = SwapOf(author, seen);
  std::replace(swap.next.in_sync.begin(), swap.next.in_sync.end(), before, self);
  if (swap.next.primary == self.server) swap.next.primary.clear();
  return swap;
}

absl::StatusOr<ShardSwap> GiveUpShard(const StoredShard& seen) {
  if (seen.record.is_initial()) return Refused(seen, "no server has data of it");
  ShardSwap swap = SwapWithoutAuthor(seen);
  // Terms go on. *Else* what earlier ones have sent counts in the new ones.
  swap.next = {};
  swap.next.term = seen.record.term;
  return swap;
}

absl::StatusOr<ShardSwap> BeginMove(const StoredShard& seen, ShardMove move) {
  if (!IsServerId(move.to)) return Refused(seen, "'", move.to, "' is no name of a server");
  if (seen.record.Find(move.from) == nullptr)
    return Refused(seen, "server ", move.from, " has no copy in sync");
  if (seen.record.Find(move.to) != nullptr) return Refused(seen, "server ", move.to, " has a copy");
  if (seen.record.move.has_value()) {
    return Refused(seen, "its copy at ", seen.record.move->from, " moves to ", seen.record.move->to,
                   " already");
  }
  ShardSwap swap = SwapWithoutAuthor(seen);
  swap.next.move = std::move(move);
  return swap;
}

absl::StatusOr<ShardSwap> EndMove(const StoredShard& seen) {
  if (!seen.record.move.has_value()) return Refused(seen, "no copy moves");
  ShardSwap swap = SwapWithoutAuthor(seen);
  swap.next.move.reset();
  return swap;
}

ShardSwap RenewRecord(const ShardAuthor& author, const StoredShard& seen) {
  return SwapOf(author, seen);
}

Transaction SwapTransaction(const ClusterKeys& keys, absl::Span<const ShardSwap> swaps) {
  assert(!swaps.empty() && swaps.size() <= kSwapsMax);
  Transaction transaction;
  for (const ShardSwap& swap : swaps) {
    const std::string key = keys.Shard(swap.shard);
    transaction.compares.push_back(StoreCompare::ModRevision(key, swap.mod_revision));
    transaction.compares.insert(transaction.compares.end(), swap.conditions.begin(),
                                swap.conditions.end());
    transaction.operations.push_back(StoreOperation::Put(key, EncodeShardRecord(swap.next)));
    transaction.otherwise.push_back({key});
  }
  return transaction;
}

std::vector<std::vector<ShardSwap>> GroupSwaps(std::vector<ShardSwap> swaps) {
  std::vector<std::vector<ShardSwap>> groups;
  std::vector<ShardSwap> shared;
  for (ShardSwap& swap : swaps) {
    if (swap.alone) {
      groups.emplace_back().push_back(std::move(swap));
      continue;
    }
    shared.push_back(std::move(swap));
    if (shared.size() == kSwapsMax) groups.push_back(std::exchange(shared, {}));
  }
  if (!shared.empty()) groups.push_back(std::move(shared));
  return groups;
}

}  // namespace osprey
