// Simulation of a cluster: servers, clients and etcd in one process, in virtual time. All of it follows from one seed.
//
//   ClusterReport report = SimulateCluster({.seed = 17});
//   report.wrong                       "" when every answer was right
//
//   servers   what kvserver runs in a cluster, with all its threads (server/cluster_service.h)   simulated_server.h
//   clients   client::ShardEngines, as Client has them                                           cluster_clients.h
//   etcd      ModelStore, late, lost, without an answer, or down                                 simulated_store.h
//   network   the fake transport; the threads are VirtualThreads                                 cluster_world.h
//   faults    cluster_faults.h
//
// The checker requires that the history of each key is linearizable (tests/history/linearizability.h) across all
// failovers. An increment without an answer has happened at most once. An expired key does not come back. Every
// operation is answered soon after its deadline. Once the faults have ended, each shard has all its copies again, and
// these are equal; and without faults no operation fails.

#ifndef OSPREY_TESTS_SIMULATION_CLUSTER_CLUSTER_SIMULATION_H_
#define OSPREY_TESTS_SIMULATION_CLUSTER_CLUSTER_SIMULATION_H_

#include <cstdint>
#include <functional>
#include <string>

#include "absl/strings/string_view.h"
#include "server/cluster/replication/test_hooks.h"

namespace osprey {

struct ClusterSimulationOptions {
  uint64_t seed = 1;
  int operations = 400;  // of all clients together
  bool has_faults = true;
  ReplicationMistake mistake = ReplicationMistake::kNone;
  // Takes each line that a server logs, and each fault; may be empty.
  std::function<void(absl::string_view line)> log = {};
};

// What happened in one run, or in many.
struct ClusterCounts {
  uint64_t runs = 0, operations = 0, unknown = 0, histories = 0, undecided = 0;
  uint64_t promotions = 0;
  uint64_t answered_elsewhere =
      0;                   // writes that began at another server than the one that answered them
  uint64_t long_puts = 0;  // of values that go in parts
  uint64_t read_gets = 0;  // GETs that a READ has answered
  uint64_t uncovered_reads = 0;  // READs refused for the lack of a lease
  uint64_t kills = 0, stops = 0, ends = 0, cuts_from_store = 0, cuts_of_links = 0, one_way_cuts = 0,
           cuts_of_clients = 0, store_outages = 0, moves = 0, drifts = 0, broken = 0,
           held_reads = 0;
  uint64_t store_lost = 0, store_unanswered = 0, store_late = 0;
  uint64_t virtual_ms = 0, switches = 0;

  void Add(const ClusterCounts& other);
  std::string ToString() const;
  // The events too rare in so many runs to prove anything; "": none.
  std::string Void() const;
};

struct ClusterReport : ClusterCounts {
  std::string wrong;        // for people
  uint64_t trace_hash = 0;  // of all answers and their times
};

ClusterReport SimulateCluster(const ClusterSimulationOptions& options);

}  // namespace osprey

#endif  // OSPREY_TESTS_SIMULATION_CLUSTER_CLUSTER_SIMULATION_H_
