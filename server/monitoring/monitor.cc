#include "server/monitoring/monitor.h"

#include <cassert>
#include <utility>

#include "absl/time/clock.h"

namespace osprey::server {

Monitor::Monitor(std::vector<Watched> shards, const Admission& admission,
                 const ClientGets& client_gets, StatsInput fixed,
                 std::function<DurabilityStats()> durability, std::function<ClusterStats()> cluster)
    : shards_(std::move(shards)),
      admission_(admission),
      client_gets_(client_gets),
      fixed_(std::move(fixed)),
      durability_(std::move(durability)),
      cluster_(std::move(cluster)) {
  size_t partitions = 0;
  for (const Watched& shard : shards_) {
    assert(shard.heartbeats.size() == shard.pollers.count());
    partitions += shard.tables.partitions();
  }
  last_.resize(partitions);
}

MonitorReading Monitor::Read() {
  MonitorReading reading;
  PollerReport sum;
  for (const Watched& shard : shards_) {
    const absl::Time now = shard.clock.Now();
    for (uint32_t i = 0; i < shard.pollers.count(); ++i) {
      const PollerReport report = shard.pollers.Last(i);
      sum.Add(report);
      reading.pollers.push_back({shard.heartbeats[i].Read(now), report.connections});
    }
  }
  reading.stats = fixed_;
  StatsInput& stats = reading.stats;
  stats.counters = sum.counters;
  stats.connections = sum.connections;
  stats.sessions = sum.sessions;
  stats.sessions_kept = sum.sessions_kept;
  stats.unauthenticated = admission_.unauthenticated();
  stats.refusals = admission_.refusals();
  stats.client_gets = client_gets_.Counts();
  if (durability_) stats.durability = durability_();
  if (cluster_) stats.cluster = cluster_();
  stats.table = ReadTables();
  return reading;
}

index::Table::Stats Monitor::ReadTables() {
  constexpr absl::Duration kStep = absl::Milliseconds(1);
  const std::lock_guard<std::mutex> lock(mutex_);
  absl::Duration left = kLockWaitMax();
  auto last = last_.begin();
  std::vector<index::Table::Stats> used;
  for (const Watched& shard : shards_) {
    for (uint32_t i = 0; i < shard.tables.partitions(); ++i, ++last) {
      LockedTable table = shard.tables.TryLock(i);
      for (; !table.held() && left > absl::ZeroDuration(); left -= kStep) {
        absl::SleepFor(kStep);
        table = shard.tables.TryLock(i);
      }
      if (table.held()) *last = table->stats();
      if (!shard.is_used || shard.is_used()) used.push_back(*last);
    }
  }
  // Memory that no shard has is of no use to those that are full.
  return Tables::Sum(used.empty() ? last_ : used);
}

}  // namespace osprey::server
