// The data directory of a running server: loads the tables from it, logs their changes, and writes
// checkpoints.
//
//   Open    locks and reads the directory; says how the tables are to be made
//   Load    fills the tables, and starts the log
//   Commit  before each reply (WriteLog)
//   End     after the last one: a clean end
//
// A thread of its own keeps the marks ahead of the clock and of the versions. It also watches the
// disk's space, and writes a checkpoint when the log has become long.
//
// Thread rule: Open, Load and End on the thread of the server's start and end; WriteLog's methods on
// any threads in between.

#ifndef OSPREY_SERVER_DURABILITY_DURABILITY_H_
#define OSPREY_SERVER_DURABILITY_DURABILITY_H_

#include <pthread.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "absl/types/optional.h"
#include "server/durability/change_log.h"
#include "server/durability/durability_mode.h"
#include "server/durability/recovery.h"
#include "server/requests/sessions.h"
#include "server/requests/tables.h"
#include "server/requests/write_log.h"
#include "server/stats/durability_stats.h"
#include "server/wal/data_directory.h"
#include "server/wal/log.h"
#include "server/wal/sync_thread.h"

namespace osprey::server {

struct DurabilityOptions {
  DurabilityMode mode = DurabilityMode::kAsync;
  absl::Duration lag = absl::Milliseconds(100);
  uint64_t log_memory = 64 << 20;  // of changes that are not written yet
  // A checkpoint is due when the log since the last one has so many bytes, and as many as the data.
  uint64_t checkpoint_log_bytes = uint64_t{2} << 30;
  uint64_t segment_bytes = 256 << 20;
  // The clock may have gone back by so much since the last life.
  absl::Duration clock_jump_max = absl::Hours(24);
  std::function<uint64_t()> random;  // 64 random bits, not 0; any thread
  // Log lines for people; any thread.
  std::function<void(absl::string_view)> log;
};

class Durability : public WriteLog {
 public:
  // Locks `directory`, which must exist, and creates the files of a new one for so many partitions.
  // Errors: those of wal::OpenPosixFileSystem and wal::DataDirectory::Open, with the path.
  static absl::StatusOr<std::unique_ptr<Durability>> Open(const std::string& directory,
                                                          uint32_t partitions,
                                                          DurabilityOptions options);
  // Ends without a clean end, unless End was called.
  ~Durability() override;

  // --- How the tables are to be made.
  uint32_t partitions() const { return directory_->format().shards; }
  uint64_t hash_seed() const { return directory_->format().hash_seed; }
  // 64 bits of the directory's id, not 0.
  uint64_t data_id() const;
  // The last version that counts as used, as CURRENT says; 0: it has none yet.
  uint64_t last_version() const { return directory_->current().header.version_ceiling; }
  std::vector<PartitionChanges*> changes() const;

  // Fills `tables`, which are empty, were made as above, and outlive this. Their clock stands still
  // at absl::UnixEpoch() meanwhile. Then the log is started, and all that was loaded is durable.
  // Errors: those of Recover and of wal::StartLog; FAILED_PRECONDITION (the clock went back).
  absl::StatusOr<Recovered> Load(Tables& tables, const RecoveryOptions& options);
  // After Load: the earliest time that the server's clock may begin with.
  absl::Time clock_start() const { return clock_start_; }

  // Starts the thread. `now` is the tables' clock, which runs from now on. `images` returns the
  // sessions of all engines; it may take a moment, and returns none once they end.
  using Images = std::function<absl::optional<std::vector<SessionImage>>()>;
  absl::Status Start(std::function<absl::Time()> now, Images images);

  bool AwaitsSync() const override { return options_.mode == DurabilityMode::kSync; }
  absl::Status Commit() override;
  // A session exists, or has ended. Durable with the next Commit.
  void SessionBegun(uint64_t session);
  void SessionEnded(uint64_t session);

  // Stops the thread, and ends the log with the exact time. REQUIRES: no engine is left.
  absl::Status End();

  // After Load; any thread. It waits for no disk.
  DurabilityStats stats() const;

 private:
  Durability(std::unique_ptr<wal::FileSystem> files, std::unique_ptr<wal::DataDirectory> directory,
             DurabilityOptions options);

  absl::Status StartLog(const wal::LogEnd& end);
  absl::Status CheckClock(const wal::LogEnd& end);
  absl::Status CommitSynced();
  absl::Status CommitWritten();
  bool IsCeilingNear() const;
  absl::Status RaiseCeiling();
  absl::Status Refusal() const override;
  void AppendSession(wal::EntryKind kind, uint64_t session);
  void Fail(absl::Status status);
  void Run();
  void StopThread();
  void RunDuties();
  void WatchSpace();
  void MeasureLog();
  bool IsClockAhead() const;
  void KeepTimeMark();
  bool IsCheckpointDue() const;
  void WriteCheckpoint();

  const std::unique_ptr<wal::FileSystem> files_;
  const std::unique_ptr<wal::DataDirectory> directory_;
  const DurabilityOptions options_;
  std::vector<std::unique_ptr<ChangeLog>> changes_;
  std::unique_ptr<wal::Log> log_;
  std::unique_ptr<wal::SyncThread> sync_thread_;  // async
  Tables* tables_ = nullptr;
  absl::Time clock_start_;
  std::atomic<uint64_t> ceiling_{0};  // of versions; synced

  // Of the thread.
  std::function<absl::Time()> now_;
  Images images_;
  pthread_t thread_ = {};
  bool started_ = false;
  std::mutex mutex_;
  std::condition_variable wake_;
  std::atomic<bool> stopping_{false};
  std::atomic<bool> checkpoint_ends_{false};  // early
  uint64_t time_mark_ns_ = 0;
  std::chrono::steady_clock::time_point duties_at_;
  std::chrono::steady_clock::time_point measured_at_;  // the log's files
  // bytes_written() at the last checkpoint; before this life: less than 0, modulo 2^64.
  uint64_t log_bytes_at_checkpoint_ = 0;
  uint64_t data_bytes_ = 0;  // of the last load or checkpoint

  std::atomic<bool> failed_{false};
  mutable std::mutex error_mutex_;
  absl::Status error_;

  mutable std::mutex stats_mutex_;
  DurabilityStats stats_;  // what is not counted elsewhere
};

}  // namespace osprey::server

#endif  // OSPREY_SERVER_DURABILITY_DURABILITY_H_
