// What a data directory needs while its server runs, on a thread of its own.
//
//   every 100 ms ──> disk space ──> size of the log ──> time mark ──> checkpoint, if one is due
//                       ^                                                 │
//                       '──────────── between the checkpoint's steps ─────'
//
// The time mark is kept ahead of the clock while some key expires, so that the next life's clock does
// not begin behind this one's. Writes are refused before the disk is full. A checkpoint is due when
// the log has become long.
//
// Thread rule: the constructor, Start and Stop on the thread of the server's start and end; stats on
// any thread.

#ifndef OSPREY_SERVER_DURABILITY_DUTY_THREAD_H_
#define OSPREY_SERVER_DURABILITY_DUTY_THREAD_H_

#include <pthread.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "absl/types/optional.h"
#include "server/durability/durability_options.h"
#include "server/requests/sessions.h"
#include "server/requests/tables.h"
#include "server/stats/durability_stats.h"
#include "server/wal/data_directory.h"
#include "server/wal/log.h"

namespace osprey::server {

class DutyThread {
 public:
  // What it works on. All outlive it. The functions are called on the thread, and by Start.
  struct Data {
    wal::FileSystem& files;
    wal::DataDirectory& directory;
    wal::Log& log;
    Tables& tables;
    const DurabilityOptions& options;
    // Server time up to which a time mark in a later round may come too late for a key that expires.
    std::atomic<uint64_t>& expires_soon_ns;
    // ChangeLog::oldest_incomplete of all partitions, and UploadLog::oldest_incomplete.
    std::function<uint64_t()> oldest_incomplete;
    // UploadLog::TakeRefused: a shorter log would make room.
    std::function<bool()> space_wanted;
    // Writes are refused from now on, or no longer.
    std::function<void(bool refuse)> refuse_writes;
    // The server has to end.
    std::function<void(absl::Status)> fail;
  };
  using Images = std::function<absl::optional<std::vector<SessionImage>>()>;

  // `replayed_bytes` of log count as written since the last checkpoint. `stats` has what is known of
  // the start.
  DutyThread(Data data, uint64_t replayed_bytes, const DurabilityStats& stats);
  ~DutyThread() { Stop(); }
  DutyThread(const DutyThread&) = delete;
  DutyThread& operator=(const DutyThread&) = delete;

  // `now` and `images`: as for Durability::Start. The time mark is ahead of `now` on return. Errors:
  // RESOURCE_EXHAUSTED (no thread).
  absl::Status Start(std::function<absl::Time()> now, Images images);
  // One round. REQUIRES: Start was called, and there is no thread (DurabilityOptions).
  void RunOnce();
  // Ends a checkpoint early, and waits for the thread. A second call does nothing.
  void Stop();

  // The clock, in ns since 1970. REQUIRES: Start was called.
  uint64_t NowNs() const;
  // Of the disk, the files and the checkpoints, and what the constructor was given.
  DurabilityStats stats() const;

 private:
  void Run();
  void RunDuties();
  void WatchSpace();
  void MeasureLog();
  bool IsClockAhead() const;
  void KeepTimeMark();
  void NoteSpareIsUsed();
  bool IsCheckpointDue() const;
  void WriteCheckpoint();

  const Data data_;
  std::function<absl::Time()> now_;
  Images images_;
  pthread_t thread_ = {};
  bool started_ = false;
  std::mutex mutex_;
  std::condition_variable wake_;
  std::atomic<bool> stopping_{false};
  std::atomic<bool> checkpoint_ends_{false};  // early

  std::chrono::steady_clock::time_point duties_at_;
  std::chrono::steady_clock::time_point measured_at_;  // the log's files
  uint64_t time_mark_ns_ = 0;
  uint64_t data_bytes_ = 0;  // as a checkpoint has them
  // Log::bytes_written at the last checkpoint; before this life: less than 0, modulo 2^64.
  uint64_t log_bytes_at_checkpoint_;
  bool disk_full_ = false;
  bool spare_is_used_ = false;  // the time mark is not kept

  mutable std::mutex stats_mutex_;
  DurabilityStats stats_;
};

}  // namespace osprey::server

#endif  // OSPREY_SERVER_DURABILITY_DUTY_THREAD_H_
