#include "server/cluster/node/call_thread.h"

#include <cassert>

#include "rdma/background_thread.h"

namespace osprey::server {

absl::StatusOr<std::unique_ptr<CallThread>> CallThread::Start(const char* name,
                                                              std::function<void()> wake) {
  std::unique_ptr<CallThread> thread(new CallThread(std::move(wake)));
  void* (*const run)(void*) = [](void* self) -> void* {
    static_cast<CallThread*>(self)->Run();
    return nullptr;
  };
  thread->started_ = rdma::StartBackgroundThread(name, run, thread.get(), thread->thread_);
  if (thread->started_) return thread;
  return absl::ResourceExhaustedError(
      "cannot start a thread of the cluster; allow more threads (TasksMax=, ulimit -u)");
}

CallThread::~CallThread() {
  if (!started_) return;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    ends_ = true;
  }
  changed_.notify_one();
  pthread_join(thread_, nullptr);
}

void CallThread::Begin(std::function<void()> call) {
  assert(idle());
  is_busy_ = true;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    call_ = std::move(call);
  }
  changed_.notify_one();
}

bool CallThread::TakeDone() {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (!std::exchange(is_done_, false)) return false;
  is_busy_ = false;
  return true;
}

void CallThread::Run() {
  std::unique_lock<std::mutex> lock(mutex_);
  for (;;) {
    changed_.wait(lock, [this] { return ends_ || call_ != nullptr; });
    if (ends_) return;
    const std::function<void()> call = std::exchange(call_, nullptr);
    lock.unlock();
    call();
    lock.lock();
    is_done_ = true;
    wake_();
  }
}

}  // namespace osprey::server
