#include "server/engine/maintenance.h"

#include <algorithm>
#include <bit>

namespace osprey::server {

bool Maintenance::RunSome(absl::Time now) {
  int steps = 0;
  for (int left = std::popcount(unmaintained_); left > 0 && steps < kMaintainedPerTurn; --left) {
    const uint32_t partition = NextUntended();
    if (MaintainTable(partition, now)) {
      ++steps;
    } else {
      unmaintained_ &= ~(uint64_t{1} << partition);
    }
  }
  return unmaintained_ != 0;
}

// True if the table needs more.
bool Maintenance::MaintainTable(uint32_t partition, absl::Time now) {
  const LockedTable table = tables_.Lock(partition);
  const bool is_used = ((own_partitions_ | used_) >> partition & 1) != 0;
  used_ &= ~(uint64_t{1} << partition);
  // The sweep was due, but another poller has done it and continues with the table. A poller that
  // moves the next sweep, by a sweep or by a write that sweeps for lack of memory, sets a timer for
  // it. If this engine had used the table since its own timer was set, it might be that poller.
  const absl::Time next_step = table->next_step();
  const bool is_others = now >= step_at_[partition] && now < next_step && !is_used;
  bool more = table->GrowStep(now);
  more |= table->SweepStep(now);
  more |= table->EvictStep(now);
  more |= table->CompactStep(now);
  // (These steps may sweep as well.)
  const bool is_awaited = is_others && table->next_step() >= next_step;
  const absl::Time awaited = is_awaited ? absl::InfiniteFuture() : table->next_step();
  step_at_[partition] = awaited;
  if (!more) Await(partition, awaited, now);
  return more;
}

absl::Time Maintenance::WakeDue(absl::Time now) {
  timer_ = absl::InfiniteFuture();
  absl::Time next = absl::InfiniteFuture();
  // Tables without requests may need maintenance by time, too: dead space to be freed.
  unmaintained_ |= own_partitions_;
  // If this engine gave a key its expiry, this engine's timer covers it, in any partition.
  for (uint32_t i = 0; i < step_at_.size(); ++i) {
    if (now < step_at_[i]) {
      next = std::min(next, step_at_[i]);
    } else {
      unmaintained_ |= uint64_t{1} << i;  // its maintenance sets the next time
    }
  }
  return next;
}

// In turn. REQUIRES: at least one table needs maintenance.
uint32_t Maintenance::NextUntended() {
  const int after = static_cast<int>(maintained_last_) + 1;
  const uint64_t rotated = std::rotr(unmaintained_, after);
  maintained_last_ = static_cast<uint32_t>(after + std::countr_zero(rotated)) % 64;
  return maintained_last_;
}

void Maintenance::GrowAt(uint64_t writes, absl::Time now) {
  grown_at_ = writes;
  TakeTouched();
  for (int left = std::popcount(unmaintained_); left > 0; --left) {
    const uint32_t partition = NextUntended();
    used_ |= uint64_t{1} << partition;
    const LockedTable table = tables_.Lock(partition);
    const bool grows = table->GrowthWanted();
    if (grows) table->GrowStep(now);
    if (table->EvictStep(now) || grows) return;
  }
}

}  // namespace osprey::server
