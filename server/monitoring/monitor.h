// Looks at a running server from beside its pollers, for the metrics: what each of them reported at
// the end of its last turn (pollers.h), its heartbeat, and the tables. It waits for no poller: if a
// partition's lock is not free for some milliseconds, its last figures are reported again.

#ifndef OSPREY_SERVER_MONITORING_MONITOR_H_
#define OSPREY_SERVER_MONITORING_MONITOR_H_

#include <functional>
#include <mutex>
#include <vector>

#include "absl/time/time.h"
#include "absl/types/span.h"
#include "server/clock.h"
#include "server/engine/pollers.h"
#include "server/monitoring/poller_heartbeat.h"
#include "server/monitoring/process_figures.h"
#include "server/requests/tables.h"
#include "server/stats/admission.h"
#include "server/stats/stats.h"

namespace osprey::server {

struct PollerMetricRows {
  PollerHeartbeat::Reading heartbeat;
  size_t connections = 0;
};

// All that the metrics tell.
struct MonitorReading {
  StatsInput stats;
  ProcessFigures process;
  absl::Time at;  // by the time of day
  std::vector<PollerMetricRows> pollers;
};

// Thread-safe.
class Monitor {
 public:
  // How long one Read waits for locks, in all.
  static constexpr absl::Duration kLockWaitMax() { return absl::Milliseconds(20); }

  // One shard of the server.
  struct Watched {
    Tables& tables;
    const Pollers& pollers;
    absl::Span<const PollerHeartbeat> heartbeats;  // of each of them
    const Clock& clock;                            // of the heartbeats
    // Whether the tables hold something to be counted. Any thread. Empty: always.
    std::function<bool()> is_used = {};
  };

  // All must outlive this. Of `fixed`, what never changes is used. `durability` and `cluster` run on any
  // threads; empty: there is no data directory, or no cluster.
  Monitor(std::vector<Watched> shards, const Admission& admission, const ClientGets& client_gets,
          StatsInput fixed, std::function<DurabilityStats()> durability,
          std::function<ClusterStats()> cluster);
  Monitor(const Monitor&) = delete;
  Monitor& operator=(const Monitor&) = delete;

  MonitorReading Read();

 private:
  index::Table::Stats ReadTables();

  const std::vector<Watched> shards_;
  const Admission& admission_;
  const ClientGets& client_gets_;
  const StatsInput fixed_;
  const std::function<DurabilityStats()> durability_;
  const std::function<ClusterStats()> cluster_;
  std::mutex mutex_;
  std::vector<index::Table::Stats> last_;  // of all shards, by partition; under the mutex
};

}  // namespace osprey::server

#endif  // OSPREY_SERVER_MONITORING_MONITOR_H_
