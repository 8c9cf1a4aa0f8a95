// A CM event, copied.

#ifndef OSPREY_RDMA_VERBS_CM_EVENT_H_
#define OSPREY_RDMA_VERBS_CM_EVENT_H_

#include <rdma/rdma_cma.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "rdma/transport.h"
#include "rdma/verbs_connection.h"

namespace osprey::rdma {

// What a CM event holds, copied, so that the event can be acknowledged before it is acted upon:
// rdma_destroy_id waits for the acknowledgement, and the id may be gone right after it, as another
// thread may be destroying it (verbs_reaper.h).
struct CmEvent {
  explicit CmEvent(const rdma_cm_event& event)
      : type(event.event),
        status(event.status),
        id(event.id),
        connection(static_cast<ConnectionId>(reinterpret_cast<uintptr_t>(event.id->context))) {
    // The other kinds of parameters belong to kinds of queue pairs that we do not use.
    const rdma_conn_param& parameters = event.param.conn;
    initiator_depth = parameters.initiator_depth;
    responder_resources = parameters.responder_resources;
    if (parameters.private_data == nullptr) return;
    private_data_length = std::min<size_t>(parameters.private_data_len, sizeof(private_data));
    std::memcpy(private_data, parameters.private_data, private_data_length);
  }
  Bytes data() const { return {private_data, private_data_length}; }

  rdma_cm_event_type type;
  int status;      // a negative errno, or the reason of a rejection
  rdma_cm_id* id;  // a new one, ours to destroy, in a connect request; else not to be touched
  ConnectionId connection;          // whose event it is: gone, when the id was handed over
  uint8_t initiator_depth = 0;      // READs that we may have on the wire
  uint8_t responder_resources = 0;  // READs that the peer may have
  std::byte private_data[UINT8_MAX] = {};
  size_t private_data_length = 0;  // bytes; the CM pads them
};

// What it means that a call, or an event, of this name failed with `error`, an errno, on the way to
// the peer.
absl::Status ConnectError(absl::string_view name, int error, const VerbsConnection& connection);

}  // namespace osprey::rdma

#endif  // OSPREY_RDMA_VERBS_CM_EVENT_H_
