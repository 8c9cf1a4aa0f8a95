#include "server/cluster/beat/beat_thread.h"

#include "rdma/background_thread.h"
#include "rdma/lease_time.h"

namespace osprey {

absl::StatusOr<std::unique_ptr<BeatThread>> BeatThread::Start(std::vector<Beating> beats,
                                                              std::function<absl::Time()> now) {
  std::unique_ptr<BeatThread> thread(new BeatThread(std::move(beats), std::move(now)));
  void* (*const run)(void*) = [](void* self) -> void* {
    static_cast<BeatThread*>(self)->Run();
    return nullptr;
  };
  thread->started_ = rdma::StartBackgroundThread("osprey-beat", run, thread.get(), thread->thread_);
  if (thread->started_) return thread;
  return absl::ResourceExhaustedError(
      "cannot start the thread that beats for clients; allow more threads (TasksMax=, ulimit -u)");
}

BeatThread::~BeatThread() {
  if (!started_) return;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    stopping_ = true;
  }
  wake_.notify_one();
  pthread_join(thread_, nullptr);
}

void BeatThread::Run() {
  std::unique_lock<std::mutex> lock(mutex_);
  while (!stopping_) {
    // Not under the lock: the end waits for one round at most.
    lock.unlock();
    for (const Beating& one : beats_) {
      if (one.beat->Check(now_(), one.bounds())) one.beat->Store();
    }
    lock.lock();
    wake_.wait_for(lock, absl::ToChronoNanoseconds(kBeatInterval()), [this] { return stopping_; });
  }
}

}  // namespace osprey
