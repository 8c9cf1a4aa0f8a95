#include "server/cluster/links/outgoing_link.h"

#include <algorithm>
#include <cassert>
#include <cstring>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "rdma/errors.h"

namespace osprey {
namespace {

absl::Status BadPeer(absl::string_view what) {
  return absl::InvalidArgumentError(
      absl::StrCat("it does not keep to the protocol of links: ", what));
}

}  // namespace

OutgoingLink::OutgoingLink(LinkContext& context, std::vector<LinkPort>& ports, std::string server,
                           uint64_t incarnation)
    : context_(context),
      ports_(ports),
      server_(std::move(server)),
      incarnation_(incarnation),
      queue_(context.options.queue_bytes_max),
      backoff_(context.options.backoff_first, context.options.backoff_last,
               context.options.random()),
      log_(context.options.log) {}

absl::Status OutgoingLink::Send(uint8_t kind, std::string body) {
  if (state_ != State::kOpen) {
    return absl::UnavailableError(
        absl::StrCat("there is no link to server ", server_, "; wait for the next one"));
  }
  absl::Status status = queue_.Push(kind, std::move(body));
  if (status.ok()) ++context_.counters.messages_sent;
  return status;
}

void OutgoingLink::Connect(absl::Time now) {
  const auto peer = context_.peers.find(server_);
  assert(peer != context_.peers.end());
  const std::vector<std::string>& addresses = peer->second.addresses;
  backoff_.Attempt(now);
  state_ = State::kConnecting;
  timer_ = now + context_.options.attempt_max;
  uri_.clear();
  // The next address for which there is a transport.
  for (size_t tries = 0; tries < addresses.size(); ++tries) {
    const std::string& uri = addresses[attempts_++ % addresses.size()];
    const absl::StatusOr<rdma::Address> address = rdma::ParseAddress(uri);
    if (!address.ok()) return Fail(address.status(), now);
    const auto port = std::find_if(ports_.begin(), ports_.end(), [&](const LinkPort& one) {
      return one.scheme == address->scheme;
    });
    if (port == ports_.end()) continue;
    uri_ = uri;
    const absl::StatusOr<rdma::ConnectionId> id =
        port->transport->Connect(uri, /*affinity=*/0, offer_.version());
    if (!id.ok()) return Fail(id.status(), now);
    transport_ = port->transport.get();
    id_ = *id;
    return;
  }
  Fail(absl::FailedPreconditionError(
           "none of its addresses is of a kind at which this server listens; let both listen at "
           "rdma:// or both at shm:// addresses"),
       now);
}

void OutgoingLink::Take(const rdma::Event& event, absl::Time now) {
  switch (event.kind) {
    case rdma::Event::Kind::kConnected:
      return Connected(now);
    case rdma::Event::Kind::kReceived: {
      heard_at_ = now;
      const absl::Status status = TakeFrame(event.frame, now);
      if (!status.ok()) Fail(status, now);
      return;
    }
    case rdma::Event::Kind::kDisconnected: {
      id_ = rdma::ConnectionId::kNone;
      absl::Status why = event.status.ok() ? rdma::PeerGoneError("the server closed the connection")
                                           : event.status;
      if (state_ != State::kConnecting || !offer_.Repeats(why)) return Fail(why, now);
      --attempts_;
      return Connect(now);
    }
    case rdma::Event::Kind::kConnectRequest:
    case rdma::Event::Kind::kReadsDone:
    case rdma::Event::Kind::kDeviceLost:
      return;
  }
}

void OutgoingLink::Connected(absl::Time now) {
  frame_bytes_max_ = transport_->limits(id_).frame_bytes_max;
  if (frame_bytes_max_ < kLinkFrameBytesMin) {
    return Fail(BadPeer(absl::StrCat("it takes frames of ", frame_bytes_max_, " bytes at most; ",
                                     kLinkFrameBytesMin, " are the least")),
                now);
  }
  hello_ = LinkHelloBody();
  hello_.cluster_id = context_.options.cluster_id;
  hello_.server = LinkServerNameOf(context_.options.server);
  hello_.incarnation = context_.options.incarnation;
  hello_.expected_incarnation = incarnation_;
  nonces_.reset();
  heard_at_ = pinged_at_ = now;
  state_ = State::kGreeting;
  if (absl::Status status = SendFrame(LinkFrameOf(LinkFrame::kHello, hello_)); !status.ok())
    Fail(status, now);
}

absl::Status OutgoingLink::TakeFrame(rdma::Bytes frame, absl::Time now) {
  const absl::StatusOr<LinkFrame> type = ParseLinkHeader(frame);
  absl::Status status = type.status();
  if (type.ok()) {
    const bool greeting = state_ == State::kGreeting;
    if (greeting && *type == LinkFrame::kChallenge) {
      status = TakeChallenge(frame);
    } else if (greeting && *type == LinkFrame::kWelcome) {
      status = TakeWelcome(frame, now);
    } else if (greeting && *type == LinkFrame::kRefused) {
      return TakeRefused(frame);
    } else if (!greeting && *type == LinkFrame::kPong) {
      status = CheckEmptyLinkFrame(frame);
    } else {
      status = BadPeer(absl::StrCat("a frame of type ", static_cast<int>(*type),
                                    greeting ? " before Welcome" : " after Welcome"));
    }
  }
  if (absl::IsInvalidArgument(status)) ++context_.counters.bad_frames;
  return status;
}

absl::Status OutgoingLink::TakeChallenge(rdma::Bytes frame) {
  const absl::StatusOr<LinkChallengeBody> challenge = ParseLinkChallenge(frame);
  if (!challenge.ok()) return challenge.status();
  if (nonces_.has_value()) return BadPeer("it challenges twice");
  const rdma::AuthKey::Pointer& key = context_.options.key;
  if (key == nullptr) {
    return absl::PermissionDeniedError(
        "it requires the cluster's key; start this server with the same --cluster-key-file");
  }
  nonces_.emplace();
  nonces_->client = rdma::NonceFrom(context_.options.random);
  std::memcpy(nonces_->server.data(), challenge->nonce, nonces_->server.size());
  const rdma::Proof proof = rdma::ClientProof(*key, *nonces_, LinkBodyBytes(hello_));
  LinkResponseBody response;
  std::memcpy(response.nonce, nonces_->client.data(), nonces_->client.size());
  std::memcpy(response.mac, proof.data(), proof.size());
  return SendFrame(LinkFrameOf(LinkFrame::kResponse, response));
}

absl::Status OutgoingLink::TakeWelcome(rdma::Bytes frame, absl::Time now) {
  absl::StatusOr<LinkWelcomeBody> welcome = ParseLinkWelcome(frame);
  if (!welcome.ok()) return welcome.status();
  // The proof is checked before any other field is used.
  if (context_.options.key != nullptr) {
    if (!nonces_.has_value()) {
      return absl::PermissionDeniedError(
          "it does not prove that it has the cluster's key; start it with the same "
          "--cluster-key-file");
    }
    rdma::Proof claimed;
    std::memcpy(claimed.data(), welcome->proof, claimed.size());
    std::memset(welcome->proof, 0, sizeof(welcome->proof));
    const rdma::Proof right = rdma::ServerProof(*context_.options.key, *nonces_, hello_.cluster_id,
                                                LinkBodyBytes(*welcome));
    if (!rdma::SameProof(claimed, right)) {
      return absl::PermissionDeniedError(
          "its proof is not made with the cluster's key; start both servers with the same "
          "--cluster-key-file");
    }
  }
  if (welcome->incarnation != incarnation_) return BadPeer("it is another incarnation");
  state_ = State::kOpen;
  backoff_.Succeed(now);
  pinged_at_ = now;
  ++context_.counters.connected;
  context_.events.push_back({LinkEvent::Kind::kConnected, incarnation_, {}, 0, {}});
  return absl::OkStatus();
}

absl::Status OutgoingLink::TakeRefused(rdma::Bytes frame) const {
  const absl::StatusOr<LinkRefusedBody> refused = ParseLinkRefused(frame);
  if (!refused.ok()) return refused.status();
  switch (static_cast<LinkRefusal>(refused->reason)) {
    case LinkRefusal::kVersion:
      return absl::FailedPreconditionError(
          absl::StrCat("it speaks versions ", refused->version_min, " to ", refused->version_max,
                       " of the protocol of links, and this server ", kLinkVersionMin, " to ",
                       kLinkVersionMax, "; install the same release of Osprey on all servers"));
    case LinkRefusal::kCluster:
      return absl::FailedPreconditionError(
          "it belongs to another cluster; correct the server's --listen or --cluster");
    case LinkRefusal::kIncarnation:
      return absl::FailedPreconditionError(
          "it is not the incarnation that the configuration names; if this lasts, another server "
          "has its address: correct the server's --listen");
    case LinkRefusal::kUnknownServer:
      return absl::FailedPreconditionError(absl::StrCat(
          "its configuration does not name this incarnation of server ", context_.options.server,
          "; if this lasts, check that both servers can reach the same etcd"));
    case LinkRefusal::kWrongKey:
      return absl::PermissionDeniedError(
          "it does not accept this server's proof; start both servers with the same "
          "--cluster-key-file");
  }
  return absl::FailedPreconditionError(
      absl::StrCat("it refuses this server for the reason ", refused->reason,
                   ", of a later release; install the same release of Osprey on all servers"));
}

// Leaves the connection. After an open link its user receives the status.
void OutgoingLink::Leave(const absl::Status& status) {
  if (id_ != rdma::ConnectionId::kNone) transport_->Disconnect(id_);
  id_ = rdma::ConnectionId::kNone;
  transport_ = nullptr;
  if (state_ == State::kOpen) {
    context_.events.push_back({LinkEvent::Kind::kDisconnected, incarnation_, status, 0, {}});
  } else if (state_ != State::kPaused) {
    ++context_.counters.failed_attempts;
  }
  state_ = State::kPaused;
  queue_.Clear();
}

void OutgoingLink::Fail(const absl::Status& status, absl::Time now) {
  log_.Log(
      absl::StrCat(state_ == State::kOpen ? "the link to server " : "cannot connect to server ",
                   server_, uri_.empty() ? "" : " at ", uri_,
                   state_ == State::kOpen ? " has ended: " : ": ", status.message()),
      now);
  Leave(status);
  offer_.Reset();
  timer_ = backoff_.Pause(now);
}

void OutgoingLink::End(const absl::Status& status) {
  Leave(status);
  timer_ = absl::InfiniteFuture();
}

absl::Time OutgoingLink::ping_due() const {
  return std::max(heard_at_, pinged_at_) + context_.options.ping_after;
}

absl::Time OutgoingLink::timer() const {
  if (state_ != State::kOpen) return timer_;
  return std::min(ping_due(), heard_at_ + context_.options.silence_max);
}

bool OutgoingLink::CanSend() const { return has_queued() && transport_->SendRoom(id_) > 0; }

bool OutgoingLink::Advance(absl::Time now) {
  switch (state_) {
    case State::kPaused:
      if (now >= timer_) Connect(now);
      return false;
    case State::kConnecting:
    case State::kGreeting:
      if (now >= timer_) Fail(rdma::TimeoutError("connecting", uri_), now);
      return false;
    case State::kOpen:
      break;
  }
  if (now >= heard_at_ + context_.options.silence_max) {
    ++context_.counters.silent;
    Fail(absl::DeadlineExceededError(
             absl::StrCat("it has been silent for ", absl::FormatDuration(now - heard_at_))),
         now);
    return false;
  }
  const bool pinged = now >= ping_due() && Ping(now);
  return SendQueued(now) || pinged;
}

bool OutgoingLink::Ping(absl::Time now) {
  if (transport_->SendRoom(id_) == 0) return false;
  pinged_at_ = now;
  if (absl::Status status = SendFrame(LinkFrameOf(LinkFrame::kPing)); !status.ok())
    Fail(status, now);
  return true;
}

bool OutgoingLink::SendQueued(absl::Time now) {
  bool sent = false;
  while (CanSend()) {
    const absl::Status status = transport_->Send(id_, queue_.NextFrame(frame_bytes_max_));
    if (!status.ok()) {
      Fail(status, now);
      return sent;
    }
    queue_.Sent();
    sent = true;
  }
  return sent;
}

absl::Status OutgoingLink::SendFrame(const std::string& frame) {
  return transport_->Send(id_, {{reinterpret_cast<const std::byte*>(frame.data()), frame.size()}});
}

}  // namespace osprey
