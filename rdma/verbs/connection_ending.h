// How connections of a VerbsTransport end. connection.h draws the states and transitions.

#ifndef OSPREY_RDMA_VERBS_CONNECTION_ENDING_H_
#define OSPREY_RDMA_VERBS_CONNECTION_ENDING_H_

#include <vector>

#include "absl/status/status.h"
#include "rdma/transport.h"
#include "rdma/verbs/connection.h"
#include "rdma/verbs/event_output.h"
#include "rdma/verbs/transport_state.h"

namespace osprey::rdma {

class ConnectionEnding {
 public:
  // REQUIRES: the arguments outlive the result.
  ConnectionEnding(VerbsTransportState& state, EventOutput& events)
      : state_(state), events_(events) {}

  void Disconnect(ConnectionId id);
  // Ignores a connection that is ending already.
  void Break(VerbsConnection& connection, absl::Status status);

  // Connections wait for Finish.
  bool waits() const { return !ending_.empty(); }
  // `seen_all`: every available completion has been handled.
  void Finish(bool seen_all);

 private:
  void StartDisconnectNotice(VerbsConnection& connection);
  void StartBreaking(VerbsConnection& connection);
  void StartDrain(VerbsConnection& connection);
  void Destroy(VerbsConnection& connection);
  void End(VerbsConnection& connection);

  VerbsTransportState& state_;
  EventOutput& events_;
  std::vector<ConnectionId> ending_;  // kSendingDisconnectNotice, kDraining
};

}  // namespace osprey::rdma

#endif  // OSPREY_RDMA_VERBS_CONNECTION_ENDING_H_
