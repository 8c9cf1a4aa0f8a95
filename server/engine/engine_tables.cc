// The engine's work on the tables: batched requests, and growth, sweeps, eviction and compaction
// in small steps.

#include <algorithm>
#include <bit>
#include <cassert>

#include "server/engine/engine.h"

namespace osprey::server {

// Executes the requests partition by partition, own partitions first, so that pollers begin at
// different ones. A partition that another poller holds comes after the others. The engine waits
// for it only when no other is left.
void Engine::ExecuteBatched(absl::Time now) {
  if (partition_batch_.empty()) return;
  uint64_t left = partition_batch_.partitions();
  while (left != 0) {
    const uint64_t before = left;
    for (const uint64_t some : {left & own_partitions_, left & ~own_partitions_}) {
      for (uint64_t rest = some; rest != 0; rest &= rest - 1) {
        const auto partition = static_cast<uint32_t>(std::countr_zero(rest));
        // Prefetches the next partition's cache line during the requests of this one.
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
  for (Connection* const connection : partition_batch_.connections()) {
    connection->EndBatched(now);
    Touched(*connection);
  }
  partition_batch_.Clear();
}

// False: the lock is held and `wait` is false.
bool Engine::ExecuteOf(uint32_t partition, bool wait, absl::Time now) {
  const PartitionBatch::Request* request = partition_batch_.First(partition);
  while (request != nullptr) {
    // Only the first hold may fail: then nothing was done.
    if (!access_.Hold(partition, wait)) return false;
    wait = true;
    index::Table& table = access_.held();
    PrefetchItems(*request);
    for (uint64_t cost = 0; cost < kCostPerHold && request != nullptr;) {
      cost += request->connection->ExecuteBatched(*request, now);
      request = partition_batch_.Next(*request);
    }
    const bool wants_nothing = !table.StepWanted(now);
    if (wants_nothing) {
      sweep_at_[partition] = table.next_step();
      AwaitSweep(partition, now);
    }
    access_.LetGo(wants_nothing);
    GrowBetween(now);
  }
  return true;
}

// Prefetches the items of some of the requests from `first` on. Without it each request would wait
// for its item. A single request waits in any case.
void Engine::PrefetchItems(const PartitionBatch::Request& first) {
  const PartitionBatch::Request* request = &first;
  if (partition_batch_.Next(first) == nullptr) return;
  for (uint64_t i = 0; i < kCostPerHold && request != nullptr; ++i) {
    access_.held().PrefetchItem(request->hash);
    request = partition_batch_.Next(*request);
  }
}

// Runs growth, sweeps, eviction and compaction of used tables, step by step. True while there is
// more work, so that the poller does not sleep.
bool Engine::RunMaintenance(absl::Time now) {
  TakeTouched();
  if (unmaintained_ == 0) return false;
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

void Engine::TakeTouched() {
  const uint64_t touched = access_.TakeTouched();
  unmaintained_ |= touched;
  used_ |= touched;
}

// True if the table needs more.
bool Engine::MaintainTable(uint32_t partition, absl::Time now) {
  const LockedTable table = tables_.Lock(partition);
  const bool is_used = ((own_partitions_ | used_) >> partition & 1) != 0;
  used_ &= ~(uint64_t{1} << partition);
  // The sweep was due, but another poller has done it and continues with the table. A poller that
  // moves the next sweep, by a sweep or by a write that sweeps for lack of memory, sets a timer for
  // it. If this engine had used the table since its own timer was set, it might be that poller.
  const absl::Time next_step = table->next_step();
  const bool is_others = now >= sweep_at_[partition] && now < next_step && !is_used;
  bool more = table->GrowStep(now);
  more |= table->SweepStep(now);
  more |= table->EvictStep(now);
  more |= table->CompactStep(now);
  // (These steps may sweep as well.)
  const bool is_awaited = is_others && table->next_step() >= next_step;
  sweep_at_[partition] = is_awaited ? absl::InfiniteFuture() : table->next_step();
  if (!more) AwaitSweep(partition, now);
  return more;
}

void Engine::AwaitSweep(uint32_t partition, absl::Time now) {
  next_timer_ = std::min(next_timer_, std::max(sweep_at_[partition], now + kTimerStep()));
}

// In turn. REQUIRES: at least one table needs maintenance.
uint32_t Engine::NextUntended() {
  const int after = static_cast<int>(maintained_last_) + 1;
  const uint64_t rotated = std::rotr(unmaintained_, after);
  maintained_last_ = static_cast<uint32_t>(after + std::countr_zero(rotated)) % 64;
  return maintained_last_;
}

// The partitions whose timers belong to this engine.
uint64_t Engine::OwnPartitions() const {
  const uint32_t pollers = options_.pollers == nullptr ? 1 : options_.pollers->count();
  uint64_t own = 0;
  for (uint32_t i = options_.poller; i < tables_.partitions(); i += pollers)
    own |= uint64_t{1} << i;
  return own;
}

// Growth and eviction between events. So they keep up with a turn full of inserts, and no insert
// waits for more than a step.
void Engine::GrowBetween(absl::Time now) {
  const uint64_t writes = counters_.puts + counters_.increments + counters_.appends;
  if (writes - grown_at_ < kWritesPerGrowStep) return;
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
