// The events of a VerbsTransport on their way to its caller.

#ifndef OSPREY_RDMA_VERBS_EVENT_OUTPUT_H_
#define OSPREY_RDMA_VERBS_EVENT_OUTPUT_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "rdma/transport.h"
#include "rdma/verbs/connection.h"
#include "rdma/verbs/transport_state.h"

namespace osprey::rdma {

// The filled part of the caller's span.
struct EventSpan {
  absl::Span<Event> events;
  size_t count = 0;
  bool full() const { return count == events.size(); }
};

// Keeps the events that wait for room, in order. Remembers what the delivered ones refer to, which
// is valid until the next Poll.
class EventOutput {
 public:
  struct DeliveredFrame {
    ConnectionId connection;
    uint16_t receive;
  };

  // REQUIRES: `state` outlives the result.
  explicit EventOutput(VerbsTransportState& state) : state_(state) {}

  // Delivers an event, or queues it. `receive` is the receive buffer that holds the frame of
  // kReceived.
  void Emit(EventSpan& output, Event::Kind kind, ConnectionId id, uint64_t cookie, Bytes frame,
            uint16_t receive);
  // The queued event, valid until the next call, for further fields.
  Event& Queue(Event::Kind kind, ConnectionId id, absl::Status status = absl::OkStatus());
  bool has_pending() const { return !pending_.empty(); }
  // Delivers queued events while there is room.
  void DeliverPending(EventSpan& output);

  const std::vector<DeliveredFrame>& delivered_frames() const { return delivered_frames_; }
  void ClearDeliveredFrames() { delivered_frames_.clear(); }

  bool has_delivered_ends() const { return !delivered_ends_.empty(); }
  // Frees the connections whose kDisconnected was delivered.
  void FreeEnded();

 private:
  // An event that waits for room in the caller's span.
  struct Pending {
    Event event;
    uint16_t receive = 0;  // kReceived: the receive buffer that holds the frame
  };

  VerbsTransportState& state_;
  std::vector<std::unique_ptr<VerbsConnection>>
      delivered_ends_;  // their frames are valid until the next Poll
  std::vector<DeliveredFrame> delivered_frames_;
  std::deque<Pending> pending_;
};

}  // namespace osprey::rdma

#endif  // OSPREY_RDMA_VERBS_EVENT_OUTPUT_H_
