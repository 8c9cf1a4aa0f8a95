// Simulation of server and clients: the engines that ship, in one process on the fake transport, in
// virtual time, with faults and a checker. All of it follows from one seed.
//
//   SimulationReport report = Simulate({.seed = 17});
//   report.wrong                       "" when every answer was right
//
// Between any two steps random events occur. READs are copied in pieces of 1, 8, 16 or 64 bytes, or
// whole, in any order, while the server and other clients run. Connections break, or are cut
// without a report. READs fail, or hang. The server is killed and restarted, empty. Clients end and
// come back. Clocks of clients are wrong by hours and run too fast or too slow. In a program with
// the hooks of index/layout/test_hooks.h clients also run between any two stores of the server.
//
// The checker requires that the history of each key is linearizable (tests/history/linearizability.h).
// Writes reported as unknown may have taken effect, once; those reported as not applied have not.
// Every operation must be answered, and soon after its deadline at the latest.

#ifndef OSPREY_TESTS_SIMULATION_SIMULATION_H_
#define OSPREY_TESTS_SIMULATION_SIMULATION_H_

#include <cstdint>
#include <string>

namespace osprey {

struct SimulationOptions {
  uint64_t seed = 1;
  int operations = 400;  // of all clients together
  bool durable = false;  // the server has a data directory
};

// Events counted in one run, or in many.
struct SimulationCounts {
  uint64_t operations = 0;
  uint64_t unknown = 0;
  uint64_t gets = 0;
  uint64_t torn = 0;
  uint64_t retries = 0;
  uint64_t stale_hints = 0;
  uint64_t rpc_gets = 0;
  uint64_t connects = 0;
  uint64_t server_starts = 0;
  uint64_t splits = 0;
  uint64_t merges = 0;
  uint64_t chained = 0;
  uint64_t expired = 0;
  uint64_t moved = 0;
  uint64_t evicted = 0;
  uint64_t scans = 0;
  uint64_t stalls = 0;
  uint64_t haunted_reads = 0;
  uint64_t at_once = 0;
  uint64_t awaited = 0;
  uint64_t replayed_reads = 0;
  uint64_t changed_pieces = 0;
  uint64_t held_frames = 0;
  uint64_t naps = 0;
  uint64_t devices_lost = 0;
  uint64_t broken = 0, cut = 0;               // connections
  uint64_t reads_failed = 0, reads_held = 0;  // connections whose READs failed or were held
  uint64_t clients_restarted = 0;
  // Of a server with a data directory.
  uint64_t failed_starts = 0, clocks_set_back = 0, checkpoints = 0, power_losses = 0,
           tails_lost = 0, values_in_pieces = 0, flushes = 0, writes_repeated = 0;
  // Operations that succeeded.
  uint64_t puts_done = 0, conditional_done = 0, deletes_done = 0, increments_done = 0;
  uint64_t appends_done = 0, expires_done = 0;
  uint64_t whole = 0, of_1 = 0, of_8 = 0, of_16 = 0,
           of_64 = 0;  // runs with READs in pieces of that length
  uint64_t histories = 0;
  uint64_t undecided = 0;

  void Add(const SimulationCounts& other);
  // For people.
  std::string ToString() const;
  // The events too rare in so many runs to prove anything; "": none.
  std::string Void(uint64_t runs, bool durable) const;
};

struct SimulationReport : SimulationCounts {
  std::string wrong;        // the error, for people
  const char* aim = "";     // plan.h
  uint64_t trace_hash = 0;  // of all answers and their times: the same for the same seed
};

SimulationReport Simulate(const SimulationOptions& options);

}  // namespace osprey

#endif  // OSPREY_TESTS_SIMULATION_SIMULATION_H_
