#include "server/monitoring/monitor.h"

#include <cassert>
#include <utility>

#include "absl/time/clock.h"

namespace osprey::server {

Monitor::Monitor(Tables& tables, const Admission& admission, const Pollers& pollers,
                 const ClientGets& client_gets, absl::Span<const PollerHeartbeat> heartbeats,
                 StatsInput fixed, std::function<DurabilityStats()> durability,
                 std::function<ClusterStats()> cluster)
    : tables_(tables),
      admission_(admission),
      pollers_(pollers),
      client_gets_(client_gets),
      heartbeats_(heartbeats),
      fixed_(std::move(fixed)),
      durability_(std::move(durability)),
      cluster_(std::move(cluster)),
      last_(tables.partitions()) {
  assert(heartbeats.size() == pollers.count());
}

MonitorReading Monitor::Read(absl::Time now) {
  MonitorReading reading;
  PollerReport sum;
  for (uint32_t i = 0; i < pollers_.count(); ++i) {
    const PollerReport report = pollers_.Last(i);
    sum.Add(report);
    reading.pollers.push_back({heartbeats_[i].Read(now), report.connections});
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
  for (uint32_t i = 0; i < tables_.partitions(); ++i) {
    LockedTable table = tables_.TryLock(i);
    for (; !table.held() && left > absl::ZeroDuration(); left -= kStep) {
      absl::SleepFor(kStep);
      table = tables_.TryLock(i);
    }
    if (table.held()) last_[i] = table->stats();
  }
  return Tables::Sum(last_);
}

}  // namespace osprey::server
