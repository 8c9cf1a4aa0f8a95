// The server and its clients, the engines that ship, in one process on the fake transport: virtual
// time, everything that can go wrong, and a judge. All of it follows from one seed.
//
//   SimulationReport report = Simulate({.seed = 17});
//   report.wrong                       "" when every answer was right
//
// What happens between any two steps of anybody is chance: READs are copied in pieces of 1, 8, 16
// or 64 bytes, or whole, in any order, and while one is copied the server and other clients go on;
// connections break, or are cut and nobody is told; READs fail, or hang; the server is killed and
// started again, empty; clients are ended and come back; clocks of clients are wrong by hours and
// run too fast or too slow. In a program with the hooks of index/test_hooks.h clients go on between
// any two stores of the server, too.
//
// Judged is: that the history of each key is linearizable (tests/linearizability.h), where writes
// that are said to be unknown may have happened, once, and those said to be not applied have not;
// that every operation is answered, and not long after its deadline.

#ifndef OSPREY_TESTS_SIMULATION_H_
#define OSPREY_TESTS_SIMULATION_H_

#include <cstdint>
#include <string>

namespace osprey {

struct SimulationOptions {
  uint64_t seed = 1;
  int operations = 400;  // of all clients together
};

// What happened in a run, or in many.
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
  uint64_t chained = 0;
  uint64_t expired = 0;
  uint64_t moved = 0;
  uint64_t evicted = 0;
  uint64_t scans = 0;
  uint64_t stalls = 0;
  uint64_t haunted_reads = 0;
  uint64_t at_once = 0;
  uint64_t replayed_reads = 0;
  uint64_t changed_pieces = 0;
  uint64_t held_frames = 0;
  uint64_t naps = 0;
  uint64_t devices_lost = 0;
  uint64_t broken = 0, cut = 0;               // connections
  uint64_t reads_failed = 0, reads_held = 0;  // connections whose READs were
  uint64_t clients_restarted = 0;
  // Operations that did what they were to.
  uint64_t puts_done = 0, conditional_done = 0, deletes_done = 0, increments_done = 0;
  uint64_t appends_done = 0, expires_done = 0;
  uint64_t whole = 0, of_1 = 0, of_8 = 0, of_16 = 0, of_64 = 0;  // runs whose READs come so
  uint64_t histories = 0;
  uint64_t undecided = 0;

  void Add(const SimulationCounts& other);
  // For people.
  std::string ToString() const;
  // What has not happened often enough in so many runs for them to show anything; "": nothing.
  std::string Void(uint64_t runs) const;
};

struct SimulationReport : SimulationCounts {
  std::string wrong;        // what is wrong, for people
  const char* aim = "";     // simulation_plan.h
  uint64_t trace_hash = 0;  // of all answers and their times: the same for the same seed
};

SimulationReport Simulate(const SimulationOptions& options);

}  // namespace osprey

#endif  // OSPREY_TESTS_SIMULATION_H_
