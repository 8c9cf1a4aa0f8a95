#include "server/engine/direct_batch.h"

#include <bit>

#include "index/writer/table.h"
#include "server/engine/connection/connection.h"

namespace osprey::server {

// Executes the requests partition by partition, own partitions first, so that pollers begin at
// different ones. A partition that another poller holds comes after the others. The engine waits
// for it only when no other is left.
void DirectBatch::ExecuteMany(uint64_t left, absl::Time now) {
  while (left != 0) {
    const uint64_t before = left;
    if ((left & (left - 1)) != 0) {  // several
      left = TryEach(left & maintenance_.own_partitions(), now) |
             TryEach(left & ~maintenance_.own_partitions(), now);
    }
    if (left != before) continue;
    ExecuteOf(static_cast<uint32_t>(std::countr_zero(left)), /*wait=*/true, now);
    left &= left - 1;
  }
}

// Executes the requests of each of these partitions whose lock is free. Returns the others.
uint64_t DirectBatch::TryEach(uint64_t some, absl::Time now) {
  uint64_t left = some;
  for (uint64_t rest = some; rest != 0; rest &= rest - 1) {
    const auto partition = static_cast<uint32_t>(std::countr_zero(rest));
    // Prefetches the next partition's cache line during the requests of this one.
    const uint64_t next = rest & (rest - 1);
    if (next != 0) access_.PrefetchHot(static_cast<uint32_t>(std::countr_zero(next)));
    if (ExecuteOf(partition, /*wait=*/false, now)) left &= ~(uint64_t{1} << partition);
  }
  return left;
}

// False: the lock is held and `wait` is false.
bool DirectBatch::ExecuteOf(uint32_t partition, bool wait, absl::Time now) {
  PartitionBatch::Request* request = batch_.First(partition);
  while (request != nullptr) {
    // Only the first hold may fail: then nothing was done.
    if (!access_.Hold(partition, wait)) return false;
    wait = true;
    index::Table& table = access_.held();
    PrefetchItems(*request);
    for (uint64_t cost = 0; cost < kCostPerHold && request != nullptr;) {
      cost += request->connection->ExecuteBatched(*request, table, now);
      request = batch_.Next(*request);
    }
    const bool wants_nothing = !table.StepWanted(now);
    if (wants_nothing) maintenance_.Await(partition, table.next_step(), now);
    access_.LetGo(wants_nothing);
    maintenance_.GrowBetween(counters_.writes(), now);
  }
  return true;
}

// Prefetches the items of some of the requests from `first` on. Without it each request would wait
// for its item. A single request waits in any case.
void DirectBatch::PrefetchItems(PartitionBatch::Request& first) {
  PartitionBatch::Request* request = &first;
  if (batch_.Next(first) == nullptr) return;
  for (uint64_t i = 0; i < kCostPerHold && request != nullptr; ++i) {
    access_.held().PrefetchItem(request->hash, request->hint);
    request = batch_.Next(*request);
  }
}

}  // namespace osprey::server
