#include "server/engine/sync_group.h"

#include <algorithm>
#include <cstdint>

namespace osprey::server {

void SyncGroup::BeginTurn() {
  if (state_ == State::kExecuted) state_ = State::kFresh;
}

bool SyncGroup::Awaits(size_t requests) {
  if (!clock_ || state_ == State::kExecuted) return false;
  if (state_ == State::kFresh) awaited_ = answered_ + requests;
  state_ = State::kPolled;
  if (requests == 0 || requests >= awaited_ || awaited_ < kAwaitedMin || rounds_without_wait_ > 0)
    return false;
  const absl::Time now = clock_();
  if (wait_began_ == absl::InfiniteFuture()) {
    wait_began_ = now;
    came_before_ = requests;
  }
  return now - wait_began_ < std::min(round_took_ / kWaitPart, kWaitMax());
}

void SyncGroup::BeginRound() {
  if (state_ != State::kExecuted) answered_ = 0;
  if (clock_) round_began_ = clock_();
}

void SyncGroup::EndRound(size_t requests) {
  state_ = State::kExecuted;
  answered_ += requests;
  if (!clock_) return;
  if (rounds_without_wait_ > 0) --rounds_without_wait_;
  round_took_ = clock_() - round_began_;
  if (wait_began_ != absl::InfiniteFuture()) JudgeWait(requests, round_began_);
  wait_began_ = absl::InfiniteFuture();
}

// A wait has to bring at least as large a part of the requests as it takes of the time.
void SyncGroup::JudgeWait(size_t requests, absl::Time end) {
  const auto before = static_cast<int64_t>(came_before_);
  const int64_t brought = std::max<int64_t>(static_cast<int64_t>(requests) - before, 0);
  if (brought * round_took_ < before * (end - wait_began_))
    rounds_without_wait_ = kRoundsWithoutWait;
}

}  // namespace osprey::server
