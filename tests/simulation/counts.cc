#include "absl/strings/str_cat.h"
#include "tests/simulation/simulation.h"

namespace osprey {
namespace {

struct Field {
  const char* name;
  uint64_t SimulationCounts::*count;
  uint64_t per_100_runs_min;
  uint64_t per_100_durable_runs_min = 0;
};

constexpr Field kFields[] = {
    {"operations", &SimulationCounts::operations, 10'000},
    {"writes unknown", &SimulationCounts::unknown, 10},
    {"GETs", &SimulationCounts::gets, 1000},
    {"torn READs", &SimulationCounts::torn, 100},
    {"retries", &SimulationCounts::retries, 100},
    {"stale hints", &SimulationCounts::stale_hints, 100},
    {"GETs by message", &SimulationCounts::rpc_gets, 10},
    {"connections", &SimulationCounts::connects, 200},
    {"lives of the server", &SimulationCounts::server_starts, 105},
    {"splits", &SimulationCounts::splits, 100},
    {"merges", &SimulationCounts::merges, 50},
    {"chained keys", &SimulationCounts::chained, 10},
    {"expired keys", &SimulationCounts::expired, 100},
    {"items moved", &SimulationCounts::moved, 100},
    {"evicted keys", &SimulationCounts::evicted, 100},
    {"scans", &SimulationCounts::scans, 100},
    {"GETs answered at once", &SimulationCounts::at_once, 20},
    {"GETs answered while READs were awaited", &SimulationCounts::awaited, 500},
    {"READs stalled", &SimulationCounts::stalls, 10},
    {"READs of a later life's memory", &SimulationCounts::haunted_reads, 1},
    {"READs of which pieces were copied twice", &SimulationCounts::replayed_reads, 100},
    {"of these pieces changed", &SimulationCounts::changed_pieces, 10},
    {"frames delayed", &SimulationCounts::held_frames, 5},
    {"times that the server was stopped", &SimulationCounts::naps, 10},
    {"devices lost", &SimulationCounts::devices_lost, 2},
    {"connections broken", &SimulationCounts::broken, 15},
    {"cut", &SimulationCounts::cut, 5},
    {"whose next READs failed", &SimulationCounts::reads_failed, 5},
    {"whose READs were held up", &SimulationCounts::reads_held, 5},
    {"clients restarted", &SimulationCounts::clients_restarted, 1},
    {"PUTs done", &SimulationCounts::puts_done, 5000},
    {"conditional writes", &SimulationCounts::conditional_done, 200},
    {"deletions", &SimulationCounts::deletes_done, 1500},
    {"increments", &SimulationCounts::increments_done, 50},
    {"appends", &SimulationCounts::appends_done, 200},
    {"expiries set or taken away", &SimulationCounts::expires_done, 100},
    {"runs with READs that are whole", &SimulationCounts::whole, 5},
    {"in bytes", &SimulationCounts::of_1, 5},
    {"in pieces of 8 B", &SimulationCounts::of_8, 5},
    {"of 16 B", &SimulationCounts::of_16, 5},
    {"of 64 B", &SimulationCounts::of_64, 5},
    {"starts that failed", &SimulationCounts::failed_starts, 0, 5},
    {"clocks set back", &SimulationCounts::clocks_set_back, 0, 20},
    {"checkpoints", &SimulationCounts::checkpoints, 0, 50},
    {"losses of power", &SimulationCounts::power_losses, 0, 50},
    {"tails lost", &SimulationCounts::tails_lost, 0, 10},
    {"values in pieces", &SimulationCounts::values_in_pieces, 0, 50},
    {"writes repeated", &SimulationCounts::writes_repeated, 0, 5},
    {"flushes", &SimulationCounts::flushes, 0, 50},
    {"histories", &SimulationCounts::histories, 100, 100},
    {"histories undecided", &SimulationCounts::undecided, 0},
};
constexpr uint64_t kUndecidedPerMillionMax = 2000;

}  // namespace

void SimulationCounts::Add(const SimulationCounts& other) {
  for (const Field& field : kFields) this->*field.count += other.*field.count;
}

std::string SimulationCounts::ToString() const {
  std::string text;
  for (const Field& field : kFields)
    absl::StrAppend(&text, text.empty() ? "" : ", ", this->*field.count, " ", field.name);
  return text;
}

std::string SimulationCounts::Void(uint64_t runs, bool durable) const {
  std::string text;
  for (const Field& field : kFields) {
    const uint64_t least = durable ? field.per_100_durable_runs_min : field.per_100_runs_min;
    if (this->*field.count * 100 < least * runs)
      absl::StrAppend(&text, text.empty() ? "" : ", ", "only ", this->*field.count, " ",
                      field.name);
  }
  if (undecided * 1'000'000 > histories * kUndecidedPerMillionMax + 1'000'000)
    absl::StrAppend(&text, text.empty() ? "" : ", ", undecided, " histories undecided");
  return text;
}

}  // namespace osprey
