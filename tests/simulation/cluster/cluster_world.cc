#include "tests/simulation/cluster/cluster_world.h"

#include <time.h>

#include <algorithm>
#include <cassert>

#include "absl/strings/str_format.h"

namespace osprey {
namespace {

std::string HostOf(absl::string_view domain) {
  return std::string(domain.substr(0, domain.find('.')));
}

}  // namespace

ClusterPlan MakeClusterPlan(SplitMix64& random) {
  ClusterPlan plan;
  const uint64_t size = random.Below(10);
  plan.servers = size == 0 ? 2 : size == 1 ? 4 : 3;
  plan.replicas = plan.servers == 2 || random.Chance(40) ? 2 : 3;
  plan.shards = 1u << std::min<uint64_t>(random.Below(4), 2);
  plan.slots = plan.shards;
  if (plan.shards == 4 && plan.servers * 3 > 4 * plan.replicas && random.Chance(50)) plan.slots = 3;
  plan.clients = 2 + static_cast<int>(random.Below(3));
  plan.keys = 4 + static_cast<uint32_t>(random.Below(20));
  plan.pollers = random.Chance(20) ? 2 : 1;
  plan.poll = random.Chance(20) ? server::PollMode::kAdaptive : server::PollMode::kEvent;
  plan.read_piece_bytes = random.Chance(50) ? 0 : 64;
  plan.late_reads_per_10k = random.Chance(50) ? 100 : 0;
  plan.has_one_address = random.Chance(20);
  plan.faults = 4 + static_cast<uint32_t>(random.Below(8));
  plan.fault_every_ms_max = random.Chance(50) ? 2500 : 800;
  plan.think_ms_max = random.Chance(50) ? 1200 : 300;
  plan.ttl_percent = random.Chance(30) ? 40 : 0;
  if (random.Chance(70)) {
    plan.threads.preempt_per_10k = random.Chance(50) ? 300 : 30;
    plan.threads.stall_percent = random.Chance(50) ? 5 : 0;
    plan.threads.stall_ns_max = random.Chance(50) ? 2'000'000 : 200'000'000;
  }
  return plan;
}

ClusterWorld::ClusterWorld(const ClusterSimulationOptions& its_options, const ClusterPlan& its_plan,
                           SplitMix64& its_random, ClusterReport& its_report)
    : options(its_options),
      plan(its_plan),
      random(its_random),
      report(its_report),
      threads(random.Next(), plan.threads),
      network({.seed = random.Next(),
               .read_piece_bytes = plan.read_piece_bytes,
               .shuffle_pieces = true}) {
  cluster.id = random.Next() | 1;
  cluster.shards = plan.shards;
  cluster.replicas = plan.replicas;
  cluster.min_in_sync = MinInSync(plan.replicas);
  cluster.hash_seed = random.Next() | 1;
  cluster.shard_bytes = kShardBytesMin;
  [[maybe_unused]] const TransactionResult created = store.Execute(CreateCluster(keys, cluster));
  assert(created.outcome == TransactionOutcome::kApplied);
  network.is_blocked = [this](absl::string_view from, absl::string_view to) {
    return !blocked.empty() && blocked.contains({HostOf(from), HostOf(to)});
  };
  // A READ takes long: others go on, and the server may end.
  network.before_piece = [this](absl::Span<const std::byte>) {
    if (random.Below(10'000) >= plan.late_reads_per_10k) return;
    Sleep(Random(random.Chance(90) ? kMillisecond : 700 * kMillisecond));
  };
}

int64_t HostClocks::BootTimeNs() {
  timespec now;
  clock_gettime(CLOCK_BOOTTIME, &now);
  return now.tv_sec * kSecond + now.tv_nsec;
}

void ClusterWorld::Log(absl::string_view line) {
  if (options.log)
    options.log(absl::StrFormat("%10.6f %s", static_cast<double>(now()) / 1e9, line));
}

void ClusterWorld::Block(const std::string& from, const std::string& to, bool is_blocked) {
  if (is_blocked) {
    blocked.emplace(from, to);
  } else if (const auto found = blocked.find({from, to}); found != blocked.end()) {
    blocked.erase(found);
  }
  network.NoteBlocks();
}

}  // namespace osprey
