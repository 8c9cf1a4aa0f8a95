// What an engine does with the tables: requests that were gathered, and growth, sweeps, eviction
// and compaction in small steps.

#include <algorithm>
#include <bit>
#include <cassert>

#include "server/engine.h"

namespace osprey::server {

// Partition by partition, its own first: so the pollers begin at different ones. One that another
// poller holds just now comes after the others, and is waited for only when no other is left.
void Engine::ExecuteGathered(absl::Time now) {
  if (gather_.empty()) return;
  uint64_t left = gather_.partitions();
  while (left != 0) {
    const uint64_t before = left;
    for (const uint64_t some : {left & own_partitions_, left & ~own_partitions_}) {
      for (uint64_t rest = some; rest != 0; rest &= rest - 1) {
        const auto partition = static_cast<uint32_t>(std::countr_zero(rest));
        // While this one's requests are executed, the next one's cache line may come.
        const uint64_t next = rest & (rest - 1);
        if (next != 0) access_.PrefetchHot(static_cast<uint32_t>(std::countr_zero(next)));
        if (ExecuteOf(partition, /*wait=*/false, now)) left &= ~(uint64_t{1} << partition);
      }
    }
    if (left != before) continue;
    const auto partition = static_cast<uint32_t>(std::countr_zero(left));
    ExecuteOf(partition, /*wait=*/true, now);
    left &= left - 1;
  }
  for (Connection* const connection : gather_.connections()) {
    connection->EndGathered(now);
    Touched(*connection);
  }
  gather_.Clear();
}

// False: the lock was not to be had without waiting.
bool Engine::ExecuteOf(uint32_t partition, bool wait, absl::Time now) {
  const Gather::Request* request = gather_.First(partition);
  while (request != nullptr) {
    // Only the first hold may be refused: then nothing was done.
    if (!access_.Hold(partition, wait)) return false;
    wait = true;
    index::Table& table = access_.held();
    PrefetchItems(*request);
    for (uint64_t cost = 0; cost < kCostPerHold && request != nullptr;) {
      cost += request->connection->ExecuteGathered(*request, now);
      request = gather_.Next(*request);
    }
    const bool wants_nothing = !table.StepWanted(now);
    if (wants_nothing) {
      sweep_at_[partition] = table.next_sweep();
      AwaitSweep(partition, now);
    }
    access_.LetGo(wants_nothing);
    GrowBetween(now);
  }
  return true;
}

// Of some of the requests from `first` on, each of which would wait for its item when its turn
// comes. One alone waits in any case.
void Engine::PrefetchItems(const Gather::Request& first) {
  const Gather::Request* request = &first;
  if (gather_.Next(first) == nullptr) return;
  for (uint64_t i = 0; i < kCostPerHold && request != nullptr; ++i) {
    access_.held().PrefetchItem(request->hash);
    request = gather_.Next(*request);
  }
}

// Growth, sweeps, eviction and compaction, step by step, of what was used. True while there is more
// to do, so that nobody sleeps meanwhile.
bool Engine::TendTables(absl::Time now) {
  TakeTouched();
  if (untended_ == 0) return false;
  int steps = 0;
  for (int left = std::popcount(untended_); left > 0 && steps < kTendedPerTurn; --left) {
    const uint32_t partition = NextUntended();
    if (TendTable(partition, now)) {
      ++steps;
    } else {
      untended_ &= ~(uint64_t{1} << partition);
    }
  }
  return untended_ != 0;
}

void Engine::TakeTouched() {
  const uint64_t touched = access_.TakeTouched();
  untended_ |= touched;
  used_ |= touched;
}

// True when it wants more.
bool Engine::TendTable(uint32_t partition, absl::Time now) {
  const LockedTable table = tables_.Lock(partition);
  const bool is_used = ((own_partitions_ | used_) >> partition & 1) != 0;
  used_ &= ~(uint64_t{1} << partition);
  // Another poller was quicker, and goes on with it: whoever makes the next sweep another one than
  // it was, by a sweep or by a write that makes one for want of room, sets a timer for that. Had we
  // used the table since our own was set, it might have been us.
  const absl::Time next_sweep = table->next_sweep();
  const bool is_others = now >= sweep_at_[partition] && now < next_sweep && !is_used;
  bool more = table->GrowStep(now);
  more |= table->SweepStep(now);
  more |= table->EvictStep(now);
  more |= table->CompactStep(now);
  // (So may these steps.)
  const bool is_awaited = is_others && table->next_sweep() >= next_sweep;
  sweep_at_[partition] = is_awaited ? absl::InfiniteFuture() : table->next_sweep();
  if (!more) AwaitSweep(partition, now);
  return more;
}

void Engine::AwaitSweep(uint32_t partition, absl::Time now) {
  next_timer_ = std::min(next_timer_, std::max(sweep_at_[partition], now + kTimerStep()));
}

// In turn. REQUIRES: there is one.
uint32_t Engine::NextUntended() {
  const int after = static_cast<int>(tended_last_) + 1;
  const uint64_t rotated = std::rotr(untended_, after);
  tended_last_ = static_cast<uint32_t>(after + std::countr_zero(rotated)) % 64;
  return tended_last_;
}

// Those whose timers are this engine's business.
uint64_t Engine::OwnPartitions() const {
  const uint32_t pollers = options_.pollers == nullptr ? 1 : options_.pollers->count();
  uint64_t own = 0;
  for (uint32_t i = options_.poller; i < tables_.partitions(); i += pollers)
    own |= uint64_t{1} << i;
  return own;
}

// So that growth and eviction keep up with a turn full of inserts, and none of them waits for more
// than a step.
void Engine::GrowBetween(absl::Time now) {
  const uint64_t writes = counters_.puts + counters_.increments + counters_.appends;
  if (writes - grown_at_ < kWritesPerGrowStep) return;
  grown_at_ = writes;
  TakeTouched();
  for (int left = std::popcount(untended_); left > 0; --left) {
    const uint32_t partition = NextUntended();
    used_ |= uint64_t{1} << partition;
    const LockedTable table = tables_.Lock(partition);
    const bool grows = table->GrowthWanted();
    if (grows) table->GrowStep(now);
    if (table->EvictStep(now) || grows) return;
  }
}

}  // namespace osprey::server
