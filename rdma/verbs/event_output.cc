#include "rdma/verbs/event_output.h"

#include <utility>

#include "rdma/blocking_executor.h"

namespace osprey::rdma {

void EventOutput::Emit(EventSpan& output, Event::Kind kind, ConnectionId id, uint64_t cookie,
                       Bytes frame, uint16_t receive) {
  if (output.full() || !pending_.empty()) {
    Event& queued = Queue(kind, id);
    queued.cookie = cookie;
    queued.frame = frame;
    pending_.back().receive = receive;
    return;
  }
  Event& event = output.events[output.count++];
  event.kind = kind;
  event.connection = id;
  event.cookie = cookie;
  event.frame = frame;
  event.status = absl::OkStatus();
  event.text.clear();
  event.affinity = 0;
  event.source.clear();
  if (kind == Event::Kind::kReceived) delivered_frames_.push_back({id, receive});
}

Event& EventOutput::Queue(Event::Kind kind, ConnectionId id, absl::Status status) {
  Event& event = pending_.emplace_back().event;
  event.kind = kind;
  event.connection = id;
  event.status = std::move(status);
  return event;
}

void EventOutput::DeliverPending(EventSpan& output) {
  while (!pending_.empty() && !output.full()) {
    Event& event = output.events[output.count++];
    event = std::move(pending_.front().event);
    if (event.kind == Event::Kind::kReceived)
      delivered_frames_.push_back({event.connection, pending_.front().receive});
    // The frames delivered before it must stay valid until the next Poll.
    if (event.kind == Event::Kind::kDisconnected)
      delivered_ends_.push_back(state_.connections.Remove(event.connection));
    pending_.pop_front();
  }
}

void EventOutput::FreeEnded() {
  for (std::unique_ptr<VerbsConnection>& connection : delivered_ends_) {
    if (connection->link == nullptr) continue;
    connection->link->LeaveCompletions();
    state_.blocking_executor->Add(
        BlockingExecutor::kFree, [link = std::move(connection->link)]() mutable { link.reset(); },
        [] {});
  }
  delivered_ends_.clear();
}

}  // namespace osprey::rdma
