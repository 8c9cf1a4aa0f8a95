#include "tools/cluster/moves.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <tuple>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace osprey {
namespace {

// Where copies are, once all moves are done.
class Plan {
 public:
  explicit Plan(const ClusterStatus& status) {
    for (const auto& [id, server] : status.servers) {
      // (No slots: it is of a release that does not say.)
      if (server.is_renewed && server.stored.record.has_value() && server.stored.record->slots > 0)
        servers_[id] = {server.stored.record->slots, server.stored.record->zone};
    }
    for (const std::optional<StoredShard>& stored : status.shards) {
      Shard& shard = shards_.emplace_back();
      if (!stored.has_value()) continue;
      const ShardRecord& record = stored->record;
      shard.may_move = !record.move.has_value();
      shard.primary = record.primary;
      for (const Replica& member : record.in_sync) shard.servers.insert(member.server);
      if (record.move.has_value()) {
        shard.servers.erase(record.move->from);
        shard.servers.insert(record.move->to);
      }
    }
  }

  const std::map<std::string, PlacementServer>& servers() const { return servers_; }
  uint32_t shards() const { return static_cast<uint32_t>(shards_.size()); }
  bool may_move(uint32_t shard) const { return shards_[shard].may_move; }
  bool Has(uint32_t shard, const std::string& id) const {
    return shards_[shard].servers.contains(id);
  }
  bool IsPrimary(uint32_t shard, const std::string& id) const {
    return shards_[shard].primary == id;
  }
  uint64_t Copies(const std::string& id) const {
    return static_cast<uint64_t>(
        std::count_if(shards_.begin(), shards_.end(),
                      [&](const Shard& shard) { return shard.servers.contains(id); }));
  }
  bool HasRoom(const std::string& id) const { return Copies(id) < servers_.at(id).slots; }
  // Copies in the zone of `to`, without that of `from`.
  size_t InZone(uint32_t shard, const std::string& from, const std::string& to) const {
    return static_cast<size_t>(std::count_if(
        shards_[shard].servers.begin(), shards_[shard].servers.end(), [&](const std::string& id) {
          return id != from && servers_.contains(id) &&
                 servers_.at(id).zone == servers_.at(to).zone;
        }));
  }
  void Move(const PlacedMove& move) {
    Shard& shard = shards_[move.shard];
    shard.servers.erase(move.move.from);
    shard.servers.insert(move.move.to);
    shard.may_move = false;
  }

 private:
  struct Shard {
    bool may_move = false;
    std::string primary;
    std::set<std::string> servers;
  };
  std::map<std::string, PlacementServer> servers_;  // that run
  std::vector<Shard> shards_;
};

std::optional<PlacedMove> NextOfRebalance(const Plan& plan) {
  std::optional<PlacedMove> best;
  std::tuple<double, int64_t, bool> best_rank;
  for (const auto& [from, giver] : plan.servers()) {
    const uint64_t given = plan.Copies(from);
    for (const auto& [to, taker] : plan.servers()) {
      const uint64_t taken = plan.Copies(to);
      if (from == to || !plan.HasRoom(to) || (taken + 1) * giver.slots >= given * taker.slots)
        continue;
      const double gain =
          static_cast<double>(given) / giver.slots - static_cast<double>(taken + 1) / taker.slots;
      for (uint32_t shard = 0; shard < plan.shards(); ++shard) {
        if (!plan.may_move(shard) || !plan.Has(shard, from) || plan.Has(shard, to)) continue;
        // *Else* the end of one zone takes more copies of the shard than before.
        if (plan.InZone(shard, from, to) > plan.InZone(shard, from, from)) continue;
        const std::tuple<double, int64_t, bool> rank = {
            gain, -static_cast<int64_t>(plan.InZone(shard, from, to)),
            !plan.IsPrimary(shard, from)};
        if (best.has_value() && rank <= best_rank) continue;
        best = PlacedMove{shard, {from, to}};
        best_rank = rank;
      }
    }
  }
  return best;
}

}  // namespace

std::vector<PlacedMove> PlanRebalance(const ClusterStatus& status) {
  Plan plan(status);
  std::vector<PlacedMove> moves;
  while (const std::optional<PlacedMove> move = NextOfRebalance(plan)) {
    plan.Move(*move);
    moves.push_back(*move);
  }
  return moves;
}

absl::StatusOr<std::vector<PlacedMove>> PlanDrain(const ClusterStatus& status,
                                                  const std::string& server) {
  if (!status.servers.contains(server)) {
    return absl::NotFoundError(
        absl::StrCat("no server ", server, " runs; kvcli cluster status shows those that do"));
  }
  Plan plan(status);
  std::vector<PlacedMove> moves;
  for (uint32_t shard = 0; shard < plan.shards(); ++shard) {
    if (const absl::Status known = ShardIn(status, shard).status(); !known.ok()) return known;
    if (!plan.Has(shard, server)) continue;
    if (!plan.may_move(shard)) {
      return absl::FailedPreconditionError(absl::StrCat(
          "shard ", shard, ": a copy moves; wait, or cancel the move: kvcli cluster cancel-move"));
    }
    std::optional<PlacedMove> best;
    std::tuple<int64_t, int64_t> best_rank;
    for (const auto& [to, taker] : plan.servers()) {
      if (to == server || plan.Has(shard, to) || !plan.HasRoom(to)) continue;
      const std::tuple<int64_t, int64_t> rank = {
          -static_cast<int64_t>(plan.InZone(shard, server, to)),
          static_cast<int64_t>(taker.slots - plan.Copies(to))};
      if (best.has_value() && rank <= best_rank) continue;
      best = PlacedMove{shard, {server, to}};
      best_rank = rank;
    }
    if (!best.has_value()) {
      return absl::FailedPreconditionError(
          absl::StrCat("shard ", shard,
                       ": each other server that runs has a copy, or no memory left for one; start "
                       "one, or move copies by hand"));
    }
    plan.Move(*best);
    moves.push_back(*best);
  }
  return moves;
}

MovesCost CostOf(const ClusterStatus& status, absl::Span<const PlacedMove> moves) {
  const uint64_t bytes = status.cluster.shard_bytes;
  MovesCost cost{.bytes = bytes * moves.size(), .time = absl::ZeroDuration()};
  std::map<std::string, absl::Duration> times;  // by primary
  for (const PlacedMove& move : moves) {
    const std::string& primary = status.shards[move.shard]->record.primary;
    const auto server = status.servers.find(primary);
    const uint64_t rate =
        server == status.servers.end() || !server->second.stored.record.has_value()
            ? 0
            : server->second.stored.record->copy_rate;
    if (rate == 0) return {cost.bytes, std::nullopt};
    absl::Duration& time = times[primary];
    time += absl::Seconds(static_cast<double>(bytes) / static_cast<double>(rate));
    cost.time = std::max(*cost.time, time);
  }
  return cost;
}

absl::StatusOr<StoredShard> ShardIn(const ClusterStatus& status, uint64_t shard) {
  if (shard >= status.shards.size()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "there is no shard ", shard, "; the cluster has shards 0 to ", status.shards.size() - 1));
  }
  if (!status.shards[shard].has_value()) {
    return absl::FailedPreconditionError(
        absl::StrCat("shard ", shard, " has no readable record; see kvcli cluster status"));
  }
  return *status.shards[shard];
}

absl::StatusOr<std::vector<Transaction>> BeginMoves(const ClusterKeys& keys,
                                                    const ClusterStatus& status,
                                                    absl::Span<const PlacedMove> moves) {
  std::vector<ShardSwap> swaps;
  for (const PlacedMove& move : moves) {
    const absl::StatusOr<StoredShard> stored = ShardIn(status, move.shard);
    if (!stored.ok()) return stored.status();
    absl::StatusOr<ShardSwap> swap = BeginMove(*stored, move.move);
    if (!swap.ok()) return swap.status();
    const auto to = status.servers.find(move.move.to);
    if (to == status.servers.end() || !to->second.is_renewed) {
      return absl::NotFoundError(absl::StrCat("no server ", move.move.to,
                                              " runs; kvcli cluster status shows those that do"));
    }
    swap->conditions.push_back(
        StoreCompare::CreateRevision(keys.Server(move.move.to), to->second.stored.create_revision));
    swaps.push_back(*std::move(swap));
  }
  std::vector<Transaction> transactions;
  for (const std::vector<ShardSwap>& group : GroupSwaps(std::move(swaps)))
    transactions.push_back(SwapTransaction(keys, group));
  return transactions;
}

absl::StatusOr<Transaction> CancelMove(const ClusterKeys& keys, const ClusterStatus& status,
                                       uint64_t shard) {
  const absl::StatusOr<StoredShard> stored = ShardIn(status, shard);
  if (!stored.ok()) return stored.status();
  const absl::StatusOr<ShardSwap> swap = EndMove(*stored);
  if (!swap.ok()) return swap.status();
  // *Else* a copy too many stays: what is left next is left because of the move alone.
  const ShardMove& move = *stored->record.move;
  if (stored->record.Find(move.from) != nullptr &&
      stored->record.Staying() >= status.cluster.replicas) {
    return absl::FailedPreconditionError(absl::StrCat(
        "shard ", shard, ": the new copy has joined, so the move from ", move.from, " to ", move.to,
        " cannot be cancelled any more; wait for its end (kvcli cluster await-moves), then move "
        "the copy back: "
        "kvcli cluster move ETCD_URI ",
        shard, " ", move.to, " ", move.from));
  }
  return SwapTransaction(keys, {*swap});
}

}  // namespace osprey
