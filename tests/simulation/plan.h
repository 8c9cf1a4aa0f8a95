// The parameters of a simulation run, all drawn from its seed before it begins.
//
// Most seeds have an aim: keys, sizes, operations and timing that show one kind of mistake soon. A
// mixture of everything rarely combines these circumstances ("swarm testing", Groce et al., 2012).
// The seed determines the aim.

#ifndef OSPREY_TESTS_SIMULATION_PLAN_H_
#define OSPREY_TESTS_SIMULATION_PLAN_H_

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/split_mix64.h"

namespace osprey {

enum class Aim {
  kMixture,   // some of everything
  kOneKey,    // one or two keys whose items reuse each other's space
  kTwins,     // two keys that differ only in their items, and readers slower than writers
  kWindow,    // keys of one window that alternate between inline and item
  kChain,     // more keys of two neighbouring lines than fit
  kMiddle,    // one long chain whose lines are emptied one by one
  kGrowth,    // segments split while READs of them are under way
  kExpiry,    // the clock runs between any two steps, and keys live as long as a GET takes
  kMoves,     // compaction moves items all the time, a few bytes a step
  kPieces,    // values are READ in pieces
  kEviction,  // far more keys than fit in memory
  kScans,     // scans of a crowded table
  kLives,     // the server is killed; READs continue in the memory of its next incarnation
  kForgery,   // values that look like records of another place
  kRepeats,   // the same few values again and again
  kScanRace,  // keys move while a scan is between two of its READs
};
inline constexpr int kAims = 16;

const char* NameOf(Aim aim);
// Of every 20 seeds five are a mixture, and one has each of the aims.
Aim AimOf(uint64_t seed);

// The share of each operation, in any unit.
struct Mix {
  uint32_t get = 0, put = 0, put_if_absent = 0, put_if_version = 0, remove = 0,
           remove_if_version = 0, increment = 0, append = 0, expire = 0, get_into = 0, put_from = 0,
           scan = 0, touch = 0, burst = 0, flush = 0;
};
inline constexpr Mix kMixOfAll{.get = 48,
                               .put = 24,
                               .put_if_absent = 4,
                               .put_if_version = 5,
                               .remove = 8,
                               .remove_if_version = 2,
                               .increment = 3,
                               .append = 4,
                               .touch = 2};

struct Plan {
  Aim aim = Aim::kMixture;

  // --- READs and stores.
  uint32_t piece_bytes = 0;  // piece length of READs; 0: whole
  bool shuffle_pieces = false;
  uint32_t read_bytes_max = 1 << 20;  // the device's
  bool has_views = false;             // clients map the region, as over shm
  uint32_t pieces_per_10k = 0;        // rate of pieces before which others run
  uint32_t stores_per_10k = 0;        // the same for stores into the region …
  uint32_t first_words_per_10k = 0;   // … and for stores of a record's first word
  uint32_t stalls_per_10k = 0;        // rate of pieces before which others run for long
  uint32_t stall_turns_max = 200;
  uint32_t replays_per_10k = 0;       // rate of READs with pieces copied again
  uint64_t long_nest_percent = 25;    // then others run for whole operations
  uint64_t nested_ns_max = 1;         // how far time advances in each turn of others
  uint64_t whole_read_bytes_max = 0;  // longer items are READ in pieces; 0: as shipped

  // --- The server.
  uint32_t partitions = 1;
  uint32_t pollers = 1;
  uint64_t region_bytes = 256 << 10;  // of each partition
  uint32_t split_percent = 0;
  int64_t grace_ms_max = 20;
  bool merges = false;       // segments that have split merge again, and items take their space
  bool moves = false;        // compaction runs even if no space is needed …
  uint64_t moves_bytes = 0;  // … so many bytes a step; 0: as shipped
  bool evicts = false;
  bool needs_key = false;  // clients authenticate
  bool seed_of_each_life = false;
  uint64_t server_percent = 50;         // of steps: a turn of the server
  uint64_t nested_server_percent = 60;  // … within another party's step

  // … with a data directory (simulated_data.h).
  enum class Durability { kNone, kAsync, kSync };
  Durability durability = Durability::kNone;
  uint64_t checkpoint_log_bytes = 0;  // a checkpoint is due after so much log
  uint64_t power_percent = 50;        // of its ends: the machine lost power

  // --- Clients.
  int clients = 2;
  int depth_max = 6;
  uint32_t slow_factor = 1;       // client 0 has this factor fewer turns than others
  bool first_reads_only = false;  // client 0: it needs no answer of the server to continue
  uint64_t cache_percent = 80;    // of clients with a location cache
  uint64_t backoff_us = 10'000;
  uint64_t eager_percent = 50;  // of clients that send more than 64 B in the frame

  // --- Faults.
  uint32_t faults_per_mille = 0;
  bool server_dies = false;
  uint32_t deaths_percent = 0;  // of faults; 0: as often as other faults
  uint64_t back_ms_max = 300;   // until it is back
  bool clients_die = false;
  bool haunts = false;  // fake::Network::Haunt

  // --- Operations.
  std::vector<std::string> keys;
  uint64_t hot_keys = 4;        // half of all operations use these first keys
  uint32_t group = 0;           // consecutive keys that are deleted or put together; 0: no groups
  uint64_t group_percent = 5;   // of operations that begin with a group
  bool first_in_order = false;  // the first write of each key waits for the one before
  // Values have a length of one of these ranges.
  std::vector<std::pair<uint32_t, uint32_t>> value_bytes;
  uint32_t distinct_values = 0;  // 0: every value is new
  bool forges = false;
  Mix mix = kMixOfAll;
  uint32_t ttl_percent = 0;  // of writes that may have a time to live
  uint64_t ttl_us_max = 20000;
  uint64_t deadline_ms_min = 200;
  uint64_t deadline_ms_max = 900;
  // The time between steps, in nanoseconds.
  uint64_t step_ns_max = 3000;
  uint64_t rare_step_ns_max = 1'000'000;  // of one step in ten
  uint64_t jump_ns_max = 20'000'000;      // of one step in 200
};

Plan MakePlan(Aim aim, SplitMix64& rng);
// Gives the server a data directory, and more ends.
void MakeDurable(Plan& plan, SplitMix64& rng);

}  // namespace osprey

#endif  // OSPREY_TESTS_SIMULATION_PLAN_H_
