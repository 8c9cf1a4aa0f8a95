#include "server/cluster/links/incoming_link.h"

#include <algorithm>
#include <cassert>
#include <cstring>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"

namespace osprey {
namespace {

// A refused peer disconnects when it has read why. This one does after so long.
constexpr absl::Duration kRefusedMax() { return absl::Milliseconds(500); }

// What the log says of a refused peer, with the fix.
std::string ReasonOf(LinkRefusal reason, const LinkHelloBody& hello) {
  switch (reason) {
    case LinkRefusal::kVersion:
      return absl::StrCat("it speaks versions ", hello.version_min, " to ", hello.version_max,
                          " of the protocol of links, and this server ", kLinkVersionMin, " to ",
                          kLinkVersionMax, "; install the same release of Osprey on all servers");
    case LinkRefusal::kCluster:
      return "it belongs to another cluster; correct its --cluster, or the address that it has";
    case LinkRefusal::kIncarnation:
      return "it looks for another incarnation of this server; if this lasts, check that both "
             "servers can reach the same etcd";
    case LinkRefusal::kUnknownServer:
      return "the configuration does not name that incarnation of it; if this lasts, check that "
             "both servers can reach the same etcd";
    case LinkRefusal::kWrongKey:
      return "its proof is not made with this server's key; start both servers with the same "
             "--cluster-key-file";
  }
  return "";
}

}  // namespace

IncomingLink::IncomingLink(LinkContext& context, rdma::Transport& transport, rdma::ConnectionId id,
                           std::string peer, server::Admission::Ticket ticket, absl::Time now)
    : context_(context),
      transport_(transport),
      id_(id),
      peer_(std::move(peer)),
      ticket_(std::move(ticket)),
      deadline_(now + context.options.attempt_max),
      heard_at_(now) {}

IncomingLink::Change IncomingLink::Take(const rdma::Event& event, absl::Time now) {
  switch (event.kind) {
    case rdma::Event::Kind::kConnected:
      return Connected(now);
    case rdma::Event::Kind::kReceived:
      heard_at_ = now;
      return TakeFrame(event.frame, now);
    case rdma::Event::Kind::kConnectRequest:
    case rdma::Event::Kind::kReadsDone:
    case rdma::Event::Kind::kDisconnected:
    case rdma::Event::Kind::kDeviceLost:
      return Change::kNone;
  }
  return Change::kNone;
}

IncomingLink::Change IncomingLink::Connected(absl::Time now) {
  assert(state_ == State::kAccepting);
  const uint32_t frame_bytes_max = transport_.limits(id_).frame_bytes_max;
  if (frame_bytes_max < kLinkFrameBytesMin) {
    return Malformed(absl::StrCat("it takes frames of ", frame_bytes_max, " bytes at most; ",
                                  kLinkFrameBytesMin, " are the least"),
                     now);
  }
  state_ = State::kAwaitingHello;
  return Change::kNone;
}

IncomingLink::Change IncomingLink::TakeFrame(rdma::Bytes frame, absl::Time now) {
  if (state_ == State::kRefused) return Change::kNone;
  const absl::StatusOr<LinkFrame> type = ParseLinkHeader(frame);
  if (!type.ok()) return Malformed(type.status().message(), now);
  switch (state_) {
    case State::kAwaitingHello:
      if (*type == LinkFrame::kHello) return TakeHello(frame, now);
      return Malformed("its first frame is no Hello", now);
    case State::kAwaitingResponse:
      if (*type == LinkFrame::kResponse) return TakeResponse(frame, now);
      return Malformed("it did not answer the challenge", now);
    case State::kOpen:
      if (*type == LinkFrame::kData) return TakeMessages(frame, now);
      if (*type == LinkFrame::kPing) {
        const absl::Status status = CheckEmptyLinkFrame(frame);
        if (!status.ok()) return Malformed(status.message(), now);
        owes_pong_ = true;
        return Advance(now);
      }
      return Malformed(absl::StrCat("a frame of type ", static_cast<int>(*type), " after Welcome"),
                       now);
    case State::kAccepting:
    case State::kRefused:
      break;
  }
  assert(false);  // kConnected comes before any frame
  return Change::kNone;
}

IncomingLink::Change IncomingLink::TakeHello(rdma::Bytes frame, absl::Time now) {
  const absl::StatusOr<LinkHelloBody> hello = ParseLinkHello(frame);
  if (!hello.ok()) return Malformed(hello.status().message(), now);
  hello_ = *hello;
  if (const std::optional<LinkRefusal> reason = WhyNot()) return Refuse(*reason, now);
  if (context_.options.key != nullptr) return Challenge(now);
  return IsPeer() ? Welcome(now) : Refuse(LinkRefusal::kUnknownServer, now);
}

// Why its Hello cannot be meant for this server. That is no secret: it is sent before the proof.
std::optional<LinkRefusal> IncomingLink::WhyNot() const {
  if (hello_.version_min > kLinkVersionMax || hello_.version_max < kLinkVersionMin)
    return LinkRefusal::kVersion;
  if (hello_.cluster_id != context_.options.cluster_id) return LinkRefusal::kCluster;
  if (hello_.expected_incarnation != context_.options.incarnation) return LinkRefusal::kIncarnation;
  return std::nullopt;
}

bool IncomingLink::IsPeer() const {
  const auto peer = context_.peers.find(ServerOf(hello_.server));
  return peer != context_.peers.end() && peer->second.incarnation == hello_.incarnation;
}

IncomingLink::Change IncomingLink::Challenge(absl::Time now) {
  nonces_.server = rdma::NonceFrom(context_.options.random);
  LinkChallengeBody challenge;
  std::memcpy(challenge.nonce, nonces_.server.data(), nonces_.server.size());
  const absl::Status status = SendFrame(LinkFrameOf(LinkFrame::kChallenge, challenge));
  if (!status.ok()) return Disconnect(status.message(), now);
  state_ = State::kAwaitingResponse;
  return Change::kNone;
}

IncomingLink::Change IncomingLink::TakeResponse(rdma::Bytes frame, absl::Time now) {
  const absl::StatusOr<LinkResponseBody> response = ParseLinkResponse(frame);
  if (!response.ok()) return Malformed(response.status().message(), now);
  std::memcpy(nonces_.client.data(), response->nonce, nonces_.client.size());
  rdma::Proof claimed;
  std::memcpy(claimed.data(), response->mac, claimed.size());
  const rdma::Proof right =
      rdma::ClientProof(*context_.options.key, nonces_, LinkBodyBytes(hello_));
  if (!rdma::SameProof(claimed, right)) return Refuse(LinkRefusal::kWrongKey, now);
  ticket_.Known();
  return IsPeer() ? Welcome(now) : Refuse(LinkRefusal::kUnknownServer, now);
}

IncomingLink::Change IncomingLink::Welcome(absl::Time now) {
  LinkWelcomeBody welcome;
  welcome.version = std::min(hello_.version_max, kLinkVersionMax);
  welcome.incarnation = context_.options.incarnation;
  if (context_.options.key != nullptr) {
    const rdma::Proof proof = rdma::ServerProof(*context_.options.key, nonces_, hello_.cluster_id,
                                                LinkBodyBytes(welcome));
    std::memcpy(welcome.proof, proof.data(), proof.size());
  }
  const absl::Status status = SendFrame(LinkFrameOf(LinkFrame::kWelcome, welcome));
  if (!status.ok()) return Disconnect(status.message(), now);
  state_ = State::kOpen;
  ++context_.counters.accepted;
  return Change::kOpened;
}

IncomingLink::Change IncomingLink::TakeMessages(rdma::Bytes frame, absl::Time now) {
  const absl::Status status = messages_.Take(frame, [this](uint8_t kind, std::string body) {
    ++context_.counters.messages_received;
    context_.events.push_back(
        {LinkEvent::Kind::kMessage, hello_.incarnation, absl::OkStatus(), kind, std::move(body)});
  });
  return status.ok() ? Change::kNone : Malformed(status.message(), now);
}

IncomingLink::Change IncomingLink::Refuse(LinkRefusal reason, absl::Time now) {
  ++context_.counters.refused;
  context_.incoming_log.Log(absl::StrCat(Name(), " is refused: ", ReasonOf(reason, hello_)), now);
  LinkRefusedBody body;
  body.reason = static_cast<uint32_t>(reason);
  body.version_min = kLinkVersionMin;
  body.version_max = kLinkVersionMax;
  // If it cannot be sent, the peer is not told why.
  (void)SendFrame(LinkFrameOf(LinkFrame::kRefused, body));
  state_ = State::kRefused;
  deadline_ = std::min(deadline_, now + kRefusedMax());
  return Change::kNone;
}

IncomingLink::Change IncomingLink::Malformed(absl::string_view what, absl::Time now) {
  ++context_.counters.bad_frames;
  return Disconnect(absl::StrCat("it does not keep to the protocol of links: ", what), now);
}

IncomingLink::Change IncomingLink::Disconnect(absl::string_view why, absl::Time now) {
  context_.incoming_log.Log(absl::StrCat(Name(), " is disconnected: ", why), now);
  transport_.Disconnect(id_);
  return Change::kEnded;
}

absl::Time IncomingLink::timer() const {
  return state_ == State::kOpen ? heard_at_ + context_.options.silence_max : deadline_;
}

IncomingLink::Change IncomingLink::Advance(absl::Time now) {
  if (state_ != State::kOpen) {
    if (now < deadline_) return Change::kNone;
    if (state_ != State::kRefused)
      return Disconnect("it has not proved in time which server it is", now);
    transport_.Disconnect(id_);
    return Change::kEnded;
  }
  if (now >= heard_at_ + context_.options.silence_max) {
    ++context_.counters.silent;
    return Disconnect(
        absl::StrCat("it has been silent for ", absl::FormatDuration(now - heard_at_)), now);
  }
  if (owes_pong_ && transport_.SendRoom(id_) > 0) {
    owes_pong_ = false;
    const absl::Status status = SendFrame(LinkFrameOf(LinkFrame::kPong));
    if (!status.ok()) return Disconnect(status.message(), now);
  }
  return Change::kNone;
}

absl::Status IncomingLink::SendFrame(const std::string& frame) {
  return transport_.Send(id_, {{reinterpret_cast<const std::byte*>(frame.data()), frame.size()}});
}

std::string IncomingLink::Name() const {
  const absl::string_view server = ServerOf(hello_.server);
  if (server.empty()) return absl::StrCat("the peer ", peer_, " of this server's links");
  return absl::StrCat(state_ == State::kOpen ? "server " : "the peer that names itself server ",
                      server, ", ", peer_, ",");
}

}  // namespace osprey
