#include "rdma/shm/peer/slow_closer.h"

#include <pthread.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cassert>
#include <chrono>
#include <utility>

#include "rdma/background_thread.h"

namespace osprey::rdma {
namespace {

// A thread without work ends after this time. Clients that come and go then share one.
constexpr std::chrono::seconds kLaneIdle(1);

// There may be a thread for each of 64 users: their stacks must not use up the server's addresses.
constexpr size_t kStackBytes = 256 << 10;
// More packets than lie in a Unix socket: its buffer takes some 280 of the shortest.
constexpr int kPacketsDrainedMax = 512;

// An empty packet looks like the end, so that only the number of packets ends this.
void Drain(int socket) {
  char byte;
  for (int i = 0; i < kPacketsDrainedMax; ++i) {
    if (recv(socket, &byte, sizeof(byte), MSG_DONTWAIT) < 0) return;
  }
}

}  // namespace

std::shared_ptr<CloserLane> CloserLane::Create() {
  return std::shared_ptr<CloserLane>(new CloserLane);
}

CloserLane::~CloserLane() { assert(queue_.empty()); }

void CloserLane::Add(Task task) {
  const std::lock_guard<std::mutex> lock(mutex_);
  queue_.push_back(task);
  if (has_thread_) {
    changed_.notify_one();
    return;
  }
  auto keep = std::make_unique<std::shared_ptr<CloserLane>>(shared_from_this());
  pthread_t thread;
  has_thread_ =
      StartBackgroundThreadOnStack(kStackBytes, "osprey-closer", &Run, keep.get(), thread);
  self_ = has_thread_ ? nullptr : shared_from_this();
  if (!has_thread_) return;
  pthread_detach(thread);
  (void)keep.release();  // the thread's
}

size_t CloserLane::waiting() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return queue_.size();
}

void* CloserLane::Run(void* argument) {
  const std::unique_ptr<std::shared_ptr<CloserLane>> lane(
      static_cast<std::shared_ptr<CloserLane>*>(argument));
  (*lane)->CloseAll();
  return nullptr;
}

void CloserLane::CloseAll() {
  std::unique_lock<std::mutex> lock(mutex_);
  while (changed_.wait_for(lock, kLaneIdle, [&] { return !queue_.empty(); })) {
    const Task task = queue_.front();
    lock.unlock();
    if (task.is_drained) Drain(task.fd);
    close(task.fd);
    lock.lock();
    queue_.pop_front();  // here, so that waiting() counts what is being closed
  }
  has_thread_ = false;
}

std::shared_ptr<CloserLane> SlowCloser::LaneOf(uid_t uid) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto known = lanes_.find(uid);
  if (known != lanes_.end()) {
    if (std::shared_ptr<CloserLane> lane = known->second.lock(); lane != nullptr) return lane;
  }
  std::erase_if(lanes_, [](const auto& entry) { return entry.second.expired(); });
  std::weak_ptr<CloserLane>& place = lanes_.size() < kLanesMax ? lanes_[uid] : shared_;
  std::shared_ptr<CloserLane> lane = place.lock();
  if (lane == nullptr) place = lane = CloserLane::Create();
  return lane;
}

}  // namespace osprey::rdma
