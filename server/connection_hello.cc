// The way of a connection from its Hello to its Welcome. See the drawing in connection.h.

#include <cassert>

#include "absl/strings/str_cat.h"
#include "server/connection.h"

namespace osprey::server {
namespace {

rdma::RemoteMemory RemoteOf(const rdma::WireMemory& wire) {
  return {wire.address, wire.length, wire.key};
}

}  // namespace

void Connection::TakeHello(rdma::FrameBytes frame, absl::Time now) {
  const absl::StatusOr<rdma::FrameHeader> header = rdma::ParseHeader(frame);
  if (!header.ok()) return Malformed(header.status().message());
  if (header->opcode != static_cast<uint8_t>(rdma::Opcode::kHello))
    return Malformed("the first frame is no Hello");
  const absl::StatusOr<rdma::HelloBody> hello = rdma::ParseHello(frame);
  if (!hello.ok()) return Malformed(hello.status().message());
  liveness_ = hello->liveness;
  const absl::Status attached = port_.transport.Attach(id_, RemoteOf(liveness_));
  if (!attached.ok()) return Malformed(absl::StrCat("its liveness word: ", attached.message()));

  if (hello->resume_session != 0) {
    Session* session = nullptr;
    if (hello->resume_incarnation == shared_.incarnation)
      session = shared_.sessions.Find(hello->resume_session);
    if (session != nullptr) return Claim(*session, now);
    ++shared_.counters.sessions_refused;
  }
  session_ = &shared_.sessions.Create(this);
  ++shared_.counters.sessions_created;
  Welcome(/*resumed=*/false, now);
}

// W9: a session goes on only when nothing of its old connection can happen any more.
void Connection::Claim(Session& session, absl::Time now) {
  if (session.owner == nullptr) {
    shared_.sessions.Own(session, this);
    session_ = &session;
    return Welcome(/*resumed=*/true, now);
  }
  if (session.claimant != nullptr)
    session.claimant->Close(CloseReason::kSuperseded, "its client connected once more");
  assert(session.claimant == nullptr);
  session.claimant = this;
  claimed_ = &session;
  state_ = State::kAwaitingFence;
  session.owner->Close(CloseReason::kSuperseded, "its client connected once more");
}

void Connection::Welcome(bool resumed, absl::Time now) {
  if (resumed) ++shared_.counters.sessions_resumed;
  const absl::StatusOr<rdma::RemoteMemory> region = port_.transport.Expose(id_, port_.region);
  if (!region.ok()) return Close(CloseReason::kFailed, region.status().message());
  rdma::WelcomeBody body;
  body.incarnation = shared_.incarnation;
  body.region = {region->address, region->length, region->key, 0};
  body.requests_max = kRequestsMax;
  body.resumed = resumed ? 1 : 0;
  body.value_bytes_max = shared_.value_bytes_max;
  body.partitions = shared_.tables.partitions();
  body.wants_hints = shared_.tables.evicts() ? 1 : 0;
  body.eager_bytes_max = limits_.frame_bytes_max -
                         static_cast<uint32_t>(sizeof(rdma::FrameHeader) + sizeof(rdma::PutBody));
  const rdma::Message<rdma::WelcomeBody> welcome(rdma::Opcode::kWelcome, session_->id, 0, body, 0);
  state_ = State::kEstablished;
  heard_ = now;
  SendOrQueue({welcome.bytes()}, now);
}

}  // namespace osprey::server
