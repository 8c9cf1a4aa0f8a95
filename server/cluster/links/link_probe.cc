#include "server/cluster/links/link_probe.h"

#include <poll.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <random>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "rdma/errors.h"
#include "rdma/handshake.h"
#include "rdma/open_domain.h"
#include "server/cluster/links/link_frames.h"

namespace osprey {
namespace {

using rdma::Event;

constexpr char kName[] = "doctor";
constexpr size_t kEvents = 16;
// Between polls, in case a descriptor does not tell of an event.
constexpr int kPollMs = 50;

LinkHelloBody HelloTo(const LinkTarget& target) {
  LinkHelloBody hello;
  hello.cluster_id = target.cluster_id;
  hello.server = LinkServerNameOf(kName);
  hello.incarnation = std::random_device()() | uint64_t{1} << 63;  // of no server
  hello.expected_incarnation = target.incarnation;
  return hello;
}

// The outcome, once there is one.
std::optional<absl::Status> Take(const Event& event, const LinkTarget& target,
                                 rdma::Transport& transport) {
  switch (event.kind) {
    case Event::Kind::kConnected: {
      const std::string frame = LinkFrameOf(LinkFrame::kHello, HelloTo(target));
      absl::Status sent = transport.Send(
          event.connection, {{reinterpret_cast<const std::byte*>(frame.data()), frame.size()}});
      if (!sent.ok()) return sent;
      return std::nullopt;
    }
    case Event::Kind::kReceived:
      return JudgeLinkAnswer(event.frame);
    case Event::Kind::kDisconnected:
      return event.status.ok() ? rdma::PeerGoneError("the server closed the connection")
                               : event.status;
    case Event::Kind::kDeviceLost:
      return absl::UnavailableError("this machine's RDMA device is going away");
    case Event::Kind::kConnectRequest:
    case Event::Kind::kReadsDone:
      return std::nullopt;
  }
  return std::nullopt;
}

absl::Status ProbeInVersion(const LinkTarget& target, uint16_t version, absl::Time end) {
  rdma::DomainOptions options;
  options.shm_any_server_user = true;  // it is sent no secret
  absl::StatusOr<std::unique_ptr<rdma::Domain>> domain = rdma::OpenDomain(target.uri, options);
  if (!domain.ok()) return domain.status();
  absl::StatusOr<std::unique_ptr<rdma::Transport>> transport =
      (*domain)->NewTransport(rdma::TransportOptions());
  if (!transport.ok()) return transport.status();
  const absl::StatusOr<rdma::ConnectionId> id =
      (*transport)->Connect(target.uri, /*affinity=*/0, version);
  if (!id.ok()) return id.status();
  Event events[kEvents];
  while (absl::Now() < end) {
    const size_t count = (*transport)->Poll(absl::MakeSpan(events));
    for (size_t i = 0; i < count; ++i) {
      if (const std::optional<absl::Status> outcome = Take(events[i], target, **transport))
        return *outcome;
    }
    if (count > 0 || !(*transport)->Arm()) continue;
    pollfd ready = {(*transport)->fd(), POLLIN, 0};
    (void)poll(&ready, 1, kPollMs);
  }
  return rdma::TimeoutError("connecting", target.uri);
}

}  // namespace

absl::Status JudgeLinkAnswer(rdma::Bytes frame) {
  const absl::StatusOr<LinkFrame> type = ParseLinkHeader(frame);
  if (type.ok() && *type == LinkFrame::kChallenge) return absl::OkStatus();
  if (!type.ok() || *type != LinkFrame::kRefused) {
    return absl::FailedPreconditionError(
        "what listens there is no server of a cluster; correct --cluster-listen");
  }
  const absl::StatusOr<LinkRefusedBody> refused = ParseLinkRefused(frame);
  if (!refused.ok()) {
    return absl::FailedPreconditionError(
        absl::StrCat("its answer is malformed: ", refused.status().message(),
                     "; install the same release of Osprey on all hosts"));
  }
  switch (static_cast<LinkRefusal>(refused->reason)) {
    case LinkRefusal::kVersion:
      return absl::FailedPreconditionError(
          absl::StrCat("it has versions ", refused->version_min, " to ", refused->version_max,
                       " of the protocol of links, and this kvcli ", kLinkVersionMin, " to ",
                       kLinkVersionMax, "; install the same release of Osprey on all hosts"));
    case LinkRefusal::kCluster:
      return absl::FailedPreconditionError(
          "a server of another cluster listens there; start each server at addresses of its own");
    case LinkRefusal::kIncarnation:
      return absl::FailedPreconditionError(
          "another server listens there, or another run of this one; repeat this check, and then "
          "start each server at addresses of its own");
    case LinkRefusal::kUnknownServer:
      return absl::OkStatus();
    case LinkRefusal::kWrongKey:
      break;
  }
  return absl::FailedPreconditionError(
      absl::StrCat("it refuses with the unknown reason ", refused->reason,
                   "; install the same release of Osprey on all hosts"));
}

absl::Status ProbeLink(const LinkTarget& target, absl::Duration timeout) {
  const absl::Time end = absl::Now() + timeout;
  rdma::VersionOffer offer;
  absl::Status outcome;
  do {
    outcome = ProbeInVersion(target, offer.version(), end);
  } while (offer.Repeats(outcome));
  return outcome;
}

}  // namespace osprey
