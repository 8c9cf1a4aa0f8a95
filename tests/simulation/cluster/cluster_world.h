// What servers, clients, store and faults of a simulated cluster share: time, network, random numbers, parameters.
//
// Thread rule: virtual threads. None is interrupted where it uses this, but where it waits.

#ifndef OSPREY_TESTS_SIMULATION_CLUSTER_CLUSTER_WORLD_H_
#define OSPREY_TESTS_SIMULATION_CLUSTER_CLUSTER_WORLD_H_

#include <cstdint>
#include <set>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "rdma/address.h"
#include "rdma/lease_clock.h"
#include "rdma/raw_clock.h"
#include "server/cluster/configuration/cluster_record.h"
#include "server/config/config.h"
#include "tests/server/cluster/right/model_store.h"
#include "tests/simulation/cluster/cluster_simulation.h"
#include "tests/support/split_mix64.h"
#include "tests/support/transports/fake_transport.h"
#include "tests/support/virtual_time/virtual_threads.h"

namespace osprey {

inline constexpr int64_t kMillisecond = 1'000'000;
inline constexpr int64_t kSecond = 1000 * kMillisecond;

// Drawn from the seed before the run begins.
struct ClusterPlan {
  uint32_t servers = 3, shards = 1, replicas = 2, slots = 1;
  int clients = 3;
  uint32_t keys = 12;
  uint32_t pollers = 1;
  server::PollMode poll = server::PollMode::kEvent;
  uint32_t read_piece_bytes = 0;
  uint64_t late_reads_per_10k = 0;  // of pieces of READs
  bool has_one_address = false;     // clients know one server alone
  uint32_t faults = 8;
  int64_t fault_every_ms_max = 1500;
  int64_t think_ms_max = 100;
  uint64_t ttl_percent = 0;
  uint64_t long_percent = 0;  // of values that are put: they go in parts
  VirtualThreadsOptions threads;
};
ClusterPlan MakeClusterPlan(SplitMix64& random);

// Of a host, which has no invariant TSC. CLOCK_BOOTTIME is what counts then.
class HostClocks final : public ClockSources {
 public:
  int64_t BootTimeNs() override;
  int64_t RawTimeNs() override { return RawClockNs(); }
  uint64_t Tsc() override { return 0; }
  bool HasInvariantTsc() override { return false; }
  void Sleep(absl::Duration) override {}
};

struct ClusterWorld {
  ClusterWorld(const ClusterSimulationOptions& its_options, const ClusterPlan& its_plan,
               SplitMix64& its_random, ClusterReport& its_report);

  int64_t now() const { return threads.now(); }
  void Sleep(int64_t ns) { threads.SleepUntil(now() + ns); }
  int64_t Random(int64_t below) {
    return static_cast<int64_t>(random.Below(static_cast<uint64_t>(below)));
  }
  void Log(absl::string_view line);
  void Wrong(std::string what) {
    if (report.wrong.empty()) report.wrong = std::move(what);
  }
  // Of domains: what is between them in this direction does not arrive.
  void Block(const std::string& from, const std::string& to, bool is_blocked);
  static std::string ServerName(uint32_t server) {
    return std::string(1, static_cast<char>('a' + server));
  }

  const ClusterSimulationOptions& options;
  const ClusterPlan plan;
  SplitMix64& random;
  ClusterReport& report;
  VirtualThreads threads;
  fake::Network network;
  // Names of hosts, whose domains are "NAME" or "NAME.LIFE".
  std::multiset<std::pair<std::string, std::string>> blocked;
  const ClusterKeys keys{"/osprey/simulated/"};
  ClusterRecord cluster;
  ModelStore store;
};

}  // namespace osprey

#endif  // OSPREY_TESTS_SIMULATION_CLUSTER_CLUSTER_WORLD_H_
