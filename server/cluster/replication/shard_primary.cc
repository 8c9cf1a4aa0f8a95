#include "server/cluster/replication/shard_primary.h"

#include <algorithm>
#include <cassert>
#include <memory>
#include <utility>

#include "server/cluster/replication/test_hooks.h"

namespace osprey {

ShardPrimary::ShardPrimary(uint32_t shard, uint64_t term, ReplicaName self, uint32_t min_in_sync,
                           ReplicaLog& log)
    : shard_(shard),
      term_(term),
      self_(self),
      log_(log),
      tail_(log.last()),
      min_in_sync_(min_in_sync),
      commit_point_(log.applied()),
      held_point_(log.applied()) {}

bool ShardPrimary::has_tail_applied() const {
  return log_.applied() >= tail_ || IsMistake(ReplicationMistake::kServesBeforeTail);
}

void ShardPrimary::SetCounted(const std::vector<ReplicaName>& counted, uint32_t in_sync) {
  counted_ = counted;
  in_sync_ = in_sync;
  // A new member has applied at least what no replica needs any more.
  for (const ReplicaName& name : counted_) {
    assert(name != self_);
    peers_.try_emplace(name, Peer{.applied = log_.kept_after()});
  }
  AdvanceCommitPoint();
}

uint64_t ShardPrimary::AddJoiner(const ReplicaName& joiner) {
  Peer peer;
  peer.applied = peer.copied_to = log_.applied();
  peers_[joiner] = peer;
  return IsMistake(ReplicationMistake::kJoinsWithGap) ? log_.last() : log_.applied();
}

void ShardPrimary::EndCopy(const ReplicaName& joiner) {
  if (const auto found = peers_.find(joiner); found != peers_.end())
    found->second.decided = log_.last();
}

bool ShardPrimary::HasCaughtUp(const ReplicaName& joiner) const {
  const auto found = peers_.find(joiner);
  if (found == peers_.end() || !found->second.has_answered) return false;
  const bool is_ahead = std::any_of(counted_.begin(), counted_.end(), [&](const auto& name) {
    const Peer& member = peers_.at(name);
    return member.applied < found->second.copied_to || member.confirmed < found->second.decided;
  });
  if (is_ahead && !IsMistake(ReplicationMistake::kAddsAheadOfMembers)) return false;
  // What is committed included.
  const uint64_t needed = IsMistake(ReplicationMistake::kAddsBehind) ? log_.applied() : held_point_;
  return found->second.confirmed >= needed;
}

void ShardPrimary::RemovePeer(const ReplicaName& name) {
  peers_.erase(name);
  AdvanceCommitPoint();
  OnApplied();
}

void ShardPrimary::Connected(const ReplicaName& name) {
  const auto found = peers_.find(name);
  if (found == peers_.end()) return;
  found->second.is_connected = true;
  found->second.is_greeted = found->second.has_answered = false;
}

void ShardPrimary::Disconnected(const ReplicaName& name) {
  if (const auto found = peers_.find(name); found != peers_.end())
    found->second.is_connected = false;
}

// Without groups.
Append ShardPrimary::AppendTo(const ReplicaName& name) const {
  Append append;
  append.shard = shard_;
  append.term = term_;
  append.from = self_;
  append.to = name;
  append.commit_point = commit_point_;
  append.discard_to = DiscardTo();
  return append;
}

absl::optional<Append> ShardPrimary::NextAppend(const ReplicaName& name, bool tells_commit_point) {
  const auto found = peers_.find(name);
  if (found == peers_.end()) return absl::nullopt;
  Peer& peer = found->second;
  if (!peer.is_connected || peer.is_unfit) return absl::nullopt;
  if (!peer.has_answered) {
    if (peer.is_greeted) return absl::nullopt;
    peer.is_greeted = true;
    peer.sent_commit_point = 0;
    return AppendTo(name);
  }
  Append append = AppendTo(name);
  uint64_t bytes = 0;
  uint64_t unacknowledged = log_.BytesUpTo(peer.sent) - log_.BytesUpTo(peer.confirmed);
  while (bytes < kAppendBytes && unacknowledged < kUnacknowledgedBytesMax &&
         append.groups.size() < kGroupsInAppendMax) {
    const ReplicatedGroup* group = log_.After(peer.sent);
    if (group == nullptr) break;
    bytes += group->bytes();
    unacknowledged += group->bytes();
    peer.sent = group->last_lsn;
    append.groups.push_back(*group);
  }
  if (append.groups.empty() && (!tells_commit_point || peer.sent_commit_point == commit_point_))
    return absl::nullopt;
  peer.sent_commit_point = commit_point_;
  return append;
}

absl::optional<Append> ShardPrimary::Probe(const ReplicaName& name) const {
  const auto found = peers_.find(name);
  if (found == peers_.end() || !found->second.is_connected || !found->second.has_answered)
    return absl::nullopt;
  return AppendTo(name);
}

void ShardPrimary::GreetAgain() {
  for (auto& [name, peer] : peers_) peer.is_greeted = peer.is_greeted && peer.has_answered;
}

void ShardPrimary::TakeAck(const Ack& ack) {
  const auto found = peers_.find(ack.from);
  if (found == peers_.end() || ack.to != self_) return;
  Peer& peer = found->second;
  switch (ack.code) {
    case AckCode::kLowerTerm:
      is_deposed_ |= ack.term > term_;
      return;
    case AckCode::kUnknownTerm:
      return;  // GreetAgain
    case AckCode::kOtherReplica:
    case AckCode::kNoRoom:
      peer.is_unfit = true;
      return;
    case AckCode::kGap:
    case AckCode::kConfirmed:
      break;
  }
  if (ack.term != term_) return;
  peer.confirmed = std::max(peer.confirmed, ack.confirmed);
  peer.applied = std::max(peer.applied, ack.applied);
  // An answer may be older than others, and one of an earlier connection: what all of them confirm is where
  // to go on.
  if (!peer.has_answered || ack.code == AckCode::kGap) peer.sent = peer.confirmed;
  peer.sent = std::max(peer.sent, peer.confirmed);
  peer.has_answered = true;
  // What it needs next is not here any more.
  if (peer.confirmed < log_.kept_after()) peer.is_unfit = true;
  AdvanceCommitPoint();
  OnApplied();
}

uint64_t ShardPrimary::Decide(std::string body, uint64_t entries) {
  assert(has_tail_applied() && body.size() <= kGroupBytesMax);
  ReplicatedGroup group;
  group.first_lsn = log_.last() + 1;
  group.last_lsn = log_.last() + entries;
  group.term = term_;
  group.body = std::make_shared<const std::string>(std::move(body));
  log_.Append(std::move(group));
  AdvanceCommitPoint();
  return log_.last();
}

void ShardPrimary::AdvanceCommitPoint() {
  uint64_t point = log_.last();
  const bool is_alone = IsMistake(ReplicationMistake::kCommitsTailAlone) && commit_point_ < tail_;
  for (const ReplicaName& name : counted_) {
    if (is_alone) break;
    const auto found = peers_.find(name);
    // Confirmed in this term: what it has applied is committed in any case.
    point = std::min(point, found == peers_.end() ? 0 : found->second.confirmed);
  }
  if (!is_alone) held_point_ = std::max(held_point_, point);
  if (in_sync_ < min_in_sync_ && !IsMistake(ReplicationMistake::kCommitsBelowMin))
    point = std::min(point, tail_);
  commit_point_ = std::max(commit_point_, is_alone ? tail_ : point);
}

// Every replica has applied the entries up to here.
uint64_t ShardPrimary::DiscardTo() const {
  uint64_t lsn = log_.applied();
  if (IsMistake(ReplicationMistake::kDiscardsEarly)) return lsn;
  for (const auto& [name, peer] : peers_) lsn = std::min(lsn, peer.applied);
  return lsn;
}

}  // namespace osprey
