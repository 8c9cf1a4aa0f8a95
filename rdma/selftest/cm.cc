#include "rdma/selftest/cm.h"

#include <poll.h>
#include <rdma/rdma_cma.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "rdma/address.h"
#include "rdma/errors.h"
#include "rdma/selftest/deadline.h"
#include "rdma/verbs/device/address.h"
#include "rdma/verbs/device/queue_pair.h"

namespace osprey::rdma::selftest {
namespace {

constexpr int kCmBacklog = 8;
constexpr int kForeignPeersMax = 64;
constexpr int kRejectedNoListener = 8;

absl::Status Unexpected(const CmEvent& event) {
  const char* const name = rdma_event_str(event.type);
  switch (event.type) {
    case RDMA_CM_EVENT_ADDR_ERROR:
    case RDMA_CM_EVENT_ROUTE_ERROR:
      return absl::UnavailableError(absl::StrCat(name, ": ", std::strerror(-event.status)));
    case RDMA_CM_EVENT_REJECTED:
      return absl::UnavailableError(absl::StrCat(
          name, event.status == kRejectedNoListener ? ": no server listens there" : ""));
    case RDMA_CM_EVENT_UNREACHABLE:
      return absl::UnavailableError(
          absl::StrCat(name, ": no answer; a firewall keeps UDP 4791 out?"));
    default:
      return absl::UnavailableError(absl::StrCat(name, " (", event.status, ")"));
  }
}

absl::StatusOr<SocketAddress> AddressOf(const std::string& host, uint16_t port, bool passive) {
  Address address;
  address.host = host;
  address.port = port;
  return rdma::ResolveAddress(address, passive);
}

}  // namespace

absl::StatusOr<std::unique_ptr<CmConnection>> CmConnection::Create() {
  absl::StatusOr<EventChannel> channel = CreateEventChannel();
  if (!channel.ok()) return channel.status();
  return std::unique_ptr<CmConnection>(new CmConnection(*std::move(channel)));
}

CmConnection::~CmConnection() {
  Disconnect();
  endpoint_.reset();
  reaper_.DestroyLater(std::move(id_));
  reaper_.DestroyLater(std::move(listener_));
}

absl::StatusOr<CmEvent> CmConnection::Next(absl::Time deadline) {
  pollfd ready = {.fd = reaper_.channel()->fd, .events = POLLIN, .revents = 0};
  if (poll(&ready, 1, MillisecondsUntil(deadline)) <= 0)
    return absl::DeadlineExceededError("no answer; a firewall keeps UDP 4791 out?");
  rdma_cm_event* event = nullptr;
  if (rdma_get_cm_event(reaper_.channel(), &event) != 0)
    return VerbsError("rdma_get_cm_event", errno);
  const CmEvent copy(*event);
  rdma_ack_cm_event(event);
  return copy;
}

absl::StatusOr<CmEvent> CmConnection::Await(rdma_cm_event_type wanted, absl::Time deadline) {
  absl::StatusOr<CmEvent> event = Next(deadline);
  if (event.ok() && event->type != wanted) return Unexpected(*event);
  return event;
}

absl::StatusOr<uint16_t> CmConnection::Listen(const std::string& host) {
  absl::StatusOr<SocketAddress> address = AddressOf(host, 0, /*passive=*/true);
  if (!address.ok()) return address.status();
  absl::StatusOr<CmId> id = CreateCmId(reaper_.channel());
  if (!id.ok()) return id.status();
  if (rdma_bind_addr(id->get(), address->get()) != 0 || (*id)->verbs == nullptr)
    return NotRdmaAddressError(host, RdmaAddresses());
  if (rdma_listen(id->get(), kCmBacklog) != 0) return VerbsError("rdma_listen", errno);
  listener_ = *std::move(id);
  return ntohs(rdma_get_src_port(listener_.get()));
}

absl::Status CmConnection::MakeEndpoint(const VerbsDevices& devices, uint64_t seed) {
  device_ = devices.Find(id_->verbs);
  if (device_ == nullptr) return absl::NotFoundError("the device was added a moment ago; again");
  absl::StatusOr<std::unique_ptr<Endpoint>> endpoint = Endpoint::Create(*device_, seed);
  if (!endpoint.ok()) return endpoint.status();
  endpoint_ = *std::move(endpoint);
  if (absl::Status status = MoveToInit(endpoint_->queue_pair(), id_.get()); !status.ok())
    return status;
  return endpoint_->PostReceives();
}

rdma_conn_param CmConnection::Parameters(const uint64_t& seed) const {
  return ConnectParameters(&seed, sizeof(seed), WantedReadDepth(*device_), endpoint_->queue_pair());
}

namespace {

// REQUIRES: the id has the peer's request or response.
absl::Status Start(ibv_qp* queue_pair, rdma_cm_id* id, const VerbsDevice& device,
                   uint8_t initiator_max) {
  ReadDepth depth = WantedReadDepth(device);
  depth.initiator = std::min(depth.initiator, initiator_max);
  if (absl::Status status = MoveToReady(queue_pair, id, depth); !status.ok()) return status;
  ibv_qp_attr attributes = {};
  attributes.qp_access_flags = kPeerRights;
  const int error = ibv_modify_qp(queue_pair, &attributes, IBV_QP_ACCESS_FLAGS);
  return error == 0 ? absl::OkStatus() : VerbsError("ibv_modify_qp of the peer's rights", error);
}

}  // namespace

absl::Status CmConnection::Answer(const CmEvent& request, const VerbsDevices& devices,
                                  uint64_t seed) {
  if (absl::Status status = MakeEndpoint(devices, seed); !status.ok()) return status;
  if (absl::Status status =
          Start(endpoint_->queue_pair(), id_.get(), *device_, request.initiator_depth);
      !status.ok()) {
    return status;
  }
  rdma_conn_param parameters = Parameters(seed);
  if (rdma_accept(id_.get(), &parameters) != 0) return VerbsError("rdma_accept", errno);
  connected_ = true;
  return absl::OkStatus();
}

absl::Status CmConnection::Accept(const VerbsDevices& devices, uint64_t seed, absl::Time deadline) {
  for (int foreign_peers = 0; foreign_peers < kForeignPeersMax; ++foreign_peers) {
    const absl::StatusOr<CmEvent> event = Await(RDMA_CM_EVENT_CONNECT_REQUEST, deadline);
    if (!event.ok()) return event.status();
    CmId id(event->id);
    uint64_t told = 0;
    if (event->private_data_length >= sizeof(told))
      std::memcpy(&told, event->private_data, sizeof(told));
    if (told != seed) {
      (void)rdma_reject(id.get(), nullptr, 0);
      reaper_.DestroyLater(std::move(id));
      continue;
    }
    id_ = std::move(id);
    if (absl::Status status = Answer(*event, devices, seed); !status.ok()) {
      (void)rdma_reject(id_.get(), nullptr, 0);
      return status;
    }
    return Await(RDMA_CM_EVENT_ESTABLISHED, deadline).status();
  }
  return absl::UnavailableError("only strangers connect");
}

absl::Status CmConnection::ResolveAddress(const std::string& host, uint16_t port,
                                          absl::Time deadline) {
  absl::StatusOr<SocketAddress> address = AddressOf(host, port, /*passive=*/false);
  if (!address.ok()) return address.status();
  absl::StatusOr<CmId> id = CreateCmId(reaper_.channel());
  if (!id.ok()) return id.status();
  id_ = *std::move(id);
  if (rdma_resolve_addr(id_.get(), nullptr, address->get(), MillisecondsUntil(deadline)) != 0)
    return VerbsError(absl::StrCat("rdma_resolve_addr of ", host), errno);
  return Await(RDMA_CM_EVENT_ADDR_RESOLVED, deadline).status();
}

absl::Status CmConnection::ResolveRoute(absl::Time deadline) {
  if (rdma_resolve_route(id_.get(), MillisecondsUntil(deadline)) != 0)
    return VerbsError("rdma_resolve_route", errno);
  return Await(RDMA_CM_EVENT_ROUTE_RESOLVED, deadline).status();
}

absl::Status CmConnection::Connect(const VerbsDevices& devices, uint64_t seed,
                                   absl::Time deadline) {
  if (absl::Status status = MakeEndpoint(devices, seed); !status.ok()) return status;
  rdma_conn_param parameters = Parameters(seed);
  if (rdma_connect(id_.get(), &parameters) != 0) return VerbsError("rdma_connect", errno);
  connected_ = true;
  const absl::StatusOr<CmEvent> event = Await(RDMA_CM_EVENT_CONNECT_RESPONSE, deadline);
  if (!event.ok()) return event.status();
  if (absl::Status status =
          Start(endpoint_->queue_pair(), id_.get(), *device_, event->initiator_depth);
      !status.ok()) {
    return status;
  }
  if (rdma_establish(id_.get()) != 0) return VerbsError("rdma_establish", errno);
  return absl::OkStatus();
}

void CmConnection::Disconnect() {
  if (std::exchange(connected_, false)) (void)rdma_disconnect(id_.get());
}

}  // namespace osprey::rdma::selftest
