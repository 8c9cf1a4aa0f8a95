// The store of a simulated cluster, as one process of a server reaches it: late, without an answer, or not at all.
//
// Thread rule: as ConfigurationStore.

#ifndef OSPREY_TESTS_SIMULATION_CLUSTER_SIMULATED_STORE_H_
#define OSPREY_TESTS_SIMULATION_CLUSTER_SIMULATED_STORE_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "server/cluster/etcd/etcd_store.h"
#include "tests/simulation/cluster/cluster_world.h"

namespace osprey {

// What all servers have in common of it.
struct StoreState {
  bool is_calm = false;    // it answers soon
  int64_t down_until = 0;  // an outage
  VirtualHost host{"store"};
  std::vector<VirtualThreads::Id> late;  // transactions on their way
};

class SimulatedStore final : public ConfigurationStore {
 public:
  // Of a process: `key` is its server's. `is_cut`: it does not reach the store now.
  SimulatedStore(ClusterWorld& world, StoreState& state, std::string key,
                 std::function<bool()> is_cut)
      : world_(world), state_(state), key_(std::move(key)), is_cut_(std::move(is_cut)) {}

  absl::StatusOr<RangeAnswer> Range(const StoreRange& range, absl::Duration timeout) override;
  TransactionResult Execute(const Transaction& transaction, absl::Duration timeout) override;
  // A call is under way.
  bool is_busy() const { return is_busy_; }
  // Of the server's key, as this process has created it; 0: it has not.
  int64_t create_revision() const { return *create_revision_; }

 private:
  bool IsOut() const { return is_cut_() || world_.now() < state_.down_until; }
  int64_t Latency();
  TransactionResult ExecuteNow(const Transaction& transaction, int64_t end);
  static TransactionResult Apply(ClusterWorld& world, const std::string& key,
                                 int64_t& create_revision, const Transaction& transaction);

  ClusterWorld& world_;
  StoreState& state_;
  const std::string key_;
  const std::function<bool()> is_cut_;
  const std::shared_ptr<int64_t> create_revision_ = std::make_shared<int64_t>(0);
  bool is_busy_ = false;
};

}  // namespace osprey

#endif  // OSPREY_TESTS_SIMULATION_CLUSTER_SIMULATED_STORE_H_
