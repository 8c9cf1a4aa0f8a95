#include "server/cluster/replication/shard_backup.h"

#include <algorithm>
#include <cassert>

#include "server/cluster/replication/test_hooks.h"

namespace osprey {

void ShardBackup::Follow(uint64_t term, ReplicaName primary) {
  if (term <= term_) return;
  term_ = term;
  primary_ = primary;
  confirmed_ = log_.applied();
  if (IsMistake(ReplicationMistake::kDropsPendingEagerly)) CutAfter(log_.applied());
}

// Forgets the groups behind `lsn`.
void ShardBackup::CutAfter(uint64_t lsn) {
  while (log_.last() > lsn) {
    const ReplicatedGroup& last = *log_.last_group();
    store_.Release(last);
    log_.CutAfter(last.first_lsn - 1);
  }
}

Ack ShardBackup::Answer(AckCode code, const Append& append) const {
  const uint64_t term = code == AckCode::kConfirmed ? append.term : term_;
  // A refusal is of the replica that was meant, perhaps an earlier copy.
  return {shard_, code, term, append.to, append.from, confirmed_, log_.applied()};
}

AckCode ShardBackup::Place(const ReplicatedGroup& group) {
  if (group.last_lsn <= confirmed_) return AckCode::kConfirmed;  // sent again
  if (group.first_lsn != confirmed_ + 1) return AckCode::kGap;
  const ReplicatedGroup* present = log_.After(confirmed_);
  const bool is_same = present != nullptr && (IsMistake(ReplicationMistake::kSameLsnIsSameGroup) ||
                                              present->IsSameAs(group));
  if (!is_same) {
    CutAfter(confirmed_);
    if (failure_ = store_.Reserve(group); !failure_.ok()) return AckCode::kNoRoom;
    log_.Append(group);
  }
  confirmed_ = is_same ? present->last_lsn : group.last_lsn;
  return AckCode::kConfirmed;
}

void ShardBackup::ApplyUpTo(uint64_t lsn) {
  const uint64_t end =
      IsMistake(ReplicationMistake::kAppliesUnconfirmed) ? lsn : std::min(lsn, confirmed_);
  for (const ReplicatedGroup* group = log_.After(log_.applied());
       group != nullptr && group->last_lsn <= end; group = log_.After(log_.applied())) {
    store_.Apply(*group);
    log_.MarkApplied();
  }
}

Ack ShardBackup::TakeAppend(const Append& append) {
  if (append.to != self_) return Answer(AckCode::kOtherReplica, append);
  const bool is_lower = append.term < term_;
  if (is_lower && !IsMistake(ReplicationMistake::kTakesLowerTerm))
    return Answer(AckCode::kLowerTerm, append);
  if (append.term > term_ || (append.from != primary_ && !is_lower))
    return Answer(AckCode::kUnknownTerm, append);
  for (const ReplicatedGroup& group : append.groups) {
    if (const AckCode code = Place(group); code != AckCode::kConfirmed) return Answer(code, append);
  }
  ApplyUpTo(IsMistake(ReplicationMistake::kAppliesAtOnce) ? confirmed_ : append.commit_point);
  log_.Discard(append.discard_to);
  return Answer(AckCode::kConfirmed, append);
}

}  // namespace osprey
