#include "server/engine/connection/handshake.h"

#include <cassert>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "server/requests/sessions.h"

namespace osprey::server {
namespace {

// The least frame length of a connection: the one that clients require themselves, for the longest
// key.
constexpr size_t kFrameBytesLeast =
    sizeof(rdma::FrameHeader) + sizeof(rdma::PutBody) + rdma::kKeyBytesMax;
static_assert(kFrameBytesLeast >= sizeof(rdma::FrameHeader) + sizeof(rdma::WelcomeBody));
static_assert(kFrameBytesLeast >= sizeof(rdma::FrameHeader) + sizeof(rdma::ChallengeBody));
static_assert(kFrameBytesLeast > sizeof(rdma::FrameHeader) + sizeof(rdma::ReplyBody));

rdma::RemoteMemory RemoteOf(const rdma::WireMemory& wire) {
  return {wire.address, wire.length, wire.key};
}

}  // namespace

void Handshake::Handle(const Input& input, absl::Time now) {
  switch (input.kind) {
    case Input::Kind::kConnected:
      return Connected();
    case Input::Kind::kFrame:
      return TakeFrame(input.frame, now);
    case Input::Kind::kFenced:
      assert(lifecycle_.state() == State::kAwaitingFence);
      session_.TakeOver();
      return Welcome(/*resumed=*/true, now);
    case Input::Kind::kStop:
      return lifecycle_.Close(CloseReason::kStopping, "the server ends");
    case Input::Kind::kTime:
      if (now >= deadline_) lifecycle_.Close(CloseReason::kHelloTimeout, Missing());
      return;
  }
}

void Handshake::Connected() {
  assert(lifecycle_.state() == State::kAccepting);
  const uint32_t frame_bytes_max = port_.transport.limits(id_).frame_bytes_max;
  replies_.set_frame_bytes_max(frame_bytes_max);
  // The client gives this length itself, and no reply may be longer.
  if (frame_bytes_max < kFrameBytesLeast) {
    return lifecycle_.Malformed(absl::StrCat("it takes frames of ", frame_bytes_max,
                                             " bytes at most; ", kFrameBytesLeast,
                                             " are the least"));
  }
  lifecycle_.Enter(State::kAwaitingHello);
}

void Handshake::TakeFrame(rdma::FrameBytes frame, absl::Time now) {
  switch (lifecycle_.state()) {
    case State::kAwaitingHello:
      // It may end the connection of its session, which may have sent requests before.
      shared_.execute_batched(now);
      return TakeHello(frame, now);
    case State::kAwaitingResponse:
      shared_.execute_batched(now);  // likewise
      return TakeResponse(frame, now);
    case State::kAwaitingFence:
      return lifecycle_.Malformed("a frame came between Hello and Welcome");
    default:
      assert(false);  // kConnected comes before any frame
      return;
  }
}

absl::string_view Handshake::Missing() const {
  switch (lifecycle_.state()) {
    case State::kAccepting:
      return "it did not connect in time";
    case State::kAwaitingHello:
      return "no Hello came in time";
    case State::kAwaitingResponse:
      return "no response to the challenge came in time";
    default:
      return "the session's old connection did not end in time";
  }
}

void Handshake::TakeHello(rdma::FrameBytes frame, absl::Time now) {
  const absl::StatusOr<rdma::FrameHeader> header = rdma::ParseHeader(frame);
  if (!header.ok()) return lifecycle_.Malformed(header.status().message());
  if (header->opcode != static_cast<uint8_t>(rdma::Opcode::kHello))
    return lifecycle_.Malformed("the first frame is no Hello");
  const absl::StatusOr<rdma::HelloBody> hello = rdma::ParseHello(frame);
  if (!hello.ok()) return lifecycle_.Malformed(hello.status().message());
  if (shared_.key != nullptr) return SendChallenge(*hello, now);
  Proceed(*hello, now);
}

void Handshake::SendChallenge(const rdma::HelloBody& hello, absl::Time now) {
  exchange_ = std::make_unique<Exchange>();
  exchange_->hello = hello;
  const rdma::Nonce nonce = rdma::NonceFrom(shared_.random);
  exchange_->nonces.server = nonce;
  rdma::ChallengeBody body;
  std::memcpy(body.server_nonce, nonce.data(), nonce.size());
  const rdma::Message<rdma::ChallengeBody> challenge(rdma::Opcode::kChallenge, 0, 0, body, 0);
  lifecycle_.Enter(State::kAwaitingResponse);
  replies_.SendOrQueue({challenge.bytes()}, now);
}

void Handshake::TakeResponse(rdma::FrameBytes frame, absl::Time now) {
  const absl::StatusOr<rdma::FrameHeader> header = rdma::ParseHeader(frame);
  if (!header.ok()) return lifecycle_.Malformed(header.status().message());
  if (header->opcode != static_cast<uint8_t>(rdma::Opcode::kResponse))
    return RefuseUnproven(Reason::kAuthenticationRequired, "it did not answer the challenge", now);
  const absl::StatusOr<rdma::ResponseBody> response = rdma::ParseResponse(frame);
  if (!response.ok()) return lifecycle_.Malformed(response.status().message());
  rdma::Nonces& nonces = exchange_->nonces;
  std::memcpy(nonces.client.data(), response->client_nonce, nonces.client.size());
  rdma::Proof claimed;
  std::memcpy(claimed.data(), response->mac, claimed.size());
  const rdma::Proof right =
      rdma::ClientProof(*shared_.key, nonces, rdma::BodyBytes(exchange_->hello));
  if (!rdma::SameProof(claimed, right))
    return RefuseUnproven(Reason::kAuthenticationFailed, "its key is not this server's", now);
  ticket_.Known();
  Proceed(exchange_->hello, now);
}

// Sends the client a Refused, once, and closes.
void Handshake::RefuseUnproven(Reason reason, absl::string_view detail, absl::Time now) {
  ++shared_.counters.authentication_failures;
  rdma::RefusedBody body;
  body.reason = WireNumberOf(reason);
  SendRefused(body, now);
  lifecycle_.Close(CloseReason::kUnauthenticated, detail);
}

void Handshake::SendRefused(const rdma::RefusedBody& body, absl::Time now) {
  const rdma::Message<rdma::RefusedBody> refused(rdma::Opcode::kRefused, 0, 0, body, 0);
  replies_.SendOrQueue({refused.bytes()}, now);
}

// If not, it was refused.
bool Handshake::WantsThisShard(const rdma::HelloBody& hello, absl::Time now) {
  const bool same_count = hello.shards == 0 || hello.shards == shared_.shards;
  if (same_count && hello.shard == shared_.shard) return true;
  rdma::RefusedBody body;
  body.reason = WireNumberOf(Reason::kWrongShard);
  body.shard = static_cast<uint16_t>(shared_.shard);
  body.shards = static_cast<uint16_t>(shared_.shards);
  SendRefused(body, now);
  lifecycle_.Close(CloseReason::kWrongShard,
                   absl::StrCat("it requests shard ", hello.shard, " of ",
                                hello.shards == 0 ? "any number" : absl::StrCat(hello.shards),
                                "; this server has shard ", shared_.shard, " of ", shared_.shards));
  return false;
}

// Instead of a Welcome.
void Handshake::TellServers(absl::Time now) {
  std::string servers = shared_.cluster_servers();
  const size_t bytes_max =
      replies_.frame_bytes_max() - sizeof(rdma::FrameHeader) - sizeof(rdma::ElsewhereBody);
  // Whole lines alone. (rfind finds the end of the last one that fits.)
  if (servers.size() > bytes_max) servers.resize(servers.rfind('\n', bytes_max - 1) + 1);
  rdma::ElsewhereBody body;
  body.servers_length = static_cast<uint32_t>(servers.size());
  if (exchange_ != nullptr) {
    const rdma::Proof proof =
        rdma::ServersProof(*shared_.key, exchange_->nonces, shared_.data_id, servers);
    std::memcpy(body.proof, proof.data(), proof.size());
  }
  const rdma::Message<rdma::ElsewhereBody> notice(rdma::Opcode::kDisconnectNotice, shared_.data_id,
                                                  0, body, servers.size());
  replies_.SendOrQueue(
      {notice.bytes(),
       rdma::FrameBytes(reinterpret_cast<const std::byte*>(servers.data()), servers.size())},
      now);
  lifecycle_.Close(CloseReason::kNotServing, "it has the addresses of the cluster's servers");
}

void Handshake::Proceed(const rdma::HelloBody& hello, absl::Time now) {
  if (shared_.only_tells_servers) return TellServers(now);
  if (!WantsThisShard(hello, now)) return;
  liveness_.set_word(hello.liveness);
  const absl::Status attached = port_.transport.Attach(id_, RemoteOf(hello.liveness));
  if (!attached.ok())
    return lifecycle_.Malformed(absl::StrCat("its liveness word: ", attached.message()));

  if (hello.resume_session != 0) {
    Session* session = nullptr;
    const bool is_same_data = shared_.data_id != 0 && hello.resume_data_id == shared_.data_id;
    if (is_same_data || hello.resume_incarnation == shared_.incarnation)
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

void Handshake::Welcome(bool resumed, absl::Time now) {
  if (resumed) ++shared_.counters.sessions_resumed;
  const absl::StatusOr<rdma::RemoteMemory> region = port_.transport.Expose(id_, port_.region);
  if (!region.ok()) return lifecycle_.Close(CloseReason::kFailed, region.status().message());
  rdma::WelcomeBody body;
  liveness_.InputCame(now);
  body.incarnation = shared_.incarnation;
  body.data_id = shared_.data_id;
  body.region = {region->address, region->length, region->key, 0};
  body.requests_max = kRequestsMax;
  body.resumed = resumed ? 1 : 0;
  body.value_bytes_max = shared_.value_bytes_max;
  body.server_time = replies_.ServerTimeNs();
  body.partitions = shared_.tables.partitions();
  body.wants_hints = shared_.tables.evicts() ? 1 : 0;
  body.wants_reports = shared_.client_gets != nullptr ? 1 : 0;
  body.in_cluster = shared_.in_cluster ? 1 : 0;
  body.shards = shared_.shards;
  body.shard = shared_.shard;
  body.eager_bytes_max = replies_.frame_bytes_max() -
                         static_cast<uint32_t>(sizeof(rdma::FrameHeader) + sizeof(rdma::PutBody));
  if (exchange_ != nullptr) {
    const rdma::Proof proof =
        rdma::ServerProof(*shared_.key, exchange_->nonces, session_->id, rdma::BodyBytes(body));
    std::memcpy(body.proof, proof.data(), proof.size());
    exchange_.reset();
    liveness_.SpareUntil(now + kWelcomeTakenMax());
  }
  const rdma::Message<rdma::WelcomeBody> welcome(rdma::Opcode::kWelcome, session_->id, 0, body, 0);
  lifecycle_.Enter(State::kEstablished);
  replies_.SendOrQueue({welcome.bytes()}, now);
}

}  // namespace osprey::server
