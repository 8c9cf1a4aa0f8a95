// Executes batched requests where a change is made at once (not WriteLog::AwaitsSync).
//
// The requests are executed partition by partition, each under its lock. One hold covers 64 small
// requests, fewer expensive ones, or one bounded step.
//
// Thread rule: the engine's thread.

#ifndef OSPREY_SERVER_ENGINE_DIRECT_BATCH_H_
#define OSPREY_SERVER_ENGINE_DIRECT_BATCH_H_

#include <bit>
#include <cstdint>

#include "absl/time/time.h"
#include "server/engine/connection/partition_batch.h"
#include "server/engine/maintenance.h"
#include "server/requests/tables.h"
#include "server/stats/stats.h"

namespace osprey::server {

// The limit for the cost of batched requests under one hold of a partition's lock, in the units of
// kTurnCostMax: 64 small ones (some 10 us), or one expensive request.
inline constexpr uint64_t kCostPerHold = 64;

class DirectBatch {
 public:
  // All must outlive this. `counters` are those of the batch's connections.
  DirectBatch(PartitionBatch& batch, TableAccess& access, Maintenance& maintenance,
              const Counters& counters)
      : batch_(batch), access_(access), maintenance_(maintenance), counters_(counters) {}

  // Executes all requests of the batch, which stay in it. REQUIRES: nothing is held, and the
  // batch is not empty.
  void Execute(absl::Time now) {
    const uint64_t partitions = batch_.partitions();
    if ((partitions & (partitions - 1)) != 0) return ExecuteMany(partitions, now);
    ExecuteOf(static_cast<uint32_t>(std::countr_zero(partitions)), /*wait=*/true, now);
  }

 private:
  void ExecuteMany(uint64_t left, absl::Time now);
  uint64_t TryEach(uint64_t some, absl::Time now);
  bool ExecuteOf(uint32_t partition, bool wait, absl::Time now);
  void PrefetchItems(PartitionBatch::Request& first);

  PartitionBatch& batch_;
  TableAccess& access_;
  Maintenance& maintenance_;
  const Counters& counters_;
};

}  // namespace osprey::server

#endif  // OSPREY_SERVER_ENGINE_DIRECT_BATCH_H_
