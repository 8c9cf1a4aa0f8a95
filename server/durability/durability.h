// The data directory of a running server: loads the tables from it, logs their changes, and writes
// checkpoints.
//
//   Open    locks and reads the directory; says how the tables are to be made
//   Load    fills the tables, and starts the log
//   Commit  before each reply (WriteLog)
//   End     after the last one: a clean end
//
// A thread of its own (duty_thread.h) writes checkpoints, and does what else time brings about.
//
// Thread rule: Open, Load and End on the thread of the server's start and end; WriteLog's methods on
// any threads in between.

#ifndef OSPREY_SERVER_DURABILITY_DURABILITY_H_
#define OSPREY_SERVER_DURABILITY_DURABILITY_H_

#include <atomic>
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
#include "server/durability/change_log.h"
#include "server/durability/durability_mode.h"
#include "server/durability/durability_options.h"
#include "server/durability/duty_thread.h"
#include "server/durability/recovery.h"
#include "server/durability/upload_log.h"
#include "server/requests/sessions.h"
#include "server/requests/tables.h"
#include "server/requests/write_log.h"
#include "server/stats/durability_stats.h"
#include "server/wal/data_directory.h"
#include "server/wal/log.h"
#include "server/wal/sync_thread.h"

namespace osprey::server {

class Durability : public WriteLog {
 public:
  // Locks `directory`, which must exist, and creates the files of a new one for so many partitions.
  // Errors: those of wal::OpenPosixFileSystem and wal::DataDirectory::Open, with the path.
  static absl::StatusOr<std::unique_ptr<Durability>> Open(const std::string& directory,
                                                          uint32_t partitions,
                                                          DurabilityOptions options);
  // Likewise of the directory that `files` is.
  static absl::StatusOr<std::unique_ptr<Durability>> Open(std::shared_ptr<wal::FileSystem> files,
                                                          uint32_t partitions,
                                                          DurabilityOptions options);
  // Ends without a clean end, unless End was called.
  ~Durability() override = default;

  // --- How the tables are to be made.
  uint32_t partitions() const { return directory_->format().shards; }
  uint64_t hash_seed() const { return directory_->format().hash_seed; }
  // 64 bits of the directory's id, not 0.
  uint64_t data_id() const;
  // The last version that counts as used, as CURRENT says; 0: it has none yet.
  uint64_t last_version() const { return directory_->current().header.version_ceiling; }
  std::vector<PartitionChanges*> changes() const;

  // What Load reads, for a log line: "checkpoint 3 and the log from record 7, 12.3 MB". Empty: nothing.
  std::string DescribeLoad() const;

  // Fills `tables`, which are empty, were made as above, and outlive this. Their clock stands still
  // at absl::UnixEpoch() meanwhile. Then the log is started, and all that was loaded is durable.
  // Errors: those of Recover and of wal::StartLog; FAILED_PRECONDITION (the clock went back).
  absl::StatusOr<Recovered> Load(Tables& tables, const RecoveryOptions& options);
  // After Load: the earliest time that the server's clock may begin with.
  absl::Time clock_start() const { return clock_start_; }

  // Starts the thread. `now` is the tables' clock, which runs from now on. `images` returns the
  // sessions of all engines; it may take a moment, and returns none once they end.
  absl::Status Start(std::function<absl::Time()> now, DutyThread::Images images);

  bool AwaitsSync() const override { return options_.mode == DurabilityMode::kSync; }
  absl::StatusOr<std::unique_ptr<ValueUpload>> BeginUpload(uint32_t, absl::string_view,
                                                           uint64_t value_bytes) override {
    return uploads_.Begin(value_bytes);
  }
  absl::Status Commit() override;
  // A session exists, or has ended. Durable with the next Commit.
  void SessionBegun(uint64_t session);
  void SessionEnded(uint64_t session);

  // Stops the thread, and ends the log with the exact time. REQUIRES: no engine is left.
  absl::Status End();

  // After Load; any thread. It waits for no disk.
  DurabilityStats stats() const;

  // After Start, where options have checkpoint_step: what the thread does every 100 ms.
  void RunDuties() { duties_->RunOnce(); }
  // Null: Load did not come so far.
  wal::Log* log() { return log_.get(); }

 private:
  Durability(std::shared_ptr<wal::FileSystem> files, std::unique_ptr<wal::DataDirectory> directory,
             DurabilityOptions options);

  absl::Status StartLog(const wal::LogEnd& end);
  absl::Status CheckClock(const wal::LogEnd& end);
  absl::Status CommitSynced();
  absl::Status CommitWritten();
  bool IsCeilingNear() const;
  absl::Status RaiseCeiling();
  absl::Status Refusal() const override;
  uint64_t OldestIncomplete() const;
  void AppendSession(wal::EntryKind kind, uint64_t session);
  void Fail(absl::Status status);

  const std::shared_ptr<wal::FileSystem> files_;
  const std::unique_ptr<wal::DataDirectory> directory_;
  const DurabilityOptions options_;
  std::vector<std::unique_ptr<ChangeLog>> changes_;
  std::unique_ptr<wal::Log> log_;
  std::unique_ptr<wal::SyncThread> sync_thread_;  // null: nothing has threads
  UploadLog uploads_;
  std::atomic<uint64_t> expires_soon_ns_{0};  // ChangeLog::Start
  Tables* tables_ = nullptr;
  absl::Time clock_start_;
  std::atomic<uint64_t> late_commits_{0};

  std::mutex ceiling_mutex_;
  std::atomic<uint64_t> ceiling_{0};  // of versions; synced

  std::atomic<bool> failed_{false};
  mutable std::mutex error_mutex_;
  absl::Status error_;

  std::unique_ptr<DutyThread> duties_;  // uses the others
};

}  // namespace osprey::server

#endif  // OSPREY_SERVER_DURABILITY_DURABILITY_H_
