// A server of a simulated cluster: a host, and one process of kvserver after the other.
//
// A process runs what serve.cc runs, with its threads: slots, cluster's thread, store calls, beats, directory,
// pollers. One that is killed is out of everyone's reach at once. Then its threads end by themselves, as after
// SIGTERM, which no other party notices.
//
// Thread rule: virtual threads.

#ifndef OSPREY_TESTS_SIMULATION_CLUSTER_SIMULATED_SERVER_H_
#define OSPREY_TESTS_SIMULATION_CLUSTER_SIMULATED_SERVER_H_

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "server/config/config.h"
#include "server/run.h"
#include "server/server_parts.h"
#include "tests/simulation/cluster/cluster_world.h"
#include "tests/simulation/cluster/simulated_store.h"

namespace osprey {

class SimulatedServer {
 public:
  struct Content {
    std::string value;
    uint64_t version = 0, expiry_ns = 0;
    bool operator==(const Content&) const = default;
  };

  // From Stop to the end.
  static constexpr int64_t kEndMax = 15 * kSecond;

  SimulatedServer(ClusterWorld& world, StoreState& store, uint32_t number);

  // A new process, without data. REQUIRES: !runs().
  void Start();
  // Its process is gone. `is_reported`: to those that are connected.
  void Kill(bool is_reported);
  // Its process is to end. Then runs() becomes false.
  void Stop();
  // Awaits the end of all processes. REQUIRES: they were killed, or stopped.
  void Join();

  bool runs() const { return process_ != nullptr && !process_->has_ended; }
  bool stops() const { return process_ != nullptr && process_->bell.rung(); }
  // A transaction of it is on its way to the store.
  bool has_transaction() const;
  // Of its key, by its present process; 0: it has none.
  int64_t create_revision() const;
  VirtualHost& host() { return host_; }
  const std::string& id() const { return id_; }
  std::string address() const { return absl::StrCat("shm:///", id_); }
  // Whether it is cut off from the store.
  bool is_cut_from_store = false;
  // The keys of a shard that it holds, expired ones included.
  std::map<std::string, Content> ContentsOf(uint32_t shard);
  uint64_t promotions() const { return promotions_; }

 private:
  struct Process {
    server::StopBell bell;
    std::string domain;
    bool is_killed = false;
    bool has_ended = false;
    std::unique_ptr<server::Server> server;
    SimulatedStore* calls = nullptr;
    SimulatedStore* renewals = nullptr;
    VirtualThreads::Id thread = nullptr;
  };

  server::Config MakeConfig() const;
  void Run(Process& process);

  ClusterWorld& world_;
  StoreState& store_;
  const std::string id_;
  VirtualHost host_;
  uint32_t lives_ = 0;
  uint64_t promotions_ = 0;
  std::vector<std::unique_ptr<Process>> processes_;
  Process* process_ = nullptr;  // the last one, unless it was killed
};

}  // namespace osprey

#endif  // OSPREY_TESTS_SIMULATION_CLUSTER_SIMULATED_SERVER_H_
