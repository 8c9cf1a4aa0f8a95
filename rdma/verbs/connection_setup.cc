#include "rdma/verbs/connection_setup.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "rdma/address.h"
#include "rdma/blocking_executor.h"
#include "rdma/errors.h"
#include "rdma/verbs/device/address.h"

namespace osprey::rdma {

namespace {

using State = ConnectionState;

// Time for finding the peer's link address. Two seconds tolerate a lost ARP request or two; a
// caller with less time calls Disconnect.
constexpr int kResolveAddressMs = 2000;
// Connect requests not yet fetched, as many as the kernel allows by default, so that a whole data
// centre may reconnect at once. One more is dropped, which costs its sender 4.3 s.
constexpr int kBacklog = 1024;

void* ContextOf(ConnectionId id) { return reinterpret_cast<void*>(static_cast<uintptr_t>(id)); }

absl::Status BindError(const Address& address, const SocketAddress& resolved, int error) {
  switch (error) {
    case EADDRINUSE:
      return AddressInUseError(address.ToString());
    case ENODEV:
    case EADDRNOTAVAIL:
    case ENOENT:
      return NotRdmaAddressError(HostOf(resolved.get()), RdmaAddresses());
    default:
      return VerbsError(absl::StrCat("rdma_bind_addr to ", address.ToString()), error);
  }
}

absl::StatusOr<Address> ParseRdmaAddress(absl::string_view uri) {
  absl::StatusOr<Address> address = ParseAddress(uri);
  if (address.ok() && address->scheme != Address::Scheme::kRdma) {
    return absl::InvalidArgumentError(absl::StrCat(uri, " is no rdma:// address"));
  }
  return address;
}

// The part after rdma:// by which clients can reach a listener bound to `bound`.
std::string ReachableUri(rdma_cm_id* listener) {
  const sockaddr* const bound = rdma_get_local_addr(listener);
  if (!IsWildcard(bound)) return UriOf(bound);
  Address address;
  address.port = ntohs(rdma_get_src_port(listener));
  std::vector<std::string> hosts = RdmaAddresses(bound->sa_family);
  if (hosts.empty()) hosts = RdmaAddresses();
  address.host = hosts.empty() ? HostOf(bound) : hosts.front();
  return address.ToString();
}

}  // namespace

absl::Status ConnectError(absl::string_view name, int error, const VerbsConnection& connection) {
  switch (error) {
    case ENODEV:
    case EADDRNOTAVAIL: {
      const sockaddr* const address = connection.target.get();
      if (IsLocal(address)) return NotRdmaAddressError(HostOf(address), RdmaAddresses());
      return UnreachableError(connection.peer,
                              absl::StrCat("no RDMA device has a route to it (", name, ")"));
    }
    case ENOMEM:
    case EMFILE:
      return VerbsError(name, error);
    default:
      return UnreachableError(connection.peer, absl::StrCat(name, ": ", std::strerror(error)));
  }
}

// ---- Listening and connecting -----------------------------------------------------------------

absl::StatusOr<std::string> ConnectionSetup::Listen(absl::string_view uri) {
  const absl::StatusOr<Address> address = ParseRdmaAddress(uri);
  if (!address.ok()) return address.status();
  absl::StatusOr<SocketAddress> resolved = ResolveAddress(*address, /*passive=*/true);
  if (!resolved.ok()) return resolved.status();
  absl::StatusOr<CmId> id = CreateCmId(state_.reaper->channel());
  if (!id.ok()) return id.status();
  if (rdma_bind_addr(id->get(), resolved->get()) != 0) return BindError(*address, *resolved, errno);
  // The kernel binds to 127.0.0.1 without a device; such a listener would receive no requests.
  if ((*id)->verbs == nullptr && !IsWildcard(resolved->get())) {
    return NotRdmaAddressError(HostOf(resolved->get()), RdmaAddresses());
  }
  if (rdma_listen(id->get(), kBacklog) != 0) {
    if (errno == EADDRINUSE) return AddressInUseError(address->ToString());
    return VerbsError(absl::StrCat("rdma_listen at ", uri), errno);
  }
  listeners_.push_back(*std::move(id));
  return ReachableUri(listeners_.back().get());
}

absl::StatusOr<ConnectionId> ConnectionSetup::Connect(absl::string_view uri, uint32_t affinity,
                                                      uint16_t version) {
  const absl::StatusOr<Address> address = ParseRdmaAddress(uri);
  if (!address.ok()) return address.status();
  absl::StatusOr<SocketAddress> resolved = ResolveAddress(*address, /*passive=*/false);
  if (!resolved.ok()) return resolved.status();
  if (IsWildcard(resolved->get()) || address->port == 0) {
    return absl::InvalidArgumentError(
        absl::StrCat(uri, " is an address to listen at, not to connect to"));
  }
  // Reported at once, as it is the most frequent mistake, and as the CM's own error differs by
  // kernel.
  if (IsLoopback(resolved->get())) {
    const std::string host = HostOf(resolved->get());
    const std::vector<std::string> hosts = RdmaAddresses();
    if (std::find(hosts.begin(), hosts.end(), host) == hosts.end())
      return NotRdmaAddressError(host, hosts);
  }
  VerbsConnection* const connection =
      state_.reaper->has_room() ? state_.connections.Add() : nullptr;
  if (connection == nullptr)
    return absl::ResourceExhaustedError("too many connections in one transport");
  connection->peer = address->ToString();
  connection->target = *resolved;
  connection->affinity = affinity;
  connection->peer_data.version = version == 0 ? state_.shared.protocol_version : version;
  state_.connecting++;  // in its first state
  if (absl::Status status = StartConnecting(*connection); !status.ok())
    ending_.Break(*connection, status);
  return connection->id;
}

absl::Status ConnectionSetup::StartConnecting(VerbsConnection& connection) {
  absl::StatusOr<CmId> id = CreateCmId(state_.reaper->channel());
  if (!id.ok()) return id.status();
  connection.cm_id = *std::move(id);
  connection.cm_id->context = ContextOf(connection.id);
  // For the CM's own messages, and for the peer's queue pair if its side leaves the choice to the
  // CM. MoveToReady sets ours in any case, so a kernel without the option does no harm.
  uint8_t timeout = kAckTimeoutExponent;
  (void)rdma_set_option(connection.cm_id.get(), RDMA_OPTION_ID, RDMA_OPTION_ID_ACK_TIMEOUT,
                        &timeout, sizeof(timeout));
  if (rdma_resolve_addr(connection.cm_id.get(), nullptr, connection.target.get(),
                        kResolveAddressMs) != 0) {
    return ConnectError("rdma_resolve_addr", errno, connection);
  }
  return absl::OkStatus();
}

// In the version of the peer, which else reads nothing in it.
ConnectData ConnectionSetup::OurData(uint16_t version, RejectReason reason) const {
  ConnectData data;
  data.version = version;
  data.reason = static_cast<uint16_t>(reason);
  data.receive_credits = state_.options.receive_credits;
  data.frame_bytes_max = state_.options.frame_bytes_max;
  data.reads_in_flight_max = state_.options.reads_in_flight_max;
  return data;
}

absl::StatusOr<std::unique_ptr<Link>> ConnectionSetup::NewLink(VerbsConnection& connection,
                                                               uint16_t send_credits_max,
                                                               uint32_t frame_bytes_max) {
  const VerbsDevice* const device = state_.shared.devices->Find(connection.cm_id->verbs);
  if (device == nullptr) {
    return absl::FailedPreconditionError(absl::StrCat(
        "the RDMA device on the way to ", connection.peer, " was added after this process began"));
  }
  Link::Options options;
  options.receive_credits = state_.options.receive_credits;
  options.frame_bytes_max = frame_bytes_max;
  options.reads_in_flight_max = state_.options.reads_in_flight_max;
  options.send_credits_max = send_credits_max;
  options.tag = ConnectionTable::TagOf(connection.id);
  return Link::Create(*state_.completions[device->index], options);
}

absl::Status ConnectionSetup::SendConnectRequest(VerbsConnection& connection) {
  // The server's offer is not known yet.
  absl::StatusOr<std::unique_ptr<Link>> link =
      NewLink(connection, kReceiveCreditsMax, state_.options.frame_bytes_max);
  if (!link.ok()) return link.status();
  connection.link = *std::move(link);
  if (absl::Status status = connection.link->Make(connection.cm_id.get()); !status.ok())
    return status;
  connection.depth = WantedReadDepth(connection.link->device());
  ConnectData data = OurData(connection.peer_data.version);
  data.affinity = connection.affinity;
  rdma_conn_param parameters =
      ConnectParameters(&data, sizeof(data), connection.depth, connection.link->queue_pair());
  if (rdma_connect(connection.cm_id.get(), &parameters) != 0)
    return ConnectError("rdma_connect", errno, connection);
  return absl::OkStatus();
}

absl::Status ConnectionSetup::FinishConnecting(VerbsConnection& connection, const CmEvent& event) {
  const absl::StatusOr<ConnectData> peer =
      ParseAnswer(event.data(), connection.peer_data.version, state_.shared.protocol_version);
  if (!peer.ok()) {
    const ConnectData data = OurData(connection.peer_data.version);
    (void)rdma_reject(connection.cm_id.get(), &data, sizeof(data));
    return peer.status();
  }
  connection.depth.initiator = std::min(connection.depth.initiator, event.initiator_depth);
  if (absl::Status status = connection.link->Start(connection.cm_id.get(), *peer, connection.depth);
      !status.ok()) {
    return status;
  }
  if (rdma_establish(connection.cm_id.get()) != 0)
    return ConnectError("rdma_establish", errno, connection);
  return absl::OkStatus();
}

// ---- Accepting --------------------------------------------------------------------------------

void ConnectionSetup::OnConnectRequest(const CmEvent& event) {
  CmId id(event.id);
  const uint16_t newest = state_.shared.protocol_version;
  const absl::StatusOr<ConnectData> peer =
      ParseConnectData(event.data(), newest, OldestServed(newest));
  // Rejected before anything is made for it. A peer of another version reads our version in our
  // data.
  if (!peer.ok()) return Refuse(std::move(id), newest, RejectReason::kVersionMismatch);
  std::string name = UriOf(rdma_get_peer_addr(id.get()));
  std::string host = HostOf(rdma_get_peer_addr(id.get()));
  (void)AddRequested({std::move(id),
                      std::move(name),
                      std::move(host),
                      *peer,
                      {event.initiator_depth, event.responder_resources}});
}

void ConnectionSetup::Refuse(CmId id, uint16_t version, RejectReason reason) {
  const ConnectData data = OurData(version, reason);
  (void)rdma_reject(id.get(), &data, sizeof(data));
  // It was never accepted, so the kernel repeats no message on its behalf. Without room it can be
  // destroyed here, quickly. All its fetched events have been acknowledged.
  if (state_.reaper->has_room()) state_.reaper->DestroyLater(std::move(id));
}

ConnectionId ConnectionSetup::AddRequested(VerbsMigrated asking) {
  VerbsConnection* const connection =
      state_.reaper->has_room() ? state_.connections.Add() : nullptr;
  if (connection == nullptr) {
    Refuse(std::move(asking.cm_id), asking.peer_data.version, RejectReason::kTooManyConnections);
    return ConnectionId::kNone;
  }
  asking.cm_id->context = ContextOf(connection->id);
  connection->state = State::kRequested;
  connection->peer = std::move(asking.peer);
  connection->source = std::move(asking.source);
  connection->peer_data = asking.peer_data;
  connection->depth = asking.depth;
  connection->cm_id = std::move(asking.cm_id);
  Event& request = events_.Queue(Event::Kind::kConnectRequest, connection->id);
  request.text = connection->peer;
  request.source = connection->source;
  request.affinity = connection->peer_data.affinity;
  return connection->id;
}

absl::StatusOr<VerbsConnection*> ConnectionSetup::FindRequested(ConnectionId id) const {
  VerbsConnection* const connection = state_.connections.Find(id);
  if (connection == nullptr || connection->state != State::kRequested)
    return absl::UnavailableError("the peer does not wait to be accepted any more");
  return connection;
}

absl::Status ConnectionSetup::Accept(ConnectionId id) {
  const absl::StatusOr<VerbsConnection*> connection = FindRequested(id);
  if (!connection.ok()) return connection.status();
  absl::Status status = StartBuilding(**connection);
  if (!status.ok()) ending_.Break(**connection, status);
  return status;
}

// The queue pair is ready before the peer is answered, so that no frame arrives while another
// thread has it. Further requests wait until then. Those in the kernel are kept, and those that
// were fetched count as being accepted.
absl::Status ConnectionSetup::StartBuilding(VerbsConnection& connection) {
  const ConnectData& peer = connection.peer_data;
  absl::StatusOr<std::unique_ptr<Link>> made =
      NewLink(connection, std::min(peer.receive_credits, kReceiveCreditsMax),
              std::min(peer.frame_bytes_max, state_.options.frame_bytes_max));
  if (!made.ok()) return made.status();
  const ReadDepth ours = WantedReadDepth((*made)->device());
  connection.depth.initiator = std::min(connection.depth.initiator, ours.initiator);
  connection.depth.responder = std::min(connection.depth.responder, ours.responder);
  struct Building {
    std::unique_ptr<Link> link;
    absl::Status status;
  };
  const auto building = std::make_shared<Building>(Building{*std::move(made), {}});
  state_.SetState(connection, State::kBuilding);
  sources_.PauseAccept(true);
  state_.blocking_executor->Add(
      BlockingExecutor::kMake,
      [building, peer, depth = connection.depth, id = connection.cm_id.get()] {
        building->status = building->link->Make(id);
        if (building->status.ok()) building->status = building->link->Start(id, peer, depth);
      },
      [this, building, id = connection.id] {
        OnBuilt(*state_.connections.Find(id), std::move(building->link),
                std::move(building->status));
      });
  return absl::OkStatus();
}

void ConnectionSetup::OnBuilt(VerbsConnection& connection, std::unique_ptr<Link> link,
                              absl::Status status) {
  if (state_.blocking_executor->waiting(BlockingExecutor::kMake) == 0) sources_.PauseAccept(false);
  connection.link = std::move(link);
  state_.SetState(connection, State::kRequested);
  if (connection.given_up) return ending_.Break(connection, std::move(connection.end_status));
  if (status.ok()) status = StartAccepting(connection);
  if (!status.ok()) ending_.Break(connection, std::move(status));
}

absl::Status ConnectionSetup::StartAccepting(VerbsConnection& connection) {
  const ConnectData data = OurData(connection.peer_data.version);
  rdma_conn_param parameters =
      ConnectParameters(&data, sizeof(data), connection.depth, connection.link->queue_pair());
  if (rdma_accept(connection.cm_id.get(), &parameters) != 0)
    return ConnectError("rdma_accept", errno, connection);
  state_.SetState(connection, State::kAccepting);
  return absl::OkStatus();
}

void ConnectionSetup::Reject(ConnectionId id, RejectReason reason) {
  VerbsConnection* const connection = state_.connections.Find(id);
  if (connection == nullptr || connection->state != State::kRequested) return;
  const ConnectData data = OurData(connection->peer_data.version, reason);
  (void)rdma_reject(connection->cm_id.get(), &data, sizeof(data));
  ending_.Break(*connection, absl::OkStatus());
}

void ConnectionSetup::BecomeConnected(VerbsConnection& connection) {
  state_.SetState(connection, State::kConnected);
  events_.Queue(Event::Kind::kConnected, connection.id);
}

}  // namespace osprey::rdma
