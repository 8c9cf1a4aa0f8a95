// A checkpoint of the tables, while writes go on.
//
//   redo record ──> sessions ──> walk of each partition ──> Commit(end of the walk)
//
// The walk visits the keys in short holds of a partition's lock. A key that is present throughout is
// in the checkpoint. What changed meanwhile is in the log from the redo record on, and recovery
// takes it from there (recovery.h).
//
// A long value is copied without the lock, under a lease. If the key changed meanwhile, the log has
// the change, so the checkpoint leaves the key out.
//
// Thread rule: WriteCheckpoint runs on any thread that holds no lock of a partition. One checkpoint
// of a directory at a time.

#ifndef OSPREY_SERVER_DURABILITY_CHECKPOINT_H_
#define OSPREY_SERVER_DURABILITY_CHECKPOINT_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "index/writer/table.h"
#include "server/requests/sessions.h"
#include "server/requests/tables.h"
#include "server/wal/data_directory.h"
#include "server/wal/log.h"

namespace osprey::server {

struct CheckpointInput {
  // The first record whose effect the tables may lack, or an earlier first piece of a value that is
  // on its way. REQUIRES: each change of a table is appended to the log before the lock of its
  // partition is released.
  uint64_t redo_record = 0;
  // All sessions, with the results of at least the records before redo_record. Called once, on the
  // calling thread, without a lock. Empty: there are none.
  std::function<std::vector<SessionImage>()> sessions;
  // Ends the writing early once it is true. Null: never. Outlives the call.
  const std::atomic<bool>* stop = nullptr;
  // Called between steps, without a lock, to pace the writing. `bytes` were written since the last
  // call: some 64 KiB, or one long value; 0 while parts are synced and read back. Empty: no pause.
  std::function<void(uint64_t bytes)> pause;
};

struct CheckpointSize {
  uint64_t items = 0;  // a key that is written during the walk may be there twice
  uint64_t bytes = 0;  // of their keys and values
  // Why old files could not be removed. That fails no checkpoint; the next one tries again.
  absl::Status removal;
};

// The bytes of a checkpoint of such tables, about.
uint64_t CheckpointBytesOf(const index::TableStats& stats);

// Writes a checkpoint and makes it the current one. After an error the checkpoint before it still
// counts, and what was written is removed. If directory.uncertain() is true then, either may count,
// and the process has to end. Errors: CANCELLED (`stop`), those of Log and of FileSystem.
absl::StatusOr<CheckpointSize> WriteCheckpoint(wal::DataDirectory& directory, wal::Log& log,
                                               Tables& tables, const CheckpointInput& input);

}  // namespace osprey::server

#endif  // OSPREY_SERVER_DURABILITY_CHECKPOINT_H_
