#include "server/engine/connection/connection.h"

#include <algorithm>
#include <cassert>
#include <cstddef>
#include <deque>
#include <string>
#include <utility>
#include <vector>

#include "rdma/errors.h"
#include "rdma/wire/batch.h"

namespace osprey::server {
Connection::Connection(Shared& shared, const Port& port, rdma::ConnectionId id, std::string peer,
                       Admission::Ticket ticket, absl::Time now)
    : shared_(shared),
      port_(port),
      id_(id),
      ticket_(std::move(ticket)),
      lifecycle_(shared, std::move(peer), [this] { Release(); }),
      session_(shared.sessions, *this),
      replies_(shared, port_.transport, id, lifecycle_, session_),
      liveness_(shared, port_, id, lifecycle_, now),
      handshake_(shared, port_, id, ticket_, lifecycle_, session_, replies_, liveness_, now),
      turn_(shared),
      writes_(*this, shared, port_, id, lifecycle_, replies_, turn_),
      executor_(shared, port_.transport, id, lifecycle_, session_, replies_, writes_, now) {}

inline void Connection::InEstablished(const Input& input, absl::Time now) {
  switch (input.kind) {
    case Input::Kind::kFrame:
      liveness_.InputCame(now);
      return TakeFrame(input.frame, now);
    case Input::Kind::kStop:
      lifecycle_.Enter(State::kDraining);
      return LeaveWhenAnswered(now);
    case Input::Kind::kTime:
      replies_.Flush(now);
      if (now >= writes_.retry_at()) AdvanceWrites(now);
      return liveness_.Check(now);
    case Input::Kind::kConnected:
    case Input::Kind::kFenced:
      assert(false);
      return;
  }
}

void Connection::Handle(const Input& input, absl::Time now) {
  switch (lifecycle_.state()) {
    case State::kAccepting:
    case State::kAwaitingHello:
    case State::kAwaitingResponse:
    case State::kAwaitingFence:
      return handshake_.Handle(input, now);
    case State::kEstablished:
      return InEstablished(input, now);
    case State::kDraining:
      return InDraining(input, now);
    case State::kLeaving:
      return InLeaving(input, now);
    case State::kClosing:
      return;  // it does nothing more; kDisconnected is on its way
  }
}

void Connection::InDraining(const Input& input, absl::Time now) {
  switch (input.kind) {
    case Input::Kind::kFrame:
      liveness_.InputCame(now);
      return TakeFrame(input.frame, now);
    case Input::Kind::kTime:
      replies_.Flush(now);
      if (now >= writes_.retry_at()) AdvanceWrites(now);
      liveness_.Check(now);
      return LeaveWhenAnswered(now);
    case Input::Kind::kStop:
      return;
    case Input::Kind::kConnected:
    case Input::Kind::kFenced:
      assert(false);
      return;
  }
}

void Connection::InLeaving(const Input& input, absl::Time now) {
  switch (input.kind) {
    case Input::Kind::kFrame:
      return TakeFrame(input.frame, now);
    case Input::Kind::kTime:
      replies_.Flush(now);
      if (now >= leaving_since_ + kDisconnectNoticeGrace())
        lifecycle_.Close(CloseReason::kStopping, "the server ends");
      return;
    case Input::Kind::kStop:
      return;
    case Input::Kind::kConnected:
    case Input::Kind::kFenced:
      assert(false);
      return;
  }
}

void Connection::LeaveWhenAnswered(absl::Time now) {
  if (lifecycle_.state() != State::kDraining || !writes_.empty() || !replies_.empty() ||
      turn_.waiting() || batched())
    return;
  lifecycle_.Enter(State::kLeaving);
  leaving_since_ = now;
  const rdma::EmptyMessage disconnect_notice(rdma::Opcode::kDisconnectNotice, session_->id, 0);
  replies_.SendOrQueue({disconnect_notice.bytes()}, now);
}

void Connection::Close(CloseReason reason, absl::string_view detail) {
  lifecycle_.Close(reason, detail);
}

// What the connection holds, except what takes a lock: that stays until kDisconnected.
void Connection::Release() {
  replies_.Clear();
  turn_.DropWaiting();
  writes_.Stop();
  session_.Waive();
  port_.transport.Disconnect(id_);
}

void Connection::HandleReadsDone(uint64_t cookie, const absl::Status& status, absl::Time now) {
  if (cookie == LivenessProbe::kCookie) {
    // A rendezvous may have waited for this place.
    if (liveness_.OnReadDone(status, now)) AdvanceWrites(now);
    return;
  }
  if (!writes_.OnReadDone(cookie, status)) return;
  liveness_.InputCame(now);
  // While closing, no request is executed. The client will repeat the write, or never learn its
  // result.
  if (!lifecycle_.closing()) AdvanceWrites(now);
}

void Connection::AdvanceWrites(absl::Time now) {
  writes_.Advance(now);
  LeaveWhenAnswered(now);
}

// Their answers leave together. More of them fit into the space for values then.
void Connection::ApplyDecided(absl::Time now) {
  const bool was_gathering = replies_.gathering();
  replies_.set_gathering(true);
  writes_.ApplyDecided(now);
  replies_.set_gathering(was_gathering);
  if (!lifecycle_.closing() && !was_gathering) replies_.Flush(now);
  if (!lifecycle_.closing()) AdvanceWrites(now);
}

Connection* Connection::HandleDisconnected(const absl::Status& status, absl::Time now) {
  const bool broke_rules = rdma::BrokeRules(status);
  lifecycle_.Close(broke_rules ? CloseReason::kMalformed : CloseReason::kPeer, status.message());
  // The session's next connection finds the results of what is in the log.
  shared_.publish_decided(now);
  // Every READ has ended, so the reserved space can be returned.
  writes_.End();
  Connection* const claimant = session_.Release(now);
  if (claimant != nullptr) claimant->Handle({Input::Kind::kFenced, {}}, now);
  return claimant;
}

void Connection::Abandon() {
  writes_.Abandon();
  session_.Abandon();
}

absl::Time Connection::deadline() const {
  switch (lifecycle_.state()) {
    case State::kAccepting:
    case State::kAwaitingHello:
    case State::kAwaitingResponse:
    case State::kAwaitingFence:
      return handshake_.deadline();
    case State::kEstablished:
    case State::kDraining:
      return std::min({liveness_.deadline(), replies_.deadline(), writes_.retry_at()});
    case State::kLeaving:
      return leaving_since_ + kDisconnectNoticeGrace();
    case State::kClosing:
      return absl::InfiniteFuture();
  }
  return absl::InfiniteFuture();
}

// --- Frames and turns ----------------------------------------------------------------------------

// False if the request is none that is executed together with others.
[[gnu::always_inline]] inline bool Connection::AddToBatch(const rdma::FrameHeader& header,
                                                          rdma::FrameBytes frame, bool waited) {
  PartitionBatch::Request& request = shared_.partition_batch.Place();
  if (shared_.partition_batch.keeps_frames()) frame = shared_.partition_batch.Keep(frame);
  if (!IsKeyed(header.opcode) || !ParseKeyed(header, frame, request).ok() || request.rendezvous)
    return false;
  request.connection = this;
  request.cost = static_cast<uint32_t>(TurnBudget::CostOfKeyed(request.frame));
  request.waited = waited;
  request.hash = shared_.tables.HashOf(request.key);
  if (turn_.AddBatched(request.cost) == 0) shared_.partition_batch.AddConnection(*this);
  const uint32_t partition = shared_.tables.PartitionOf(request.hash);
  request.hint = shared_.tables.Prefetch(partition, request.hash);
  shared_.partition_batch.Add(partition);
  return true;
}

// Executes the frame together with others if possible, else now. In line for a frame alone and for
// those of a Batch.
[[gnu::always_inline]] inline void Connection::Take(const rdma::FrameHeader& header,
                                                    rdma::FrameBytes frame, absl::Time now) {
  if (turn_.IsOver()) return Defer(frame, now);
  if (!AddToBatch(header, frame, /*waited=*/false)) {
    shared_.execute_batched(now);
    if (lifecycle_.closing()) return;
    // The batched requests may have cost more than expected.
    return turn_.IsOver() ? Keep(frame) : Execute(header, frame, now);
  }
  if (shared_.partition_batch.full()) shared_.execute_batched(now);
}

void Connection::TakeFrame(rdma::FrameBytes frame, absl::Time now) {
  if (absl::Status status = rdma::CheckHeader(frame); !status.ok())
    return MalformedFrame(status.message(), now);
  const rdma::FrameHeader header = rdma::HeaderOf(frame);
  if (header.session != session_->id)
    return MalformedFrame("session is not this connection's", now);
  if (header.opcode == static_cast<uint8_t>(rdma::Opcode::kBatch)) return TakeBatch(frame, now);
  Take(header, frame, now);
}

// Earlier requests are executed first.
void Connection::MalformedFrame(absl::string_view detail, absl::Time now) {
  shared_.execute_batched(now);
  lifecycle_.Malformed(detail);
}

// Executes the frames one by one, in order; their replies leave together. A malformed frame ends
// the connection when its turn comes, as it would alone.
void Connection::TakeBatch(rdma::FrameBytes frame, absl::Time now) {
  std::vector<rdma::FrameBytes>& frames = shared_.batch;
  if (absl::Status status = rdma::ParseBatch(frame, frames); !status.ok())
    return MalformedFrame(status.message(), now);
  ++shared_.counters.batches;
  shared_.counters.batched_requests += frames.size();
  replies_.set_gathering(true);
  for (rdma::FrameBytes request : frames) {
    Take(rdma::HeaderOf(request), request, now);
    if (lifecycle_.closing()) break;
  }
  replies_.set_gathering(false);
  replies_.Flush(now);
}

void Connection::Execute(const rdma::FrameHeader& header, rdma::FrameBytes frame, absl::Time now) {
  const uint64_t cost = TurnBudget::CostOf(header, frame);
  executor_.Execute(header, frame, now);
  turn_.ChargeRequest(cost);
}

// Puts the frame off to a turn of its own. Batched requests are executed first: some of them may
// have to wait as well, and precede it.
void Connection::Defer(rdma::FrameBytes frame, absl::Time now) {
  if (batched()) shared_.execute_batched(now);
  Keep(frame);
}

// Copies the frame, which the transport keeps only until the next turn.
void Connection::Keep(rdma::FrameBytes frame) {
  if (lifecycle_.closing()) return;
  if (!turn_.Keep(frame)) lifecycle_.Malformed("more requests unanswered than requests_max");
}

absl::optional<Decision> Connection::DecideBatched(const PartitionBatch::Request& request,
                                                   index::Table& table, const Decision* replaced,
                                                   absl::Time now) {
  turn_.RemoveBatched(request.cost);
  if (lifecycle_.closing()) return absl::nullopt;
  lifecycle_.set_locked(true);
  absl::optional<Decision> decision;
  if (!request.waited && (turn_.waiting() || turn_.used_up())) {
    Keep(request.frame);
  } else {
    decision = executor_.DecideKeyed(request, table, replaced, now);
    turn_.ChargeRequest(request.cost);
  }
  lifecycle_.set_locked(false);
  return decision;
}

void Connection::ApplyBatched(const PartitionBatch::Request& request, const Decision& decision,
                              index::Table& table, PartitionChanges& changes, absl::Time now) {
  lifecycle_.set_locked(true);
  executor_.ApplyKeyed(request, decision, table, changes, now);
  turn_.ChargeEffort();
  lifecycle_.set_locked(false);
}

void Connection::AnswerReplaced(const PartitionBatch::Request& request, const Decision& decision,
                                absl::Time now) {
  lifecycle_.set_locked(true);
  executor_.AnswerReplaced(request, decision, now);
  lifecycle_.set_locked(false);
}

void Connection::Work(absl::Time now) {
  assert(busy());
  turn_.Enter();
  writes_.Work(now);
  LeaveWhenAnswered(now);
  WorkOffBacklog(now);
}

// As many as fit into this turn, together: under sync they share a sync.
void Connection::WorkOffBacklog(absl::Time now) {
  if (!turn_.waiting()) return;
  std::deque<std::string> frames;  // of the batched requests
  replies_.set_gathering(true);
  while (turn_.waiting() && !turn_.WillBeUsedUp()) {
    const std::string& frame = frames.emplace_back(turn_.TakeWaiting());
    const rdma::FrameBytes bytes(reinterpret_cast<const std::byte*>(frame.data()), frame.size());
    const rdma::FrameHeader header = rdma::HeaderOf(bytes);
    const bool is_batched = AddToBatch(header, bytes, /*waited=*/true);
    if (!is_batched || shared_.partition_batch.full()) shared_.execute_batched(now);
    if (!is_batched && !lifecycle_.closing()) Execute(header, bytes, now);
  }
  shared_.execute_batched(now);
  replies_.set_gathering(false);
  replies_.Flush(now);
  LeaveWhenAnswered(now);
}

}  // namespace osprey::server
