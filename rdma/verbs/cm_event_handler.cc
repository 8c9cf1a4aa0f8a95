#include "rdma/verbs/cm_event_handler.h"

#include <rdma/rdma_cma.h>

#include <algorithm>
#include <cerrno>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "rdma/errors.h"
#include "rdma/handshake.h"
#include "rdma/transport.h"

namespace osprey::rdma {
namespace {

using State = ConnectionState;

// Time for finding the path to the peer: two seconds, as for its address (connection_setup.cc).
constexpr int kResolveRouteMs = 2000;

// Reasons of a rejection, from the InfiniBand specification (Vol. 1, 12.6.7.2; ib_cm.h in the
// kernel).
constexpr int kRejectTimeout = 4;
constexpr int kRejectStaleConnection = 10;
constexpr int kRejectNoListener = 8;
constexpr int kRejectByConsumer = 28;

bool AllZero(Bytes bytes) {
  return std::all_of(bytes.begin(), bytes.end(), [](std::byte b) { return b == std::byte{0}; });
}

}  // namespace

void CmEventHandler::ReadOne() {
  rdma_cm_event* event = nullptr;
  if (rdma_get_cm_event(state_.reaper->channel(), &event) != 0) return;
  state_.look_around = true;
  CmEvent copy(*event);
  const bool is_request = event->event == RDMA_CM_EVENT_CONNECT_REQUEST;
  // The event's id may have moved to this channel just now, with a connection that is still in the
  // inbox. (Migrate does both in one step.) The connection is taken from the inbox before the
  // acknowledgement. Until then, the pointer in the event names this id and no later one. It is
  // added to the table after the acknowledgement. Refusing it may destroy its id, and
  // rdma_destroy_id waits for the acknowledgement of that id's events.
  std::vector<VerbsMigrated> migrated;
  if (!is_request && state_.connections.Find(copy.connection) == nullptr)
    migrated = migration_.TakeAll();
  rdma_ack_cm_event(event);
  if (is_request) return setup_.OnConnectRequest(copy);
  for (VerbsMigrated& asking : migrated) {
    const bool is_of_event = asking.cm_id.get() == copy.id;
    const ConnectionId id = setup_.AddRequested(std::move(asking));
    if (is_of_event) copy.connection = id;
  }
  VerbsConnection* const connection = state_.connections.Find(copy.connection);
  // The only event of listeners is their device's removal; an id that was handed over may receive
  // any.
  if (connection != nullptr) OnCmEvent(*connection, copy);
  if (copy.type == RDMA_CM_EVENT_DEVICE_REMOVAL) notices_.OnDeviceLost();
}

// Handles every event in every state. An event that is not expected in a state is ignored, or
// breaks the connection, without effect on an ending one. Each case is one line, so it uses plain
// returns, not `const absl::Status&`s.
void CmEventHandler::OnCmEvent(VerbsConnection& connection, const CmEvent& event) {
  switch (event.type) {
    case RDMA_CM_EVENT_ADDR_RESOLVED: {
      if (connection.state != State::kResolvingAddress) return;
      state_.SetState(connection, State::kResolvingRoute);
      if (rdma_resolve_route(connection.cm_id.get(), kResolveRouteMs) != 0) {
        ending_.Break(connection, ConnectError("rdma_resolve_route", errno, connection));
      }
      return;
    }
    case RDMA_CM_EVENT_ROUTE_RESOLVED: {
      if (connection.state != State::kResolvingRoute) return;
      state_.SetState(connection, State::kConnecting);
      if (absl::Status status = setup_.SendConnectRequest(connection); !status.ok())
        ending_.Break(connection, status);
      return;
    }
    case RDMA_CM_EVENT_CONNECT_RESPONSE: {
      if (connection.state != State::kConnecting) return;
      absl::Status status = setup_.FinishConnecting(connection, event);
      if (!status.ok()) return ending_.Break(connection, status);
      return setup_.BecomeConnected(connection);
    }
    case RDMA_CM_EVENT_ESTABLISHED:
      // In kConnected: the first frame came earlier.
      if (connection.state == State::kAccepting) setup_.BecomeConnected(connection);
      return;
    case RDMA_CM_EVENT_ADDR_ERROR:
    case RDMA_CM_EVENT_ROUTE_ERROR:
    case RDMA_CM_EVENT_CONNECT_ERROR:
    case RDMA_CM_EVENT_UNREACHABLE:  // also after ESTABLISHED
    case RDMA_CM_EVENT_REJECTED:
    case RDMA_CM_EVENT_DISCONNECTED:  // may come twice, or never
    case RDMA_CM_EVENT_DEVICE_REMOVAL:
      return ending_.Break(connection, FailureOf(connection, event));
    case RDMA_CM_EVENT_TIMEWAIT_EXIT:    // ignored: the id is usually gone by then
    case RDMA_CM_EVENT_ADDR_CHANGE:      // the path of a connection that is up does not change
    case RDMA_CM_EVENT_CONNECT_REQUEST:  // not for a connection
    case RDMA_CM_EVENT_MULTICAST_JOIN:
    case RDMA_CM_EVENT_MULTICAST_ERROR:
      return;
  }
}

absl::Status CmEventHandler::FailureOf(const VerbsConnection& connection,
                                       const CmEvent& event) const {
  const bool up =
      connection.state == State::kConnected || connection.state == State::kSendingDisconnectNotice;
  if (up || event.type == RDMA_CM_EVENT_DISCONNECTED) {
    return PeerGoneError(absl::StrCat("the peer ended without a disconnect notice (",
                                      rdma_event_str(event.type), ", ", connection.peer, ")"));
  }
  if (event.type == RDMA_CM_EVENT_REJECTED) return RejectionOf(connection, event);
  if (event.status < 0) return ConnectError(rdma_event_str(event.type), -event.status, connection);
  return UnreachableError(connection.peer,
                          absl::StrCat(rdma_event_str(event.type), ", status ", event.status));
}

absl::Status CmEventHandler::RejectionOf(const VerbsConnection& connection,
                                         const CmEvent& event) const {
  switch (event.status) {
    case kRejectNoListener:
      return NoListenerError(connection.peer);
    case kRejectStaleConnection:
      return UnreachableError(connection.peer,
                              "it regards this as an earlier connection; try again");
    case kRejectTimeout:
      return UnreachableError(connection.peer, "the connection could not be made in time");
    case kRejectByConsumer: {
      // The kernel rejects without data on behalf of a process that ended before it accepted.
      if (AllZero(event.data()))
        return UnreachableError(connection.peer, "the server ended before it accepted us");
      const absl::StatusOr<ConnectData> peer =
          ParseAnswer(event.data(), connection.peer_data.version, state_.shared.protocol_version);
      return peer.ok() ? RejectionError(*peer, connection.peer) : peer.status();
    }
    default:
      return UnreachableError(connection.peer,
                              absl::StrCat("it rejected the connection, reason ", event.status));
  }
}

}  // namespace osprey::rdma
