#include "server/wal/sync_thread.h"

#include <algorithm>
#include <utility>

#include "rdma/background_thread.h"

namespace osprey::server::wal {

absl::StatusOr<std::unique_ptr<SyncThread>> SyncThread::Start(Log& log, Clock::duration delay) {
  std::unique_ptr<SyncThread> thread(new SyncThread(log, delay));
  void* (*const run)(void*) = [](void* self) -> void* {
    static_cast<SyncThread*>(self)->Run();
    return nullptr;
  };
  thread->started_ = rdma::StartBackgroundThread("osprey-sync", run, thread.get(), thread->thread_);
  if (thread->started_) return thread;
  return absl::ResourceExhaustedError(
      "cannot start the thread that syncs the log; allow more threads (TasksMax=, ulimit -u)");
}

SyncThread::~SyncThread() {
  if (!started_) return;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    stopping_ = true;
  }
  wake_.notify_one();
  pthread_join(thread_, nullptr);
}

SyncThread::Clock::time_point SyncThread::Kick() {
  Clock::time_point oldest;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    oldest = std::min(syncing_at_, kicked_at_);
    if (kicked_at_ != Clock::time_point::max()) return oldest;
    kicked_at_ = Clock::now();
    oldest = std::min(oldest, kicked_at_);
  }
  wake_.notify_one();
  return oldest;
}

void SyncThread::Hurry() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (kicked_at_ == Clock::time_point::max()) kicked_at_ = Clock::now();
    hurried_ = true;
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
      wake_.wait_until(lock, kicked_at_ + delay_, [this] { return stopping_ || hurried_; });
    hurried_ = false;
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
