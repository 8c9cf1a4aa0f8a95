// Events that wait for the next Poll: a circular buffer that keeps its storage, so that a steady
// state does not allocate. Events are made and taken in place: to move one, texts and all, takes
// longer than a small READ.

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
  // The first one, given to `event`, of which nothing stays.
  void PopInto(Event& event) {
    Event& first = front().event;
    event.kind = first.kind;
    event.connection = first.connection;
    event.cookie = first.cookie;
    event.frame = Bytes();
    event.status = std::exchange(first.status, absl::OkStatus());
    event.affinity = first.affinity;
    // (Mostly there is none.)
    event.text.clear();
    event.source.clear();
    if (!first.text.empty()) event.text.swap(first.text);
    if (!first.source.empty()) event.source.swap(first.source);
    first_ = At(1);
    --count_;
  }
  // Removes the first one, a kReadsDone, and returns its status.
  absl::Status PopStatus() {
    absl::Status status = std::exchange(front().event.status, absl::OkStatus());
    first_ = At(1);
    --count_;
    return status;
  }
  // A new one behind the last: its kind, connection, cookie and reads are set, all else is empty.
  PendingEvent& Add(Event::Kind kind, ConnectionId connection, uint64_t cookie = 0,
                    uint32_t reads = 0) {
    if (count_ == slots_.size()) Grow();
    PendingEvent& added = slots_[At(count_++)];
    added.event.kind = kind;
    added.event.connection = connection;
    added.event.cookie = cookie;
    added.event.affinity = 0;
    added.reads = reads;
    return added;
  }

 private:
  static constexpr size_t kSlotsFirst = 8;

  // Where the i-th is, i <= count_.
  size_t At(size_t i) const {
    const size_t at = first_ + i;
    return at < slots_.size() ? at : at - slots_.size();
  }
  void Grow() {
    std::vector<PendingEvent> larger(slots_.empty() ? kSlotsFirst : 2 * slots_.size());
    for (size_t i = 0; i < count_; ++i) larger[i] = std::move(slots_[At(i)]);
    slots_ = std::move(larger);
    first_ = 0;
  }

  std::vector<PendingEvent> slots_;
  size_t first_ = 0;
  size_t count_ = 0;
};

}  // namespace osprey::rdma

#endif  // OSPREY_RDMA_SHM_EVENT_QUEUE_H_
