#include "server/cluster/configuration/placement.h"

#include <algorithm>
#include <cstddef>
#include <deque>
#include <set>
#include <tuple>
#include <utility>

namespace osprey {
namespace {

bool Runs(const PlacementView& view, const std::string& id) {
  const auto server = view.servers.find(id);
  return server != view.servers.end() && !server->second.is_away;
}

// Those that run, but for the one that moves away.
size_t LiveMembers(const PlacementView& view, const PlacementShard& shard) {
  return static_cast<size_t>(
      std::count_if(shard.members.begin(), shard.members.end(), [&](const std::string& id) {
        return Runs(view, id) && (!shard.move.has_value() || id != shard.move->from);
      }));
}

size_t AwayMembers(const PlacementView& view, const PlacementShard& shard) {
  return static_cast<size_t>(std::count_if(
      shard.members.begin(), shard.members.end(),
      [&](const std::string& id) { return view.servers.contains(id) && !Runs(view, id); }));
}

bool Has(const std::vector<std::string>& ids, const std::string& id) {
  return std::find(ids.begin(), ids.end(), id) != ids.end();
}

// All members have ended.
bool IsLost(const PlacementView& view, const PlacementShard& shard) {
  return !shard.members.empty() &&
         std::none_of(shard.members.begin(), shard.members.end(),
                      [&](const std::string& id) { return Runs(view, id); });
}

// A copy is to join that has not joined.
bool IsMoving(const PlacementView& view, const PlacementShard& shard) {
  return shard.move.has_value() && !Has(shard.members, shard.move->to) &&
         Runs(view, shard.move->to);
}

// What servers have, and what they were given so far.
class Assignment {
 public:
  explicit Assignment(const PlacementView& view) : view_(view), given_(view.shards.size()) {
    for (const auto& [id, server] : view.servers) taken_[id] = 0;
    for (const PlacementShard& shard : view.shards) {
      for (const std::string& id : shard.members) {
        if (const auto taken = taken_.find(id); taken != taken_.end()) ++taken->second;
      }
    }
  }

  void GiveNext(size_t shard) {
    const std::string* best = nullptr;
    std::tuple<size_t, bool, int64_t> best_rank;
    const bool may_wait = LiveMembers(view_, view_.shards[shard]) >= view_.min_in_sync;
    for (const auto& [id, server] : view_.servers) {
      if (server.is_away && !may_wait) continue;
      if (taken_[id] >= server.slots || HasOrGetsIt(shard, id)) continue;
      const int64_t left = static_cast<int64_t>(server.slots) - static_cast<int64_t>(taken_[id]);
      const std::tuple<size_t, bool, int64_t> rank = {CopiesInZone(shard, server.zone),
                                                      !server.is_away, -left};
      if (best != nullptr && rank >= best_rank) continue;
      best = &id;
      best_rank = rank;
    }
    if (best == nullptr) return;
    ++taken_[*best];
    given_[shard].push_back(*best);
  }

  const std::vector<std::vector<std::string>>& given() const { return given_; }
  bool HasRoom(const std::string& id) const { return taken_.at(id) < view_.servers.at(id).slots; }

  void GiveMoved(size_t shard) {
    if (!IsMoving(view_, view_.shards[shard])) return;
    const std::string& to = view_.shards[shard].move->to;
    // One at a time: *else* a server that joins takes all bandwidth of the others.
    if (!HasRoom(to) || Has(given_[shard], to) || !moved_to_.insert(to).second) return;
    ++taken_[to];
    given_[shard].push_back(to);
  }
  // A copy waits for room.
  bool Waits(size_t shard) const {
    const PlacementShard& placed = view_.shards[shard];
    return IsMoving(view_, placed) && !Has(given_[shard], placed.move->to);
  }

 private:
  bool HasOrGetsIt(size_t shard, const std::string& id) const {
    return Has(view_.shards[shard].members, id) || Has(given_[shard], id);
  }
  size_t CopiesInZone(size_t shard, const std::string& zone) const {
    size_t copies = 0;
    for (const auto* const ids : {&view_.shards[shard].members, &given_[shard]}) {
      for (const std::string& id : *ids) {
        const auto server = view_.servers.find(id);
        if (server != view_.servers.end() && server->second.zone == zone) ++copies;
      }
    }
    return copies;
  }

  const PlacementView& view_;
  std::map<std::string, uint32_t> taken_;
  std::vector<std::vector<std::string>> given_;
  std::set<std::string> moved_to_;
};

Assignment Assign(const PlacementView& view) {
  Assignment assignment(view);
  for (size_t copies = 0; copies < view.replicas; ++copies) {
    for (size_t shard = 0; shard < view.shards.size(); ++shard) {
      const PlacementShard& placed = view.shards[shard];
      const size_t live = LiveMembers(view, placed);
      const size_t away = live >= view.min_in_sync ? AwayMembers(view, placed) : 0;
      if (!IsLost(view, placed) && live + away + IsMoving(view, placed) <= copies)
        assignment.GiveNext(shard);
    }
  }
  // What is missing comes first.
  for (size_t shard = 0; shard < view.shards.size(); ++shard) assignment.GiveMoved(shard);
  return assignment;
}

}  // namespace

std::vector<std::vector<std::string>> MissingCopies(const PlacementView& view) {
  return Assign(view).given();
}

namespace {

// The first step by which a server without `shard` comes to have room: of a search from the servers that have some.
// A step leads from a server with room to one with a copy that could move there.
std::optional<PlacedMove> FirstStep(const PlacementView& view, const Assignment& assignment,
                                    size_t shard) {
  std::map<std::string, std::optional<PlacedMove>>
      first;  // of the way to each server that was reached
  std::deque<std::string> next;
  for (const auto& [id, server] : view.servers) {
    if (server.is_away || !assignment.HasRoom(id)) continue;
    first[id] = std::nullopt;
    next.push_back(id);
  }
  for (; !next.empty(); next.pop_front()) {
    const std::string to = next.front();
    for (uint32_t other = 0; other < view.shards.size(); ++other) {
      const std::vector<std::string>& members = view.shards[other].members;
      if (other == shard || Has(members, to) ||
          LiveMembers(view, view.shards[other]) < view.replicas)
        continue;
      for (const std::string& from : members) {
        if (!Runs(view, from) || first.contains(from)) continue;
        const std::optional<PlacedMove> step =
            first[to].has_value() ? first[to] : PlacedMove{other, {from, to}};
        if (!Has(view.shards[shard].members, from)) return step;
        first[from] = step;
        next.push_back(from);
      }
    }
  }
  return std::nullopt;
}

}  // namespace

std::optional<PlacedMove> NextRelief(const PlacementView& view) {
  const Assignment assignment = Assign(view);
  // One that waits for room itself does not count.
  for (size_t shard = 0; shard < view.shards.size(); ++shard) {
    const std::optional<ShardMove>& move = view.shards[shard].move;
    if (move.has_value() &&
        (Has(view.shards[shard].members, move->to) || Has(assignment.given()[shard], move->to)))
      return std::nullopt;
  }
  for (size_t shard = 0; shard < view.shards.size(); ++shard) {
    const PlacementShard& placed = view.shards[shard];
    if (IsLost(view, placed) || placed.members.empty() ||
        LiveMembers(view, placed) + AwayMembers(view, placed) + assignment.given()[shard].size() +
                assignment.Waits(shard) >=
            view.replicas)
      continue;
    if (std::optional<PlacedMove> step = FirstStep(view, assignment, shard); step.has_value())
      return step;
  }
  return std::nullopt;
}

namespace {

// Whether copies that move away will make room at `server`. A move that waits for room itself counts as that one does:
// *else* moves in a circle of full servers wait for each other for ever.
bool GetsRoom(const PlacementView& view, const Assignment& assignment, const std::string& server) {
  std::set<std::string> seen = {server};
  std::deque<std::string> next = {server};
  for (; !next.empty(); next.pop_front()) {
    for (size_t shard = 0; shard < view.shards.size(); ++shard) {
      const std::optional<ShardMove>& move = view.shards[shard].move;
      if (!move.has_value() || move->from != next.front()) continue;
      if (!assignment.Waits(shard) || assignment.HasRoom(move->to)) return true;
      if (seen.insert(move->to).second) next.push_back(move->to);
    }
  }
  return false;
}

}  // namespace

bool IsMoveStuck(const PlacementView& view, uint32_t shard) {
  const PlacementShard& placed = view.shards[shard];
  if (!placed.move.has_value() || !Runs(view, placed.move->to)) return false;
  const std::string& to = placed.move->to;
  const Assignment assignment = Assign(view);
  if (!assignment.given()[shard].empty()) return false;
  if (IsMoving(view, placed)) {
    // With room it is not its turn.
    return !assignment.HasRoom(to) && !GetsRoom(view, assignment, to);
  }
  return LiveMembers(view, placed) < view.replicas && AwayMembers(view, placed) == 0 &&
         Runs(view, placed.move->from) && !NextRelief(view).has_value();
}

namespace {

// The hand-overs that are possible now, from each server.
using HandOvers = std::map<std::string, std::vector<PlacedHandOver>>;

// The last step of the shortest way from `first` to a server with at least two primaries fewer.
std::optional<PlacedHandOver> LastStep(const std::string& first,
                                       const std::map<std::string, uint64_t>& primaries,
                                       const HandOvers& possible) {
  std::set<std::string> seen = {first};
  std::deque<std::string> next = {first};
  for (; !next.empty(); next.pop_front()) {
    const auto steps = possible.find(next.front());
    if (steps == possible.end()) continue;
    for (const PlacedHandOver& step : steps->second) {
      if (step.primaries_to + 2 <= primaries.at(first)) return step;
      if (seen.insert(step.to).second) next.push_back(step.to);
    }
  }
  return std::nullopt;
}

}  // namespace

std::optional<PlacedHandOver> NextHandOver(const PlacementView& view) {
  std::map<std::string, uint64_t> primaries;
  for (const auto& [id, server] : view.servers) {
    if (!server.is_away) primaries[id] = 0;
  }
  for (const PlacementShard& shard : view.shards) {
    if (const auto place = primaries.find(shard.primary); place != primaries.end()) ++place->second;
  }
  const size_t copies = std::min<size_t>(view.replicas, primaries.size());
  HandOvers possible;
  for (uint32_t number = 0; number < view.shards.size(); ++number) {
    const PlacementShard& shard = view.shards[number];
    const auto from = primaries.find(shard.primary);
    if (from == primaries.end() || LiveMembers(view, shard) < copies) continue;
    for (const std::string& member : shard.members) {
      const auto to = primaries.find(member);
      const bool moves_away = shard.move.has_value() && shard.move->from == member;
      if (to == primaries.end() || to == from || moves_away) continue;
      possible[from->first].push_back({number, from->first, to->first, from->second, to->second});
    }
  }
  std::vector<std::pair<uint64_t, std::string>> servers;
  for (const auto& [id, count] : primaries) servers.emplace_back(count, id);
  std::sort(servers.begin(), servers.end(), [](const auto& one, const auto& other) {
    return std::tie(other.first, one.second) < std::tie(one.first, other.second);
  });
  for (const auto& [count, id] : servers) {
    if (std::optional<PlacedHandOver> step = LastStep(id, primaries, possible); step.has_value())
      return step;
  }
  return std::nullopt;
}

std::optional<PlacedHandOver> HandOverPlan::Look(const PlacementView& view) {
  const std::optional<PlacedHandOver> before = std::exchange(last_, NextHandOver(view));
  if (!last_.has_value()) return std::nullopt;
  const bool is_step = last_->primaries_from < last_->primaries_to + 2;
  return is_step && last_ != before ? std::nullopt : last_;
}

}  // namespace osprey
