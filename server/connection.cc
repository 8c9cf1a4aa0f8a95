#include "server/connection.h"

#include <algorithm>
#include <cassert>
#include <utility>

#include "absl/strings/str_cat.h"

namespace osprey::server {

Connection::Connection(Shared& shared, const Port& port, rdma::ConnectionId id, std::string peer,
                       absl::Time now)
    : shared_(shared),
      port_(port),
      id_(id),
      peer_(std::move(peer)),
      hello_deadline_(now + kHelloTimeout()),
      heard_(now) {}

Connection::~Connection() { assert(session_ == nullptr && claimed_ == nullptr); }

void Connection::Handle(const Input& input, absl::Time now) {
  switch (state_) {
    case State::kAccepting:
      return InAccepting(input, now);
    case State::kAwaitingHello:
      return InAwaitingHello(input, now);
    case State::kAwaitingFence:
      return InAwaitingFence(input, now);
    case State::kEstablished:
      return InEstablished(input, now);
    case State::kDraining:
      return InDraining(input, now);
    case State::kLeaving:
      return InLeaving(input, now);
    case State::kClosing:
      return;  // nothing is done for it any more; kDisconnected is on its way
  }
}

void Connection::InAccepting(const Input& input, absl::Time now) {
  switch (input.kind) {
    case Input::Kind::kConnected:
      limits_ = port_.transport.limits(id_);
      state_ = State::kAwaitingHello;
      return;
    case Input::Kind::kStop:
      return Close(CloseReason::kStopping, "the server ends");
    case Input::Kind::kTime:
      if (now >= hello_deadline_) Close(CloseReason::kHelloTimeout, "it did not connect in time");
      return;
    case Input::Kind::kFrame:
    case Input::Kind::kFenced:
      assert(false);  // kConnected comes before any frame
      return;
  }
}

void Connection::InAwaitingHello(const Input& input, absl::Time now) {
  switch (input.kind) {
    case Input::Kind::kFrame:
      return TakeHello(input.frame, now);
    case Input::Kind::kStop:
      return Close(CloseReason::kStopping, "the server ends");
    case Input::Kind::kTime:
      if (now >= hello_deadline_) Close(CloseReason::kHelloTimeout, "no Hello came in time");
      return;
    case Input::Kind::kConnected:
    case Input::Kind::kFenced:
      assert(false);
      return;
  }
}

void Connection::InAwaitingFence(const Input& input, absl::Time now) {
  switch (input.kind) {
    case Input::Kind::kFenced:
      session_ = std::exchange(claimed_, nullptr);
      return Welcome(/*resumed=*/true, now);
    case Input::Kind::kFrame:
      return Malformed("a frame came between Hello and Welcome");
    case Input::Kind::kStop:
      return Close(CloseReason::kStopping, "the server ends");
    case Input::Kind::kTime:
      if (now >= hello_deadline_)
        Close(CloseReason::kHelloTimeout, "the session's old connection did not end in time");
      return;
    case Input::Kind::kConnected:
      assert(false);
      return;
  }
}

void Connection::InEstablished(const Input& input, absl::Time now) {
  switch (input.kind) {
    case Input::Kind::kFrame:
      heard_ = now;
      return TakeFrame(input.frame, now);
    case Input::Kind::kStop:
      state_ = State::kDraining;
      return LeaveWhenAnswered(now);
    case Input::Kind::kTime:
      FlushOutbox(now);
      return CheckLiveness(now);
    case Input::Kind::kConnected:
    case Input::Kind::kFenced:
      assert(false);
      return;
  }
}

void Connection::InDraining(const Input& input, absl::Time now) {
  switch (input.kind) {
    case Input::Kind::kFrame:
      heard_ = now;
      return TakeFrame(input.frame, now);
    case Input::Kind::kTime:
      FlushOutbox(now);
      CheckLiveness(now);
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
      FlushOutbox(now);
      if (now >= leaving_since_ + kGoodbyeGrace()) Close(CloseReason::kStopping, "the server ends");
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
  if (state_ != State::kDraining || !rendezvous_.empty() || !outbox_.empty()) return;
  state_ = State::kLeaving;
  leaving_since_ = now;
  const rdma::EmptyMessage goodbye(rdma::Opcode::kGoodbye, session_->id, 0);
  SendOrQueue({goodbye.bytes()}, now);
}

void Connection::Close(CloseReason reason, absl::string_view detail) {
  if (state_ == State::kClosing) return;
  state_ = State::kClosing;
  ++shared_.counters.connections_closed[static_cast<size_t>(reason)];
  if (reason != CloseReason::kPeer && reason != CloseReason::kStopping) {
    Log(absl::StrCat("closed (", NameOf(reason), "): ", detail));
  }
  outbox_.clear();
  blocked_since_ = absl::InfiniteFuture();
  if (claimed_ != nullptr) {
    claimed_->claimant = nullptr;
    claimed_ = nullptr;
  }
  port_.transport.Disconnect(id_);
}

Connection* Connection::HandleDisconnected(const absl::Status& status, absl::Time now) {
  Close(CloseReason::kPeer, status.message());
  // Every READ has ended: what was reserved can be given back.
  for (const std::unique_ptr<Rendezvous>& rendezvous : rendezvous_) {
    assert(!rendezvous->reading());
    ++shared_.counters.rendezvous_aborted;
  }
  rendezvous_.clear();
  if (session_ == nullptr) return nullptr;
  // W9: from here on nothing of this connection can happen any more, so its session may go on
  // elsewhere.
  Session& session = *std::exchange(session_, nullptr);
  Connection* claimant = std::exchange(session.claimant, nullptr);
  shared_.sessions.Keep(session, now);
  if (claimant == nullptr) return nullptr;
  shared_.sessions.Own(session, claimant);
  claimant->Handle({Input::Kind::kFenced, {}}, now);
  return claimant;
}

void Connection::Abandon() {
  for (const std::unique_ptr<Rendezvous>& rendezvous : rendezvous_) {
    if (rendezvous->reading()) rendezvous->OnReadsFailed();
  }
  session_ = claimed_ = nullptr;
}

void Connection::HandleReadsDone(uint64_t cookie, const absl::Status& status, absl::Time now) {
  if (cookie == 0) return LivenessReadDone(status, now);
  auto it = std::find_if(rendezvous_.begin(), rendezvous_.end(), [cookie](const auto& rendezvous) {
    return rendezvous->sequence() == cookie;
  });
  assert(it != rendezvous_.end());
  if (!status.ok()) {
    (*it)->OnReadsFailed();  // … and ended: the span can be given back
    ++shared_.counters.rendezvous_aborted;
    rendezvous_.erase(it);
    // A failed READ takes the queue pair with it; a client that names wrong memory harms itself
    // alone.
    return Close(CloseReason::kPeer, absl::StrCat("READ of a value failed: ", status.message()));
  }
  heard_ = now;
  (*it)->OnReadsLanded();
  // Once closing nothing is executed any more. The client will send the write again, or never know.
  if (state_ != State::kClosing) AdvanceRendezvous(now);
}

void Connection::LivenessReadDone(const absl::Status& status, absl::Time now) {
  liveness_reading_ = false;
  if (!status.ok())
    return Close(CloseReason::kSilent, absl::StrCat("liveness READ failed: ", status.message()));
  heard_ = now;
  AdvanceRendezvous(now);  // one may have waited for the room
}

// Asks a silent peer whether it lives, by a READ that wakes nobody there.
void Connection::CheckLiveness(absl::Time now) {
  if (state_ == State::kClosing || now < heard_ + kSilenceMax()) return;
  // Without room READs of a rendezvous are on their way, which tell as well as this one would.
  if (!liveness_reading_ && port_.transport.ReadRoom(id_) > 0) {
    rdma::ReadRequest read;
    read.remote_address = liveness_.address;
    read.remote_key = liveness_.key;
    read.segments[0] = {port_.scratch.data(), kLivenessBytes, &port_.scratch};
    if (!port_.transport.PostReads(id_, {&read, 1}, /*cookie=*/0).ok())
      return;  // kDisconnected is on its way
    ++shared_.counters.liveness_reads;
    liveness_reading_ = true;
    liveness_since_ = now;
  }
  if (now >= std::max(liveness_since_, heard_ + kSilenceMax()) + kLivenessTimeout()) {
    Close(CloseReason::kSilent, "its liveness word could not be read in time");
  }
}

absl::Time Connection::deadline() const {
  switch (state_) {
    case State::kAccepting:
    case State::kAwaitingHello:
    case State::kAwaitingFence:
      return hello_deadline_;
    case State::kEstablished:
    case State::kDraining: {
      const absl::Time silence = heard_ + kSilenceMax();
      const absl::Time alive =
          liveness_reading_ ? std::max(liveness_since_, silence) + kLivenessTimeout() : silence;
      return std::min(alive, blocked_since_ + kReplyBlockedMax());
    }
    case State::kLeaving:
      return leaving_since_ + kGoodbyeGrace();
    case State::kClosing:
      return absl::InfiniteFuture();
  }
  return absl::InfiniteFuture();
}

// --- Sending ------------------------------------------------------------------------------------

size_t Connection::ReplyDataMax() const {
  return limits_.frame_bytes_max - sizeof(rdma::FrameHeader) - sizeof(rdma::ReplyBody);
}

void Connection::Reply(uint64_t sequence, const Answer& answer, absl::Time now) {
  if (state_ == State::kClosing) return;
  ++shared_.counters.answers[answer.body.status];
  rdma::FrameBytes data = answer.data();
  // Only texts can be too long (values are not sent then), and their beginning says most.
  data = data.first(std::min(data.size(), ReplyDataMax()));
  rdma::Message<rdma::ReplyBody> message(rdma::Opcode::kReply, session_->id, sequence, answer.body,
                                         data.size());
  message.body.data_length = static_cast<uint32_t>(data.size());
  if (data.empty()) return SendOrQueue({message.bytes()}, now);
  SendOrQueue({message.bytes(), data}, now);
}

void Connection::SendOrQueue(absl::Span<const rdma::Bytes> pieces, absl::Time now) {
  if (state_ == State::kClosing) return;
  if (outbox_.empty() && port_.transport.SendRoom(id_) > 0) {
    const absl::Status status = port_.transport.Send(id_, pieces);
    // UNAVAILABLE: it has just ended, and kDisconnected will say so.
    assert(status.ok() || absl::IsUnavailable(status));
    return;
  }
  if (outbox_.empty()) blocked_since_ = now;
  std::string frame;
  for (rdma::Bytes piece : pieces)
    frame.append(reinterpret_cast<const char*>(piece.data()), piece.size());
  outbox_.push_back(std::move(frame));
  // Who keeps to requests_max never has more replies than that to wait for (and a Goodbye).
  if (outbox_.size() > requests_max_ + 1)
    Close(CloseReason::kBlocked, "more requests than it takes replies for");
}

void Connection::FlushOutbox(absl::Time now) {
  while (!outbox_.empty() && port_.transport.SendRoom(id_) > 0) {
    const rdma::Bytes frame(reinterpret_cast<const std::byte*>(outbox_.front().data()),
                            outbox_.front().size());
    if (!port_.transport.Send(id_, {frame}).ok()) break;
    outbox_.pop_front();
    blocked_since_ = now;
  }
  if (outbox_.empty()) {
    blocked_since_ = absl::InfiniteFuture();
    return;
  }
  if (now >= blocked_since_ + kReplyBlockedMax())
    Close(CloseReason::kBlocked, "it does not take its replies");
}

void Connection::Log(absl::string_view what) const {
  if (shared_.log) shared_.log(absl::StrCat("client ", peer_, " ", what));
}

}  // namespace osprey::server
