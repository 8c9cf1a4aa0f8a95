#include "server/cluster/replication/replica_log.h"

#include <algorithm>
#include <cassert>
#include <utility>

namespace osprey {

size_t ReplicaLog::IndexAfter(uint64_t lsn) const {
  const auto found = std::partition_point(groups_.begin(), groups_.end(), [lsn](const Kept& one) {
    return one.group.first_lsn <= lsn;
  });
  return static_cast<size_t>(found - groups_.begin());
}

void ReplicaLog::Append(ReplicatedGroup group) {
  assert(group.first_lsn == last_ + 1 && group.last_lsn >= group.first_lsn);
  last_ = group.last_lsn;
  const uint64_t begin = end_;
  pending_bytes_ += group.bytes();
  end_ += group.bytes();
  groups_.push_back({std::move(group), begin});
}

void ReplicaLog::CutAfter(uint64_t lsn) {
  assert(lsn >= applied_ && lsn <= last_ && IsBoundary(lsn));
  while (last_ > lsn) {
    pending_bytes_ -= groups_.back().group.bytes();
    end_ = groups_.back().begin;
    last_ = groups_.back().group.first_lsn - 1;
    groups_.pop_back();
  }
}

const ReplicatedGroup* ReplicaLog::After(uint64_t lsn) const {
  const size_t index = IndexAfter(lsn);
  if (index == groups_.size() || groups_[index].group.first_lsn != lsn + 1) return nullptr;
  return &groups_[index].group;
}

uint64_t ReplicaLog::BytesUpTo(uint64_t lsn) const {
  const size_t index = IndexAfter(lsn);
  return (index == groups_.size() ? end_ : groups_[index].begin) - discarded_bytes_;
}

bool ReplicaLog::IsBoundary(uint64_t lsn) const {
  return lsn == kept_after_ || lsn == last_ || After(lsn) != nullptr;
}

void ReplicaLog::MarkApplied() {
  const ReplicatedGroup* group = After(applied_);
  assert(group != nullptr);
  applied_ = group->last_lsn;
  pending_bytes_ -= group->bytes();
}

void ReplicaLog::Discard(uint64_t lsn) {
  while (!groups_.empty() && groups_.front().group.last_lsn <= std::min(lsn, applied_)) {
    kept_after_ = groups_.front().group.last_lsn;
    discarded_bytes_ += groups_.front().group.bytes();
    groups_.pop_front();
  }
}

}  // namespace osprey
