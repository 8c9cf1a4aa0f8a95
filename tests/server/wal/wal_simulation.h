// Many lives of one data directory on the simulated disk. Each life recovers, compares what it finds
// with what was appended, goes on, takes checkpoints, and ends: by itself, by kill, or by a loss of
// power, at any step, recovery and checkpoint included.
//
// What must hold at each recovery:
//   - it succeeds, unless the disk failed or was damaged
//   - the log is a prefix of what was appended, in the order of record numbers
//   - every record that counted as synced is there; after a kill every written one
//   - the state is that of this prefix, by checkpoint and log together
//   - after damage to one bit: an error, or all that a later record says was synced

#ifndef OSPREY_TESTS_SERVER_WAL_WAL_SIMULATION_H_
#define OSPREY_TESTS_SERVER_WAL_WAL_SIMULATION_H_

#include <cstdint>
#include <string>

namespace osprey::server::wal {

struct SimulationCounts {
  uint64_t lives = 0;
  uint64_t records = 0;      // appended
  uint64_t segments = 0;     // the highest number
  uint64_t checkpoints = 0;  // committed
  uint64_t crashes = 0;      // of the machine
  uint64_t kills = 0;
  uint64_t cuts = 0;     // recoveries that dropped appended records
  uint64_t damages = 0;  // bits flipped
  uint64_t found = 0;    // of these, by an error
  uint64_t faults = 0;   // lives with a failed write or sync
};

struct SimulationOptions {
  uint64_t seed = 1;
  uint32_t lives = 12;
  uint32_t steps_max = 120;  // of a life
};

// What was wrong; empty: nothing.
std::string SimulateWal(const SimulationOptions& options, SimulationCounts& counts);

}  // namespace osprey::server::wal

#endif  // OSPREY_TESTS_SERVER_WAL_WAL_SIMULATION_H_
