// Makes the tables and sessions of an earlier life again, from a data directory.
//
//   pass 1   the log: the last put or deletion of each key
//   load     the checkpoint, on all cores, without the keys that the log puts or deletes
//   pass 2   the log again, in order: the last puts, expiries, results of clients
//
// Only what a key was at the end is put. Hence the tables never hold more than they held in the
// earlier life. If memory is short nevertheless, since it has gaps between long values, the tables are
// cleared and filled again, longest values first. Then a gap is at most what rounding takes, and a
// full table loads into the same memory.
//
//   absl::StatusOr<Recovered> recovered = Recover(directory, tables, options);
//   absl::StatusOr<std::unique_ptr<wal::Log>> log = wal::StartLog(directory, recovered->end, …);
//
// Time stands still meanwhile: the clock of the tables returns absl::UnixEpoch(), so no key expires.
// Keys whose time has passed are loaded with their expiry, and sweeps end them later.
//
// Thread rule: Recover runs on one thread, before any other uses the tables.

#ifndef OSPREY_SERVER_DURABILITY_RECOVERY_H_
#define OSPREY_SERVER_DURABILITY_RECOVERY_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "server/requests/sessions.h"
#include "server/requests/tables.h"
#include "server/wal/data_directory.h"
#include "server/wal/replay.h"

namespace osprey::server {

struct RecoveryProgress {
  uint64_t items = 0;  // keys put since the tables were empty; twice if the log puts one twice
  uint64_t bytes = 0;  // of files, read so far
  uint64_t bytes_total =
      0;  // to read; 0 during pass 1, when it is unknown; more if all begins again
};

struct RecoveryOptions {
  uint32_t threads = 1;  // that read the checkpoint and long values, the calling one included
  // The new life's clock starts here or later: what has expired by then is not put.
  absl::Time now = absl::UnixEpoch();
  uint64_t memory_bytes = 0;  // kvserver --memory, for the error of memory that is too small
  // Writes a size as the flag takes it. Empty: its bytes in digits.
  std::function<std::string(uint64_t bytes)> format_size;
  // Called at most every 100 ms and once per reading of the checkpoint or the log. On any of the
  // threads, one call at a time. Empty: none.
  std::function<void(const RecoveryProgress&)> progress;
  // Takes a line if the tables are cleared and filled again. Called on the calling thread. Empty: none.
  std::function<void(absl::string_view)> log;
  // Ends the loading soon once it is true. Null: never. Outlives the call.
  const std::atomic<bool>* stop = nullptr;
};

struct Recovered {
  wal::LogEnd end;                     // for wal::StartLog
  std::vector<SessionImage> sessions;  // by ascending id
  uint64_t items = 0;                  // keys that the tables hold now
  uint64_t bytes = 0;                  // of their keys and values
  // Keys evicted because memory was short. The log has no entry of that, so the caller writes a
  // checkpoint before it answers a request.
  uint64_t evictions = 0;
  // The highest version of what the directory has: the tables have to give out higher ones only.
  uint64_t version_max = 0;
  absl::Duration took;
};

// Server time in ns that the clock of the life that wrote this log did not pass.
uint64_t ClockAtEnd(const wal::LogEnd& end);

// Reads the directory and changes nothing on the disk. Keys that had expired by ClockAtEnd, or by `now`, are not put. After an error the caller discards `tables`.
// `tables` are empty. Errors: DATA_LOSS (damage; names file and offset); FAILED_PRECONDITION
// (entries of a kind that this program never writes); RESOURCE_EXHAUSTED (memory is too small; says
// which --memory will do); CANCELLED (`stop`); those of FileSystem.
absl::StatusOr<Recovered> Recover(const wal::DataDirectory& directory, Tables& tables,
                                  const RecoveryOptions& options);

}  // namespace osprey::server

#endif  // OSPREY_SERVER_DURABILITY_RECOVERY_H_
