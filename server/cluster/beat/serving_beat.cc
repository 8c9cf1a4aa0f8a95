#include "server/cluster/beat/serving_beat.h"

#include <cassert>
#include <utility>

#include "rdma/lease_time.h"

namespace osprey {

ServingBeat::ServingBeat(absl::Span<std::byte> region, uint64_t region_incarnation,
                         uint64_t incarnation)
    : writer_(region, region_incarnation) {
  TakeIncarnation(incarnation);
}

bool ServingBeat::LeaseFits(absl::Time now, const ServingBounds& bounds) {
  return now + kReaderLease() <= bounds.end();
}

bool ServingBeat::Check(absl::Time now, const ServingBounds& bounds) {
  const std::lock_guard<std::mutex> lock(mutex_);
  checked_ = LeaseFits(now, bounds);
  return checked_;
}

void ServingBeat::Store() {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (!std::exchange(checked_, false)) return;
  ++state_.beat;
  writer_.Write(state_);
}

void ServingBeat::Loses(uint64_t shards) {
  const std::lock_guard<std::mutex> lock(mutex_);
  ++state_.loss_revision;
  state_.shards &= ~shards;
  writer_.Write(state_);
}

void ServingBeat::Gains(uint64_t shards) {
  const std::lock_guard<std::mutex> lock(mutex_);
  ++state_.gain_revision;
  state_.shards |= shards;
  writer_.Write(state_);
}

void ServingBeat::TakeIncarnation(uint64_t incarnation) {
  assert(incarnation != 0);
  const std::lock_guard<std::mutex> lock(mutex_);
  checked_ = false;  // by the right of the incarnation before
  ++state_.loss_revision;
  state_.shards = 0;
  state_.incarnation = incarnation;
  writer_.Write(state_);
}

absl::optional<index::ServingState> ServingBeat::Grant(absl::Time now,
                                                       const ServingBounds& bounds) const {
  if (!LeaseFits(now, bounds)) return absl::nullopt;
  return state();
}

index::ServingState ServingBeat::state() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return state_;
}

}  // namespace osprey
