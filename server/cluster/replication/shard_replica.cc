#include "server/cluster/replication/shard_replica.h"

#include <algorithm>
#include <cassert>

#include "server/cluster/replication/test_hooks.h"

namespace osprey {

ShardReplica::ShardReplica(uint32_t shard, ReplicaName self, uint32_t min_in_sync,
                           ReplicaStore& store)
    : shard_(shard), min_in_sync_(min_in_sync), self_(self), store_(store) {}

void ShardReplica::BeginCopy(const ReplicaName& name, const ShardPlaces& places, uint64_t applied) {
  assert(role_ == Role::kOut);
  self_ = name;
  role_ = Role::kJoining;
  log_ = ReplicaLog(applied);
  term_ = places.term;
  backup_.emplace(shard_, self_, log_, store_);
  backup_->Follow(places.term, places.primary);
}

void ShardReplica::BeginEmpty(const ReplicaName& name) {
  assert(role_ == Role::kOut);
  self_ = name;
  log_ = ReplicaLog();
  term_ = 0;
}

void ShardReplica::Rename(const ReplicaName& name, const ShardPlaces& places) {
  assert(self_.life != 0);
  if (!ReserveOwn()) return Leave();
  self_ = name;
  term_ = places.term;
  // Its place was resumed, and the shard handed over to it, before it learned of either.
  if (places.primary == name) return BecomePrimary();
  role_ = Role::kBackup;
  primary_.reset();
  backup_.emplace(shard_, self_, log_, store_);
  backup_->Follow(places.term, places.primary);
}

void ShardReplica::TakePlaces(const ShardPlaces& places) {
  if (places.term < term_) return;
  const bool is_new_term = places.term > term_;
  const bool is_member =
      std::find(places.in_sync.begin(), places.in_sync.end(), self_) != places.in_sync.end();
  if (!is_member) {
    // A copy belongs to one primary and term. A member that is named no more may have missed groups.
    if (role_ != Role::kJoining || is_new_term) Leave();
    return;
  }
  if (role_ == Role::kJoining) role_ = Role::kBackup;
  if (!is_new_term) return;
  // Also of one that was a backup meanwhile, and learns it only now. *Else* it applies what it has not reserved.
  if (!ReserveOwn()) return Leave();
  term_ = places.term;
  if (places.primary == self_) return BecomePrimary();
  primary_.reset();
  role_ = Role::kBackup;
  if (!backup_.has_value()) backup_.emplace(shard_, self_, log_, store_);
  backup_->Follow(places.term, places.primary);
}

void ShardReplica::BecomePrimary() {
  backup_.reset();
  primary_.reset();
  role_ = Role::kPrimary;
  if (IsMistake(ReplicationMistake::kDropsTail)) log_.CutAfter(log_.applied());
  primary_.emplace(shard_, term_, self_, min_in_sync_, log_);
}

// What this primary has decided, and not applied. False: it has no room.
bool ShardReplica::ReserveOwn() {
  if (role_ != Role::kPrimary) return true;
  for (const ReplicatedGroup* group = log_.After(log_.applied()); group != nullptr;
       group = log_.After(group->last_lsn)) {
    if (IsReserved(*group)) continue;
    if (store_.Reserve(*group).ok()) continue;
    // Those before it were reserved, and are released.
    while (log_.last() >= group->first_lsn) log_.CutAfter(log_.last_group()->first_lsn - 1);
    role_ = Role::kBackup;
    return false;
  }
  return true;
}

void ShardReplica::Leave() {
  while (log_.last() > log_.applied()) {
    const ReplicatedGroup& last = *log_.last_group();
    if (IsReserved(last)) store_.Release(last);
    log_.CutAfter(last.first_lsn - 1);
  }
  role_ = Role::kOut;
  self_ = ReplicaName();
  backup_.reset();
  primary_.reset();
}

Ack ShardReplica::TakeAppend(const Append& append) {
  if (backup_.has_value()) return backup_->TakeAppend(append);
  Ack ack;
  ack.shard = shard_;
  ack.code = append.term < term_                             ? AckCode::kLowerTerm
             : append.to == self_ && role_ == Role::kPrimary ? AckCode::kUnknownTerm
                                                             : AckCode::kOtherReplica;
  ack.term = term_;
  ack.from = append.to;
  ack.to = append.from;
  return ack;
}

void ShardReplica::ApplyTail() {
  assert(role_ == Role::kPrimary);
  for (const ReplicatedGroup* group = log_.After(log_.applied());
       group != nullptr && group->term < term_ && group->last_lsn <= primary_->commit_point();
       group = log_.After(log_.applied())) {
    store_.Apply(*group);
    log_.MarkApplied();
  }
  primary_->OnApplied();
}

void ShardReplica::MarkApplied(uint64_t lsn) {
  assert(role_ == Role::kPrimary && lsn <= primary_->commit_point());
  while (log_.applied() < lsn) log_.MarkApplied();
  primary_->OnApplied();
}

}  // namespace osprey
