// The thread that syncs the log, so that no poller waits for a disk.
//
//   log.Write(); sync_thread.Kick();        at the end of a turn that appended
//
// It calls Log::Sync at once (`delay` 0, or Hurry), or at latest `delay` after the first Kick that it
// has not served. Kicks during a Sync share the next one. Log's `progressed` is called on this thread.
//
// Thread rule: all methods may run on any threads.

#ifndef OSPREY_SERVER_WAL_SYNC_THREAD_H_
#define OSPREY_SERVER_WAL_SYNC_THREAD_H_

#include <pthread.h>

#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>

#include "absl/status/statusor.h"
#include "server/wal/log.h"

namespace osprey::server::wal {

class SyncThread {
 public:
  using Clock = std::chrono::steady_clock;

  // `log` outlives it. The thread blocks all signals. Errors: RESOURCE_EXHAUSTED (no thread).
  static absl::StatusOr<std::unique_ptr<SyncThread>> Start(Log& log, Clock::duration delay);
  // Syncs what was kicked, and ends.
  ~SyncThread();
  SyncThread(const SyncThread&) = delete;
  SyncThread& operator=(const SyncThread&) = delete;

  // Syncs within the delay what was written before the call. Returns oldest_unsynced().
  Clock::time_point Kick();
  // As Kick, without the delay.
  void Hurry();
  // The time of the oldest Kick whose records are not synced; time_point::max() if there is none.
  // With --durability=async, nothing is acknowledged while it is --durability-lag ago.
  Clock::time_point oldest_unsynced() const;

 private:
  SyncThread(Log& log, Clock::duration delay) : log_(log), delay_(delay) {}
  void Run();

  Log& log_;
  const Clock::duration delay_;
  mutable std::mutex mutex_;
  std::condition_variable wake_;
  bool stopping_ = false;
  bool hurried_ = false;  // the next Sync begins without the delay
  Clock::time_point kicked_at_ = Clock::time_point::max();   // max(): no kick waits
  Clock::time_point syncing_at_ = Clock::time_point::max();  // of the kicks that a Sync serves
  pthread_t thread_ = {};
  bool started_ = false;
};

}  // namespace osprey::server::wal

#endif  // OSPREY_SERVER_WAL_SYNC_THREAD_H_
