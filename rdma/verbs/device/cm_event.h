// A copy of a CM event.

#ifndef OSPREY_RDMA_VERBS_DEVICE_CM_EVENT_H_
#define OSPREY_RDMA_VERBS_DEVICE_CM_EVENT_H_

#include <rdma/rdma_cma.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "rdma/transport.h"

namespace osprey::rdma {

// The contents of a CM event, copied, so that the event can be acknowledged before it is handled.
// rdma_destroy_id waits for the acknowledgement. The id may be gone right after it, as another
// thread may be destroying it (reaper.h).
struct CmEvent {
  explicit CmEvent(const rdma_cm_event& event)
      : type(event.event),
        status(event.status),
        id(event.id),
        connection(static_cast<ConnectionId>(reinterpret_cast<uintptr_t>(event.id->context))) {
    // The other kinds of parameters belong to unused kinds of queue pairs.
    const rdma_conn_param& parameters = event.param.conn;
    initiator_depth = parameters.initiator_depth;
    responder_resources = parameters.responder_resources;
    if (parameters.private_data == nullptr) return;
    private_data_length = std::min<size_t>(parameters.private_data_len, sizeof(private_data));
    std::memcpy(private_data, parameters.private_data, private_data_length);
  }
  Bytes data() const { return {private_data, private_data_length}; }

  rdma_cm_event_type type;
  int status;               // a negative errno, or the reason of a rejection
  rdma_cm_id* id;           // in a connect request a new id, ours to destroy; else not to be used
  ConnectionId connection;  // the event's connection; gone if the id was handed over
  uint8_t initiator_depth = 0;      // READs that this side may have on the wire
  uint8_t responder_resources = 0;  // READs that the peer may have
  std::byte private_data[UINT8_MAX] = {};
  size_t private_data_length = 0;  // bytes; the CM pads them
};

}  // namespace osprey::rdma

#endif  // OSPREY_RDMA_VERBS_DEVICE_CM_EVENT_H_
