// Events that wait for the next Poll: a circular buffer that keeps its storage, so that a steady
// state does not allocate.

#ifndef OSPREY_RDMA_SHM_EVENT_QUEUE_H_
#define OSPREY_RDMA_SHM_EVENT_QUEUE_H_

#include <cassert>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "rdma/transport.h"

namespace osprey::rdma {

struct PendingEvent {
  Event event;
  uint32_t reads = 0;  // kReadsDone: READs that its delivery makes room for
};

// Not thread-safe.
class EventQueue {
 public:
  bool empty() const { return count_ == 0; }
  PendingEvent& front() {
    assert(count_ > 0);
    return slots_[first_];
  }
  void pop_front() {
    assert(count_ > 0);
    slots_[first_] = PendingEvent();
    first_ = Next(first_);
    --count_;
  }
  void push_back(PendingEvent event) {
    if (count_ == slots_.size()) Grow();
    slots_[(first_ + count_) % slots_.size()] = std::move(event);
    ++count_;
  }

 private:
  static constexpr size_t kSlotsFirst = 64;

  size_t Next(size_t i) const { return i + 1 == slots_.size() ? 0 : i + 1; }
  void Grow() {
    std::vector<PendingEvent> larger(slots_.empty() ? kSlotsFirst : 2 * slots_.size());
    for (size_t i = 0; i < count_; ++i) larger[i] = std::move(slots_[(first_ + i) % slots_.size()]);
    slots_ = std::move(larger);
    first_ = 0;
  }

  std::vector<PendingEvent> slots_;
  size_t first_ = 0;
  size_t count_ = 0;
};

}  // namespace osprey::rdma

#endif  // OSPREY_RDMA_SHM_EVENT_QUEUE_H_
