// What a server with a data directory (--data-dir) tells of its log, its checkpoints and its start.

#ifndef OSPREY_SERVER_STATS_DURABILITY_STATS_H_
#define OSPREY_SERVER_STATS_DURABILITY_STATS_H_

#include <cstdint>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace osprey::server {

// Counts are since the server started.
struct DurabilityStats {
  absl::string_view mode;  // --durability; of static storage

  // The log.
  absl::Duration
      log_lag;  // since the oldest record that is not synced was written; 0: there is none
  uint64_t log_unsynced_bytes = 0;  // written and not synced
  uint64_t log_syncs = 0;
  uint64_t log_entries = 0;  // changes
  uint64_t log_written_bytes = 0;
  uint64_t log_late_commits = 0;  // waited, since the disk was further behind than --durability-lag
  uint64_t log_bytes = 0;         // of its files; up to a second old

  // The disk.
  uint64_t disk_free_bytes = 0;
  uint64_t disk_needed_bytes = 0;  // less is refused: the log and the next checkpoint must fit
  bool disk_full = false;          // writes are refused

  // Checkpoints. What was stopped by the server's end counts in neither number.
  uint64_t checkpoints = 0;
  uint64_t checkpoint_failures = 0;
  uint64_t checkpoint_bytes = 0;  // of the last one's keys and values; 0: there was none
  absl::Duration checkpoint_took;
  absl::Time checkpoint_at;  // when it was complete; UnixEpoch: there was none

  // The start.
  uint64_t loaded_keys = 0;
  uint64_t loaded_bytes = 0;  // of keys and values
  absl::Duration load_took;

  uint64_t versions_left = 0;  // until no write is possible: of 2^48, those not reserved yet
};

}  // namespace osprey::server

#endif  // OSPREY_SERVER_STATS_DURABILITY_STATS_H_
