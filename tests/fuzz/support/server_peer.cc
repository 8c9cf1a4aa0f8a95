#include "tests/fuzz/support/server_peer.h"

#include <cstring>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "rdma/wire/batch.h"
#include "server/engine/engine.h"
#include "server/stats/admission.h"
#include "tests/fuzz/support/frame_bytes.h"
#include "tests/fuzz/support/input.h"

namespace osprey::server {

using fuzz::BytesOf;
using fuzz::Joined;
using rdma::Access;
using rdma::Event;
using rdma::Opcode;

Peer::Peer(fake::Network& network, rdma::Domain& domain, bool server_has_key)
    : network_(network), server_has_key_(server_has_key) {
  liveness_ = domain.Allocate(kLivenessBytes, Access::kRemoteRead).value();
  source_ = domain.Allocate(kSourceBytes, Access::kRemoteRead).value();
  domain_ = &domain;
}

void Peer::Connect(const rdma::TransportOptions& options, uint32_t affinity) {
  transport_ = domain_->NewTransport(options).value();
  connected_ = disconnected_ = welcomed_ = proved_ = challenged_ = false;
  replies_ = 0;
  sequence_ = 0;
  // A session that is resumed has its numbers already.
  id_ = transport_->Connect(kUri, affinity).value();
}

std::string Peer::HelloFrame(uint64_t resume_session, uint64_t resume_incarnation) {
  if (connected_ && !disconnected_) {
    const auto liveness = transport_->Expose(id_, *liveness_);
    const auto source = transport_->Expose(id_, *source_);
    if (liveness.ok() && source.ok()) {
      hello_.liveness = {liveness->address, kLivenessBytes, liveness->key, 0};
      source_remote_ = *source;
    }
  }
  hello_.resume_session = resume_session;
  hello_.resume_incarnation = resume_session == 0 ? 0 : resume_incarnation;
  hello_.resume_data_id = hello_.resume_incarnation == 1 ? kDataId : 0;
  return Joined({rdma::Message<rdma::HelloBody>(Opcode::kHello, 0, 0, hello_, 0).bytes()});
}

std::string Peer::ResponseFrame(const rdma::AuthKey& key, bool right) {
  nonces_.client = {std::byte{7}};
  const rdma::Proof proof = rdma::ClientProof(key, nonces_, rdma::BodyBytes(hello_));
  rdma::ResponseBody body;
  std::memcpy(body.client_nonce, nonces_.client.data(), nonces_.client.size());
  std::memcpy(body.mac, proof.data(), proof.size());
  if (!right) body.mac[9] ^= 1;
  proved_ |= right && challenged_;
  return Joined({rdma::Message<rdma::ResponseBody>(Opcode::kResponse, 0, 0, body, 0).bytes()});
}

bool Peer::Send(absl::string_view frame) {
  return transport_ != nullptr && !frame.empty() && transport_->Send(id_, {BytesOf(frame)}).ok();
}

void Peer::Poll() {
  if (transport_ == nullptr || asleep_) return;
  Event events[16];
  const size_t count = transport_->Poll(absl::MakeSpan(events));
  for (size_t i = 0; i < count; ++i) {
    switch (events[i].kind) {
      case Event::Kind::kConnected:
        connected_ = true;
        break;
      case Event::Kind::kReceived:
        Take(events[i].frame);
        break;
      case Event::Kind::kDisconnected:
        disconnected_ = true;
        break;
      case Event::Kind::kReadsDone:
      case Event::Kind::kConnectRequest:
      case Event::Kind::kDeviceLost:
        break;
    }
  }
}

void Peer::Take(rdma::Bytes frame) {
  const absl::StatusOr<rdma::FrameHeader> header = rdma::ParseHeader(frame);
  OSPREY_MUST(header.ok(), "the server sends a header that is none");
  const auto opcode = static_cast<Opcode>(header->opcode);
  OSPREY_MUST(
      !server_has_key_ || proved_ || opcode == Opcode::kChallenge || opcode == Opcode::kRefused,
      "a client that has not proved that it has the key got more than Challenge or Refused");
  switch (opcode) {
    case Opcode::kChallenge: {
      const absl::StatusOr<rdma::ChallengeBody> challenge = rdma::ParseChallenge(frame);
      OSPREY_MUST(challenge.ok() && !challenged_, "the server's Challenge");
      challenged_ = true;
      std::memcpy(nonces_.server.data(), challenge->server_nonce, nonces_.server.size());
      return;
    }
    case Opcode::kRefused:
      OSPREY_MUST(rdma::ParseRefused(frame).ok(), "the server's Refused");
      return;
    case Opcode::kWelcome:
      OSPREY_MUST(rdma::ParseWelcome(frame).ok() && !welcomed_, "the server's Welcome");
      welcomed_ = true;
      session_ = header->session;
      return;
    case Opcode::kReply: {
      const absl::StatusOr<rdma::Reply> reply = rdma::ParseReply(frame);
      OSPREY_MUST(reply.ok() && header->session == session_, "the server's Reply");
      ++replies_;
      last_code_ = static_cast<absl::StatusCode>(reply->body.status);
      return;
    }
    case Opcode::kBatch: {
      std::vector<rdma::FrameBytes> frames;
      OSPREY_MUST(rdma::ParseBatch(frame, frames).ok(), "the server's Batch");
      for (rdma::FrameBytes inner : frames) Take(inner);
      return;
    }
    case Opcode::kDisconnectNotice:
      OSPREY_MUST(rdma::ParseEmpty(frame).ok(), "the server's DisconnectNotice");
      return;
    default:
      OSPREY_MUST(false, "the server sends what only clients send");
  }
}

}  // namespace osprey::server
