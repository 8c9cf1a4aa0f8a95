// How a VerbsTransport establishes connections. connection.h draws the states and transitions.

#ifndef OSPREY_RDMA_VERBS_CONNECTION_SETUP_H_
#define OSPREY_RDMA_VERBS_CONNECTION_SETUP_H_

#include <rdma/rdma_cma.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "rdma/handshake.h"
#include "rdma/transport.h"
#include "rdma/verbs/connection.h"
#include "rdma/verbs/connection_ending.h"
#include "rdma/verbs/device/cm_event.h"
#include "rdma/verbs/device/objects.h"
#include "rdma/verbs/device/queue_pair.h"
#include "rdma/verbs/event_output.h"
#include "rdma/verbs/link.h"
#include "rdma/verbs/readiness_sources.h"
#include "rdma/verbs/transport_state.h"

namespace osprey::rdma {

// The status of a call or event `name` that failed with `error`, an errno, while connecting to the
// peer.
absl::Status ConnectError(absl::string_view name, int error, const VerbsConnection& connection);

class ConnectionSetup {
 public:
  // REQUIRES: the arguments outlive the result.
  ConnectionSetup(VerbsTransportState& state, EventOutput& events, ReadinessSources& sources,
                  ConnectionEnding& ending)
      : state_(state), events_(events), sources_(sources), ending_(ending) {}

  // As in Transport.
  absl::StatusOr<std::string> Listen(absl::string_view uri);
  absl::StatusOr<ConnectionId> Connect(absl::string_view uri, uint32_t affinity, uint16_t version);
  absl::Status Accept(ConnectionId id);
  void Reject(ConnectionId id, RejectReason reason);

  // The connection if its peer waits to be accepted, else UNAVAILABLE.
  absl::StatusOr<VerbsConnection*> FindRequested(ConnectionId id) const;

  // The steps of connecting, for the handler of CM events.
  absl::Status SendConnectRequest(VerbsConnection& connection);
  absl::Status FinishConnecting(VerbsConnection& connection, const CmEvent& event);
  void OnConnectRequest(const CmEvent& event);
  // The new connection; kNone: it was refused. This may destroy the id, so every fetched event of
  // it must have been acknowledged.
  ConnectionId AddRequested(VerbsMigrated asking);
  void BecomeConnected(VerbsConnection& connection);

 private:
  ConnectData OurData(uint16_t version, RejectReason reason = RejectReason::kNone) const;
  absl::StatusOr<std::unique_ptr<Link>> NewLink(VerbsConnection& connection,
                                                uint16_t send_credits_max,
                                                uint32_t frame_bytes_max);
  absl::Status StartConnecting(VerbsConnection& connection);
  absl::Status StartBuilding(VerbsConnection& connection);
  void OnBuilt(VerbsConnection& connection, std::unique_ptr<Link> link, absl::Status status);
  absl::Status StartAccepting(VerbsConnection& connection);
  // Refuses an id that requests a connection, for which nothing has been made. As AddRequested,
  // this may destroy the id.
  void Refuse(CmId id, uint16_t version, RejectReason reason);

  VerbsTransportState& state_;
  EventOutput& events_;
  ReadinessSources& sources_;
  ConnectionEnding& ending_;
  std::vector<CmId> listeners_;
};

}  // namespace osprey::rdma

#endif  // OSPREY_RDMA_VERBS_CONNECTION_SETUP_H_
