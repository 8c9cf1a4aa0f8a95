#include "index/space/quarantine.h"

#include <cassert>

namespace osprey::index {
namespace {

// The most retired items past their grace period that one Allocate frees. It is more than an
// Allocate takes, so that they do not accumulate, and few, so that no write pays for many.
constexpr int kFreedPerAllocate = 4;
// The same for ended leases.
constexpr int kLeasesEndedPerAllocate = 2;

}  // namespace

void Quarantine::Add(uint64_t offset, uint64_t bytes, absl::Time now) {
  bytes_ += bytes;
  waiting_.push_back({offset, bytes, now + grace_});
}

bool Quarantine::FreeOldest(absl::Time now, Free free) {
  if (waiting_.empty()) return false;
  const Place place = waiting_.front();
  waiting_.pop_front();
  if (IsLeased(place.offset, now)) {
    leased_dead_.emplace(place.offset, place.bytes);
    return true;
  }
  bytes_ -= place.bytes;
  free(place.offset);
  return true;
}

bool Quarantine::FreeDue(absl::Time now, Free free) {
  const uint64_t bytes_before = bytes_;
  for (int i = 0; i < kFreedPerAllocate; ++i) {
    if (waiting_.empty() || waiting_.front().until > now) break;
    FreeOldest(now, free);
  }
  for (int i = 0; i < kLeasesEndedPerAllocate; ++i) {
    if (lease_order_.empty() || lease_order_.front().until > now) break;
    const uint64_t offset = lease_order_.front().offset;
    lease_order_.pop_front();
    const auto lease = leases_.find(offset);
    assert(lease != leases_.end());
    if (lease->second > now) {
      lease_order_.push_back({offset, 0, lease->second});  // renewed
      continue;
    }
    leases_.erase(lease);
    const auto dead = leased_dead_.find(offset);
    if (dead == leased_dead_.end()) continue;
    bytes_ -= dead->second;
    leased_dead_.erase(dead);
    free(offset);
  }
  return bytes_ < bytes_before;
}

void Quarantine::Lease(uint64_t offset, absl::Time until) {
  const auto [lease, is_new] = leases_.try_emplace(offset, until);
  if (is_new) {
    lease_order_.push_back({offset, 0, until});
  } else {
    lease->second = std::max(lease->second, until);  // processed when its first end comes
  }
}

bool Quarantine::IsLeased(uint64_t offset, absl::Time now) const {
  const auto lease = leases_.find(offset);
  return lease != leases_.end() && lease->second > now;
}

std::vector<uint64_t> Quarantine::Leased(absl::Time now) const {
  std::vector<uint64_t> leased;
  for (const auto& [offset, until] : leases_) {
    if (until > now) leased.push_back(offset);
  }
  return leased;
}

}  // namespace osprey::index
