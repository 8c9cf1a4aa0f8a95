// The swaps that are due to a shard of a member.

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "rdma/lease_time.h"
#include "server/cluster/member/shard_member.h"
#include "server/cluster/replication/test_hooks.h"

namespace osprey {
namespace {

// Before a primary hands over because of a silent member: else two that do not reach each other would do so
// all the time.
constexpr absl::Duration kHandOverPause() { return absl::Seconds(10); }

std::optional<ShardSwap> OrNothing(absl::StatusOr<ShardSwap> swap) {
  if (!swap.ok()) return std::nullopt;
  return *std::move(swap);
}

}  // namespace

std::optional<ShardSwap> ShardMember::WantedSwap(const ConfigurationWatch& watch, absl::Time now) {
  const StoredShard& seen = tracker_.shard();
  if (seen.mod_revision == 0 || tracker_.state() == SwapTracker::State::kAwaitsAnswer)
    return std::nullopt;
  if (tracker_.state() == SwapTracker::State::kUnknown) return RenewRecord(Author(), seen);
  const ShardRecord& record = seen.record;
  if (record.is_initial()) {
    // What it took for the shard is for others, if the swap has not happened.
    if (!is_assigned_ && self_.life != 0 && !is_clearing_) LeaveShard();
    if (is_clearing_ || !is_assigned_ || !table_.Take()) return std::nullopt;
    before_.reset();  // no swap by which it was adopted has happened
    if (self_.life == 0) self_.life = NewLife();
    replica_.BeginEmpty(name());
    return OrNothing(AdoptShard(Author(), seen, highest_term_));
  }
  if (before_.has_value()) {
    if (record.Has(*before_)) return OrNothing(ResumePlace(Author(), seen, *before_));
    // No swap can name it any more: they compare its key, which was gone before this server's present one
    // was created.
    if (watch.shards_revision() >= self_.create_revision) LeaveShard();
    return std::nullopt;
  }
  if (!record.Has(self_)) return std::nullopt;
  if (record.HasAsPrimary(self_)) return WantedOfPrimary(watch, now);
  const Replica* primary = record.Find(record.primary);
  const int64_t primary_key = watch.CreateRevision(record.primary);
  if (primary != nullptr && primary_key == primary->create_revision) return std::nullopt;
  return OrNothing(PromoteSelf(Author(), seen, primary_key, highest_term_));
}

std::optional<ShardSwap> ShardMember::WantedOfPrimary(const ConfigurationWatch& watch,
                                                      absl::Time now) {
  const StoredShard& seen = tracker_.shard();
  // A member that has ended, or cannot go on, is not waited for, even if too few are left: then the tail is
  // committed and reads go on, and writes wait for a joiner. One that is only silent may be in a better
  // place than this server.
  for (const Replica& member : seen.record.in_sync) {
    if (member.server == self_.server) continue;
    const bool has_ended = HasEnded(member, watch);
    if (!has_ended && (ends_ || !IsSilent(member, now))) continue;
    auto swap =
        DropMember(Author(), seen, member.server, has_ended ? 1 : options_.cluster.min_in_sync);
    if (swap.ok()) return *std::move(swap);
    // Writes wait for it, and with fewer members none could be decided. It may have links to others.
    if (serves() && !hand_over_.has_value() && commit_point() < replica_.log().last() &&
        now - term_since_ > kHandOverPause())
      HandOverTo(member.server, now);
  }
  if (std::optional<ShardSwap> swap = WantedHandOver(now); swap.has_value()) return swap;
  if (std::optional<ShardSwap> swap = WantedMove(watch, now); swap.has_value()) return swap;
  // Another was added meanwhile, by a swap whose outcome was not known. Or the joiner has another key than this server had
  // read when it asked: it creates one again if it did not learn of the first, which others have deleted. *Else* each
  // swap that names it is refused, and no other server may join.
  if (joiner_.has_value() &&
      (seen.record.Staying() >= options_.cluster.replicas ||
       watch.CreateRevision(joiner_->replica.server) != joiner_->replica.create_revision)) {
    const ReplicaName joiner = NameOf(joiner_->replica);
    ForgetJoiner();
    SendCopy(joiner.incarnation, joiner, CopyKind::kRefused);
  }
  if (!serves() || !joiner_.has_value() ||
      !(joiner_->is_whole || IsMistake(ReplicationMistake::kAddsPartOfCopy)) ||
      !replica_.primary()->HasCaughtUp(NameOf(joiner_->replica)))
    return std::nullopt;
  return OrNothing(AddMember(Author(), seen, joiner_->replica));
}

void ShardMember::SetMoveStuck(bool is_stuck) {
  const std::optional<ShardMove>& move = tracker_.shard().record.move;
  if (is_stuck && !is_move_stuck_ && move.has_value() && serves() && options_.log) {
    options_.log(absl::StrCat("shard ", shard_, ": its copy does not move from server ", move->from,
                              " to ", move->to,
                              ": memory for another copy of it is missing; start a server, or "
                              "raise --memory, and begin the move again"));
  }
  is_move_stuck_ = is_stuck;
}

// Replicas that count, without the one that moves away: what joiners may add to.
size_t ShardMember::Staying() const {
  const std::vector<Replica> counted = tracker_.Counted();
  const std::optional<ShardMove>& move = tracker_.shard().record.move;
  return static_cast<size_t>(std::count_if(counted.begin(), counted.end(), [&](const Replica& one) {
    return !move.has_value() || one.server != move->from;
  }));
}

// The last step of a move. A member more than there are to be stays only until another one is there for it.
std::optional<ShardSwap> ShardMember::WantedMove(const ConfigurationWatch& watch, absl::Time now) {
  const StoredShard& seen = tracker_.shard();
  if (!seen.record.move.has_value()) {
    if (!relief_.has_value() || !serves()) return std::nullopt;
    return OrNothing(BeginMove(seen, *relief_));
  }
  const ShardMove& move = *seen.record.move;
  const bool is_joined = seen.record.Find(move.to) != nullptr;
  // (What was read is not from before the move began.)
  const bool has_ended = !is_joined && watch.servers_revision() >= seen.mod_revision &&
                         watch.CreateRevision(move.to) == 0;
  const bool is_stuck = is_move_stuck_ && serves() && !joiner_.has_value();
  // Others may have joined instead of it. *Else* they and the one that was to leave stay, one copy too many.
  const bool may_leave = seen.record.Staying() >= options_.cluster.replicas;
  if (seen.record.Find(move.from) == nullptr || (!may_leave && (has_ended || is_stuck))) {
    return OrNothing(EndMove(seen));
  }
  if (!serves() || !may_leave) return std::nullopt;
  if (move.from != self_.server) {
    return OrNothing(DropMember(Author(), seen, move.from, options_.cluster.min_in_sync));
  }
  if (hand_over_.has_value()) return std::nullopt;
  const Replica* successor = seen.record.Find(move.to);
  for (const Replica& member : seen.record.in_sync) {
    if (successor == nullptr && member.server != self_.server && HasLinkTo(member))
      successor = &member;
  }
  if (successor != nullptr && HasLinkTo(*successor)) HandOverTo(successor->server, now);
  return std::nullopt;
}

void ShardMember::ReadersEnd(absl::Time now) {
  if (hand_over_.has_value()) hand_over_->since = std::max(hand_over_->since, now);
}

void ShardMember::HandOverTo(std::string server, absl::Time now) {
  hand_over_ = HandingOver{std::move(server), now};
  term_since_ = now;
}

std::optional<ShardSwap> ShardMember::WantedHandOver(absl::Time now) {
  if (!hand_over_.has_value()) return std::nullopt;
  const absl::Duration wait = IsMistake(ReplicationMistake::kHandsOverAtOnce)
                                  ? absl::ZeroDuration()
                                  : AwaitedFor(kReaderLease());
  if (now - hand_over_->since < wait) return std::nullopt;
  auto swap = HandOver(Author(), tracker_.shard(), hand_over_->to, highest_term_);
  if (!swap.ok()) {  // it is no member any more
    hand_over_.reset();
    return std::nullopt;
  }
  return *std::move(swap);
}

// Its server has not that right any more, or it says that it cannot go on.
bool ShardMember::HasEnded(const Replica& member, const ConfigurationWatch& watch) const {
  const auto& peers = replica_.primary()->peers();
  const auto peer = peers.find(NameOf(member));
  if (peer != peers.end() && peer->second.is_unfit) return true;
  // What was read is not from before its key was created.
  return watch.servers_revision() >= member.create_revision &&
         watch.CreateRevision(member.server) != member.create_revision;
}

bool ShardMember::IsSilent(const Replica& member, absl::Time now) const {
  const auto heard = heard_.find(NameOf(member));
  return heard != heard_.end() && now - heard->second > options_.backup_timeout;
}

}  // namespace osprey
