// Completion queues of one Transport on one device, and the channel that wakes a sleeper.
//
// A completion queue needs room for everything that can complete into it at once. Otherwise it
// overruns, and all its queue pairs break. So room is reserved for each work request of a
// connection before its queue pair is made: when a queue pair breaks, every one of them completes.
// A device's queues have a largest size (32,767 on soft-RoCE), so queues are added as connections
// need them. Each is at least twice as large as the one before.

#ifndef OSPREY_RDMA_VERBS_COMPLETIONS_H_
#define OSPREY_RDMA_VERBS_COMPLETIONS_H_

#include <infiniband/verbs.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "rdma/verbs/device/device.h"
#include "rdma/verbs/device/objects.h"

namespace osprey::rdma {

// Completions fetched from a queue by one call.
inline constexpr int kCompletionsPerPoll = 16;

class CompletionQueue {
 public:
  static absl::StatusOr<std::unique_ptr<CompletionQueue>> Create(const VerbsDevice& device,
                                                                 ibv_comp_channel* channel,
                                                                 uint32_t entries);
  ~CompletionQueue();
  CompletionQueue(const CompletionQueue&) = delete;
  CompletionQueue& operator=(const CompletionQueue&) = delete;

  ibv_cq* get() const { return queue_; }
  uint32_t room() const { return capacity_ - reserved_; }
  void Reserve(uint32_t entries) { reserved_ += entries; }
  void Release(uint32_t entries) { reserved_ -= entries; }

  // The next completion, valid until the call after; nullptr if there is none now.
  const ibv_wc* Next() {
    if (next_ == end_ && !Fetch()) return nullptr;
    return &completions_[next_++];
  }

  // Requests an event at the next completion. False when there is a completion already.
  bool Arm();
  // An event of this queue was read from the channel.
  void OnEvent();

 private:
  CompletionQueue(ibv_cq* queue, uint32_t capacity) : queue_(queue), capacity_(capacity) {}
  bool Fetch();

  ibv_cq* const queue_;
  const uint32_t capacity_;  // entries
  uint32_t reserved_ = 0;    // entries
  bool armed_ = false;
  unsigned unacknowledged_ = 0;  // events
  int next_ = 0;
  int end_ = 0;
  ibv_wc completions_[kCompletionsPerPoll];
};

// The part of a completion queue that is reserved for one connection. Returns it on destruction.
// Move-only.
class CompletionRoom {
 public:
  CompletionRoom() = default;
  CompletionRoom(CompletionQueue* queue, uint32_t entries) : queue_(queue), entries_(entries) {
    queue->Reserve(entries);
  }
  ~CompletionRoom() {
    if (queue_ != nullptr) queue_->Release(entries_);
  }
  CompletionRoom(CompletionRoom&& other) noexcept
      : queue_(std::exchange(other.queue_, nullptr)), entries_(other.entries_) {}
  CompletionRoom& operator=(CompletionRoom&& other) noexcept {
    std::swap(queue_, other.queue_);
    std::swap(entries_, other.entries_);
    return *this;
  }

  ibv_cq* queue() const { return queue_->get(); }

 private:
  CompletionQueue* queue_ = nullptr;
  uint32_t entries_ = 0;
};

class DeviceCompletions {
 public:
  static absl::StatusOr<std::unique_ptr<DeviceCompletions>> Create(const VerbsDevice& device);

  // Reserves room for a connection, in a new queue if no queue has enough. Errors:
  // RESOURCE_EXHAUSTED.
  absl::StatusOr<CompletionRoom> Reserve(uint32_t entries);

  const VerbsDevice& device() const { return device_; }
  const std::vector<std::unique_ptr<CompletionQueue>>& queues() const { return queues_; }

  // Becomes readable at a completion after all queues were armed.
  int fd() const { return channel_->fd; }
  // Reads the channel's events. Bounded.
  void ReadEvents();

 private:
  DeviceCompletions(const VerbsDevice& device, CompletionChannel channel)
      : device_(device), channel_(std::move(channel)) {}

  const VerbsDevice& device_;
  CompletionChannel channel_;
  std::vector<std::unique_ptr<CompletionQueue>> queues_;  // destroyed before the channel
};

}  // namespace osprey::rdma

#endif  // OSPREY_RDMA_VERBS_COMPLETIONS_H_
