// A connection from its Hello to its Welcome. See the diagram in connection.h.

#include <cassert>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "server/engine/connection.h"

namespace osprey::server {
namespace {

rdma::RemoteMemory RemoteOf(const rdma::WireMemory& wire) {
  return {wire.address, wire.length, wire.key};
}

}  // namespace

void Connection::TakeHello(rdma::FrameBytes frame, absl::Time now) {
  const absl::StatusOr<rdma::FrameHeader> header = rdma::ParseHeader(frame);
  if (!header.ok()) return lifecycle_.Malformed(header.status().message());
  if (header->opcode != static_cast<uint8_t>(rdma::Opcode::kHello))
    return lifecycle_.Malformed("the first frame is no Hello");
  const absl::StatusOr<rdma::HelloBody> hello = rdma::ParseHello(frame);
  if (!hello.ok()) return lifecycle_.Malformed(hello.status().message());
  if (shared_.key != nullptr) return SendChallenge(*hello, now);
  Proceed(*hello, now);
}

void Connection::SendChallenge(const rdma::HelloBody& hello, absl::Time now) {
  exchange_ = std::make_unique<Exchange>();
  exchange_->hello = hello;
  rdma::Nonce& nonce = exchange_->nonces.server;
  for (size_t i = 0; i < nonce.size(); i += sizeof(uint64_t)) {
    const uint64_t random = shared_.random();
    std::memcpy(&nonce[i], &random, sizeof(random));
  }
  rdma::ChallengeBody body;
  std::memcpy(body.server_nonce, nonce.data(), nonce.size());
  const rdma::Message<rdma::ChallengeBody> challenge(rdma::Opcode::kChallenge, 0, 0, body, 0);
  lifecycle_.Enter(State::kAwaitingResponse);
  replies_.SendOrQueue({challenge.bytes()}, now);
}

void Connection::TakeResponse(rdma::FrameBytes frame, absl::Time now) {
  const absl::StatusOr<rdma::FrameHeader> header = rdma::ParseHeader(frame);
  if (!header.ok()) return lifecycle_.Malformed(header.status().message());
  if (header->opcode != static_cast<uint8_t>(rdma::Opcode::kResponse))
    return Refuse(rdma::WireReason::kAuthenticationRequired, "it did not answer the challenge",
                  now);
  const absl::StatusOr<rdma::ResponseBody> response = rdma::ParseResponse(frame);
  if (!response.ok()) return lifecycle_.Malformed(response.status().message());
  rdma::Nonces& nonces = exchange_->nonces;
  std::memcpy(nonces.client.data(), response->client_nonce, nonces.client.size());
  rdma::Proof claimed;
  std::memcpy(claimed.data(), response->mac, claimed.size());
  const rdma::Proof right =
      rdma::ClientProof(*shared_.key, nonces, rdma::BodyBytes(exchange_->hello));
  if (!rdma::SameProof(claimed, right))
    return Refuse(rdma::WireReason::kAuthenticationFailed, "its key is not this server's", now);
  ticket_.Known();
  Proceed(exchange_->hello, now);
}

// Sends the client a Refused, once, and closes.
void Connection::Refuse(rdma::WireReason reason, absl::string_view detail, absl::Time now) {
  ++shared_.counters.authentication_failures;
  rdma::RefusedBody body;
  body.reason = static_cast<uint32_t>(reason);
  const rdma::Message<rdma::RefusedBody> refused(rdma::Opcode::kRefused, 0, 0, body, 0);
  replies_.SendOrQueue({refused.bytes()}, now);
  lifecycle_.Close(CloseReason::kUnauthenticated, detail);
}

void Connection::Proceed(const rdma::HelloBody& hello, absl::Time now) {
  liveness_.set_word(hello.liveness);
  const absl::Status attached = port_.transport.Attach(id_, RemoteOf(hello.liveness));
  if (!attached.ok())
    return lifecycle_.Malformed(absl::StrCat("its liveness word: ", attached.message()));

  if (hello.resume_session != 0) {
    Session* session = nullptr;
    if (hello.resume_incarnation == shared_.incarnation)
      session = shared_.sessions.Find(hello.resume_session);
    if (session != nullptr) {
      if (session_.Claim(*session)) return Welcome(/*resumed=*/true, now);
      return lifecycle_.Enter(State::kAwaitingFence);
    }
    ++shared_.counters.sessions_refused;
  }
  session_.Create();
  ++shared_.counters.sessions_created;
  Welcome(/*resumed=*/false, now);
}

void Connection::Welcome(bool resumed, absl::Time now) {
  if (resumed) ++shared_.counters.sessions_resumed;
  const absl::StatusOr<rdma::RemoteMemory> region = port_.transport.Expose(id_, port_.region);
  if (!region.ok()) return lifecycle_.Close(CloseReason::kFailed, region.status().message());
  rdma::WelcomeBody body;
  liveness_.InputCame(now);
  body.incarnation = shared_.incarnation;
  body.region = {region->address, region->length, region->key, 0};
  body.requests_max = kRequestsMax;
  body.resumed = resumed ? 1 : 0;
  body.value_bytes_max = shared_.value_bytes_max;
  body.server_time = replies_.ServerTimeNs();
  body.partitions = shared_.tables.partitions();
  body.wants_hints = shared_.tables.evicts() ? 1 : 0;
  body.wants_reports = shared_.client_gets != nullptr ? 1 : 0;
  body.eager_bytes_max = replies_.frame_bytes_max() -
                         static_cast<uint32_t>(sizeof(rdma::FrameHeader) + sizeof(rdma::PutBody));
  if (exchange_ != nullptr) {
    const rdma::Proof proof =
        rdma::ServerProof(*shared_.key, exchange_->nonces, session_->id, rdma::BodyBytes(body));
    std::memcpy(body.proof, proof.data(), proof.size());
    exchange_.reset();
    liveness_.InputCame(now + kWelcomeTakenMax());
  }
  const rdma::Message<rdma::WelcomeBody> welcome(rdma::Opcode::kWelcome, session_->id, 0, body, 0);
  lifecycle_.Enter(State::kEstablished);
  replies_.SendOrQueue({welcome.bytes()}, now);
}

}  // namespace osprey::server
