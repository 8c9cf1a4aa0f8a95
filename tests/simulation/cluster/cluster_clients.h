// The clients of a simulated cluster, and what they have seen of each key.
//
// Each is a host with one thread, which drives client::ShardEngines as Client does. It has some operations under way
// at a time, and pauses.
//
// Thread rule: virtual threads.

#ifndef OSPREY_TESTS_SIMULATION_CLUSTER_CLUSTER_CLIENTS_H_
#define OSPREY_TESTS_SIMULATION_CLUSTER_CLUSTER_CLIENTS_H_

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "client/engine/shard_engines.h"
#include "rdma/lease_clock.h"
#include "tests/history/linearizability.h"
#include "tests/simulation/cluster/cluster_world.h"

namespace osprey {

// By key.
using ClusterHistories = std::map<std::string, std::vector<std::shared_ptr<Operation>>>;

class SimulatedClusterClient {
 public:
  // `uris`: of servers, as Client::Connect takes them. It makes `operations` and ends. `is_calm`: there are no faults,
  // so each is answered. All outlive it.
  SimulatedClusterClient(ClusterWorld& world, int number, std::string uris, int operations,
                         bool is_calm, ClusterHistories& histories);

  void Start();
  void Join() { world_.threads.Join(thread_); }
  bool has_ended() const { return has_ended_; }
  VirtualHost& host() { return host_; }
  const std::string& domain() const { return host_.name; }
  // The connection to each shard; kNone: there is none.
  std::vector<rdma::ConnectionId> connections() const;

 private:
  using OperationPointer = std::shared_ptr<Operation>;
  struct Call {
    std::string key;
    OperationPointer operation;
    int64_t deadline = 0;
    absl::Time until;  // the deadline by the client's clock
    WriteOptions options;
    std::string server;  // to which it was connected
    bool is_long = false;
  };

  void Run();
  bool Connect(client::ShardEngines& engines);
  void Work();
  void Sleep(absl::Time until);
  void Poll();
  Operation::Kind ChooseKind();
  void Begin();
  absl::Status Begin(Call& call);
  template <typename T>
  void Ended(const Call& call, const absl::StatusOr<T>& answer);
  absl::Time Now() const;

  ClusterWorld& world_;
  const int number_;
  const std::string uris_;
  int left_;
  const bool is_calm_;
  ClusterHistories& histories_;
  VirtualHost host_;
  VirtualThreads::Id thread_ = nullptr;
  bool has_ended_ = false;
  std::unique_ptr<rdma::Domain> domain_;
  std::unique_ptr<client::ShardEngines> engines_;
  std::unique_ptr<LeaseClock> lease_clock_;
  std::map<std::string, uint64_t> versions_;  // last seen, by key
  int under_way_ = 0;
  int64_t poll_began_ = 0, previous_poll_began_ = 0;
};

// What is wrong in the histories; "": nothing.
std::string Judge(const ClusterHistories& histories, ClusterReport& report);

}  // namespace osprey

#endif  // OSPREY_TESTS_SIMULATION_CLUSTER_CLUSTER_CLIENTS_H_
