// What a run of the simulation is like: everything that is drawn from its seed before it begins.
//
// Most seeds have an aim: keys, sizes, operations and timing in which one kind of mistake would
// show soon, where the mixture of everything rarely brings the circumstances together ("swarm
// testing", Groce et al., 2012). Which aim a seed has follows from the seed.

#ifndef OSPREY_TESTS_SIMULATION_PLAN_H_
#define OSPREY_TESTS_SIMULATION_PLAN_H_

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "tests/dice.h"

namespace osprey {

enum class Aim {
  kMixture,   // some of everything
  kOneKey,    // one or two keys out of line whose items take each other's places
  kTwins,     // two keys that only their items tell apart, and readers slower than writers
  kWindow,    // keys of one window that become inline items and items by turns
  kChain,     // keys of two neighbouring lines, more than those hold
  kMiddle,    // one long chain of which lines are emptied one by one
  kGrowth,    // segments split while READs of them are under way
  kExpiry,    // the clock runs between any two steps, and keys live as long as a GET takes
  kMoves,     // compaction moves items all the time, a few bytes a step
  kPieces,    // values are READ in pieces
  kEviction,  // far more than memory holds
  kScans,     // scans of a crowded table
  kLives,     // the server is killed; READs are carried on in the memory of its next life
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
           scan = 0, touch = 0, burst = 0;
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
  uint32_t piece_bytes = 0;  // READs are copied in such pieces; 0: whole
  bool shuffle_pieces = false;
  uint32_t read_bytes_max = 1 << 20;  // the device's
  bool has_views = false;             // clients see the region where it stands, as over shm
  uint32_t pieces_per_10k = 0;        // before so many pieces others go on
  uint32_t stores_per_10k = 0;        // likewise before stores into the region …
  uint32_t first_words_per_10k = 0;   // … and before those of a record's first word
  uint32_t stalls_per_10k = 0;        // before so many pieces others go on for long
  uint32_t stall_turns_max = 200;
  uint32_t replays_per_10k = 0;       // of so many READs pieces are copied again
  uint64_t long_nest_percent = 25;    // others go on for whole operations then
  uint64_t nested_ns_max = 1;         // how far time goes on in each turn of others
  uint64_t whole_read_bytes_max = 0;  // longer items are READ in pieces; 0: as shipped

  // --- The server.
  uint32_t partitions = 1;
  uint32_t pollers = 1;
  uint64_t region_bytes = 256 << 10;  // of each partition
  uint32_t split_percent = 0;
  int64_t grace_ms_max = 20;
  bool moves = false;        // compaction goes on whether or not room is wanted …
  uint64_t moves_bytes = 0;  // … so many bytes a step; 0: as shipped
  bool evicts = false;
  bool needs_key = false;  // clients authenticate
  bool seed_of_each_life = false;
  uint64_t server_percent = 50;         // of steps: a turn of the server
  uint64_t nested_server_percent = 60;  // … in the middle of somebody's step

  // --- Clients.
  int clients = 2;
  int depth_max = 6;
  uint32_t slow_factor = 1;       // client 0 has so many times fewer turns than others
  bool first_reads_only = false;  // client 0: it needs no answer of the server to go on
  uint64_t cache_percent = 80;    // of clients that remember slots
  uint64_t backoff_us = 10'000;
  uint64_t eager_percent = 50;  // of clients that send more than 64 B in the frame

  // --- What goes wrong.
  uint32_t faults_per_mille = 0;
  bool server_dies = false;
  uint32_t deaths_percent = 0;  // of what goes wrong; 0: as often as anything else
  uint64_t back_ms_max = 300;   // until it is there again
  bool clients_die = false;
  bool haunts = false;  // fake::Network::Haunt

  // --- What is done.
  std::vector<std::string> keys;
  uint64_t hot_keys = 4;        // half of all operations go to these, the first
  uint32_t group = 0;           // keys in a row that are deleted, or put, together; 0: no groups
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
  // How time passes between steps, in nanoseconds.
  uint64_t step_ns_max = 3000;
  uint64_t rare_step_ns_max = 1'000'000;  // of one step in ten
  uint64_t jump_ns_max = 20'000'000;      // of one step in 200
};

Plan MakePlan(Aim aim, Dice& dice);

}  // namespace osprey

#endif  // OSPREY_TESTS_SIMULATION_PLAN_H_
