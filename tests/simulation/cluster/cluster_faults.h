// What goes wrong in a simulated cluster, and what its operator does.
//
// Thread rule: virtual threads.

#ifndef OSPREY_TESTS_SIMULATION_CLUSTER_CLUSTER_FAULTS_H_
#define OSPREY_TESTS_SIMULATION_CLUSTER_CLUSTER_FAULTS_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "server/cluster/configuration/shard_record.h"
#include "tests/simulation/cluster/cluster_clients.h"
#include "tests/simulation/cluster/cluster_world.h"
#include "tests/simulation/cluster/simulated_server.h"
#include "tests/simulation/cluster/simulated_store.h"

namespace osprey {

class ClusterFaults {
 public:
  using Servers = std::vector<std::unique_ptr<SimulatedServer>>;
  using Clients = std::vector<std::unique_ptr<SimulatedClusterClient>>;

  ClusterFaults(ClusterWorld& world, StoreState& store, Servers& servers, Clients& clients)
      : world_(world), store_(store), servers_(servers), clients_(clients) {}

  // Some faults, one after the other; they overlap. Then all are over.
  void Run();
  // The record of each shard in the store.
  std::vector<ShardRecord> Records() const;

 private:
  SimulatedServer& AnyServer() { return *servers_[world_.random.Below(servers_.size())]; }
  void Note(absl::string_view what) { world_.Log(absl::StrCat("--- ", what)); }
  void Later(int64_t ns, std::function<void()> undo);
  void Undo(bool all);
  bool MayLose(const SimulatedServer& server) const;
  void Fault();
  void Kill();
  void End();
  void StopHost();
  void CutFromStore();
  void CutLinks();
  void CutClients();
  void Move();
  void Drift();
  void BreakConnections();
  void HoldReads();

  ClusterWorld& world_;
  StoreState& store_;
  Servers& servers_;
  Clients& clients_;
  std::vector<std::pair<int64_t, std::function<void()>>> undo_;  // when
};

}  // namespace osprey

#endif  // OSPREY_TESTS_SIMULATION_CLUSTER_CLUSTER_FAULTS_H_
