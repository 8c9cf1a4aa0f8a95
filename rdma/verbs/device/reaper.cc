#include "rdma/verbs/device/reaper.h"

#include <pthread.h>

#include <condition_variable>
#include <deque>
#include <mutex>
#include <utility>

#include "rdma/background_thread.h"

namespace osprey::rdma {

struct CmReaper::State {
  EventChannel channel;
  Destroy destroy;

  mutable std::mutex mutex;
  std::condition_variable changed;
  // Under the mutex.
  std::deque<rdma_cm_id*> ids;  // the first may be in destruction
  bool leaving = false;         // the owner is gone: end when there are no more ids
  bool left = false;            // the thread has ended and destroyed the channel
};

CmReaper::CmReaper(EventChannel channel, Destroy destroy, std::chrono::milliseconds end_max)
    : state_(std::make_shared<State>()), end_max_(end_max) {
  state_->channel = std::move(channel);
  state_->destroy = destroy;
}

CmReaper::~CmReaper() {
  if (!started_) {
    // No thread could be started, or none was needed.
    for (rdma_cm_id* const id : state_->ids) state_->destroy(id);
    return;
  }
  std::unique_lock<std::mutex> lock(state_->mutex);
  state_->leaving = true;
  state_->changed.notify_all();
  state_->changed.wait_for(lock, end_max_, [&] { return state_->left; });
}

rdma_event_channel* CmReaper::channel() const { return state_->channel.get(); }

size_t CmReaper::waiting() const {
  const std::lock_guard<std::mutex> lock(state_->mutex);
  return state_->ids.size();
}

void CmReaper::DestroyLater(CmId id) {
  if (id == nullptr) return;
  {
    const std::lock_guard<std::mutex> lock(state_->mutex);
    state_->ids.push_back(id.release());
    state_->changed.notify_all();
  }
  if (!started_) StartThread();
}

void CmReaper::StartThread() {
  auto state = std::make_unique<std::shared_ptr<State>>(state_);
  pthread_t thread;
  // When the system has no thread to give, the ids wait for the next one handed over.
  started_ = StartBackgroundThread("osprey-reaper", &Run, state.get(), thread);
  if (!started_) return;
  (void)state.release();  // owned by Run
  pthread_detach(thread);
}

void* CmReaper::Run(void* argument) {
  LowerPriority();
  const std::unique_ptr<std::shared_ptr<State>> owned(
      static_cast<std::shared_ptr<State>*>(argument));
  State& state = **owned;
  std::unique_lock<std::mutex> lock(state.mutex);
  while (true) {
    state.changed.wait(lock, [&] { return state.leaving || !state.ids.empty(); });
    if (state.ids.empty()) break;
    rdma_cm_id* const id = state.ids.front();
    lock.unlock();
    state.destroy(id);
    lock.lock();
    state.ids.pop_front();
  }
  // The channel has no other user any more. Closing it destroys the events that were never fetched.
  lock.unlock();
  state.channel.reset();
  lock.lock();
  state.left = true;
  state.changed.notify_all();
  return nullptr;
}

void CmReaper::DestroyCmId(rdma_cm_id* id) { (void)rdma_destroy_id(id); }

}  // namespace osprey::rdma
