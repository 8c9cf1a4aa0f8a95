#include "server/wal/sync_thread.h"

#include <algorithm>
#include <utility>

namespace osprey::server::wal {

SyncThread::SyncThread(Log& log, Clock::duration delay)
    : log_(log), delay_(delay), thread_([this] { Run(); }) {}

SyncThread::~SyncThread() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    stopping_ = true;
  }
  wake_.notify_one();
  thread_.join();
}

void SyncThread::Kick() {
  const Clock::time_point now = Clock::now();
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (kicked_at_ != Clock::time_point::max()) return;
    kicked_at_ = now;
  }
  wake_.notify_one();
}

SyncThread::Clock::time_point SyncThread::oldest_unsynced() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return std::min(syncing_at_, kicked_at_);
}

void SyncThread::Run() {
  std::unique_lock<std::mutex> lock(mutex_);
  while (true) {
    wake_.wait(lock, [this] { return stopping_ || kicked_at_ != Clock::time_point::max(); });
    if (kicked_at_ == Clock::time_point::max()) return;
    if (delay_ > Clock::duration::zero())
      wake_.wait_until(lock, kicked_at_ + delay_, [this] { return stopping_; });
    syncing_at_ = std::exchange(kicked_at_, Clock::time_point::max());
    lock.unlock();
    // An error is the log's: status() has it, and `progressed` was called.
    const bool failed = !log_.Sync().ok();
    lock.lock();
    if (failed) return;
    syncing_at_ = Clock::time_point::max();
  }
}

}  // namespace osprey::server::wal
