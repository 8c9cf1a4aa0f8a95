#include "server/engine/connection.h"

#include <algorithm>
#include <cassert>
#include <utility>

#include "absl/strings/str_cat.h"
#include "rdma/errors.h"

namespace osprey::server {
namespace {

// The least frame length of a connection: the one that clients require themselves, for the longest
// key.
constexpr size_t kFrameBytesLeast =
    sizeof(rdma::FrameHeader) + sizeof(rdma::PutBody) + rdma::kKeyBytesMax;
static_assert(kRequestsMax + 1 <= rdma::kShmCreditsMax,
              "an answer to each, and the DisconnectNotice");
static_assert(kFrameBytesLeast >= sizeof(rdma::FrameHeader) + sizeof(rdma::WelcomeBody));
static_assert(kFrameBytesLeast >= sizeof(rdma::FrameHeader) + sizeof(rdma::ChallengeBody));
static_assert(kFrameBytesLeast > sizeof(rdma::FrameHeader) + sizeof(rdma::ReplyBody));

}  // namespace

Connection::Connection(Shared& shared, const Port& port, rdma::ConnectionId id, std::string peer,
                       Admission::Ticket ticket, absl::Time now)
    : shared_(shared),
      port_(port),
      id_(id),
      peer_(std::move(peer)),
      ticket_(std::move(ticket)),
      hello_deadline_(now + kHelloTimeout()),
      report_limit_(now),
      heard_(now) {}

Connection::~Connection() { assert(session_ == nullptr && claimed_ == nullptr); }

void Connection::Handle(const Input& input, absl::Time now) {
  switch (state_) {
    case State::kAccepting:
      return InAccepting(input, now);
    case State::kAwaitingHello:
      return InAwaitingHello(input, now);
    case State::kAwaitingResponse:
      return InAwaitingResponse(input, now);
    case State::kAwaitingFence:
      return InAwaitingFence(input, now);
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

void Connection::InAccepting(const Input& input, absl::Time now) {
  switch (input.kind) {
    case Input::Kind::kConnected:
      limits_ = port_.transport.limits(id_);
      // The client gives this length itself, and no reply may be longer.
      if (limits_.frame_bytes_max < kFrameBytesLeast) {
        return Malformed(absl::StrCat("it takes frames of ", limits_.frame_bytes_max,
                                      " bytes at most; ", kFrameBytesLeast, " are the least"));
      }
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
      // It may end the connection of its session, which may have sent requests before.
      shared_.execute_batched(now);
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

void Connection::InAwaitingResponse(const Input& input, absl::Time now) {
  switch (input.kind) {
    case Input::Kind::kFrame:
      shared_.execute_batched(now);  // likewise
      return TakeResponse(input.frame, now);
    case Input::Kind::kStop:
      return Close(CloseReason::kStopping, "the server ends");
    case Input::Kind::kTime:
      if (now >= hello_deadline_)
        Close(CloseReason::kHelloTimeout, "no response to the challenge came in time");
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
      FlushReplies(now);
      if (now >= room_retry_at_) AdvanceRendezvous(now);
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
      FlushReplies(now);
      if (now >= room_retry_at_) AdvanceRendezvous(now);
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
      FlushReplies(now);
      if (now >= leaving_since_ + kDisconnectNoticeGrace())
        Close(CloseReason::kStopping, "the server ends");
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
  if (state_ != State::kDraining || UnderWay() > 0 || !reply_queue_.empty() || !backlog_.empty())
    return;
  state_ = State::kLeaving;
  leaving_since_ = now;
  const rdma::EmptyMessage disconnect_notice(rdma::Opcode::kDisconnectNotice, session_->id, 0);
  SendOrQueue({disconnect_notice.bytes()}, now);
}

void Connection::Close(CloseReason reason, absl::string_view detail) {
  if (state_ == State::kClosing) return;
  state_ = State::kClosing;
  ++shared_.counters.connections_closed[static_cast<size_t>(reason)];
  if (reason != CloseReason::kPeer && reason != CloseReason::kStopping) {
    close_log_ = absl::StrCat("closed (", NameOf(reason), "): ", detail);
  }
  close_unfinished_ = true;
  FinishClosing();
}

// Work too long for the lock of a partition. appends_ stay until the end, since returning their
// space takes a lock.
void Connection::FinishClosing() {
  if (locked_ || !std::exchange(close_unfinished_, false)) return;
  if (!close_log_.empty()) Log(std::exchange(close_log_, ""));
  reply_queue_.Clear();
  backlog_.clear();
  awaits_room_ = false;
  room_retry_at_ = absl::InfiniteFuture();
  blocked_since_ = absl::InfiniteFuture();
  if (claimed_ != nullptr) {
    claimed_->claimant = nullptr;
    claimed_ = nullptr;
  }
  port_.transport.Disconnect(id_);
}

Connection* Connection::HandleDisconnected(const absl::Status& status, absl::Time now) {
  const bool broke_rules = rdma::ReasonOf(status) == rdma::Reason::kBrokeRules;
  Close(broke_rules ? CloseReason::kMalformed : CloseReason::kPeer, status.message());
  // Every READ has ended, so the reserved space can be returned.
  for (const std::unique_ptr<Rendezvous>& rendezvous : rendezvous_) {
    assert(!rendezvous->reading());
    ++shared_.counters.rendezvous_aborted;
  }
  rendezvous_.clear();
  appends_.clear();
  if (session_ == nullptr) return nullptr;
  // W9: from here on this connection has no further effects, so its session may continue on
  // another.
  Session& session = *std::exchange(session_, nullptr);
  Connection* claimant = std::exchange(session.claimant, nullptr);
  shared_.sessions.Keep(session, now);
  if (claimant == nullptr) return nullptr;
  shared_.sessions.Own(session, claimant);
  claimant->Handle({Input::Kind::kFenced, {}}, now);
  return claimant;
}

void Connection::Abandon() {
  for (const std::unique_ptr<Rendezvous>& rendezvous : rendezvous_) rendezvous->Abandon();
  session_ = claimed_ = nullptr;
}

absl::Time Connection::deadline() const {
  switch (state_) {
    case State::kAccepting:
    case State::kAwaitingHello:
    case State::kAwaitingResponse:
    case State::kAwaitingFence:
      return hello_deadline_;
    case State::kEstablished:
    case State::kDraining: {
      const absl::Time silence = heard_ + kSilenceMax();
      const absl::Time alive =
          liveness_reading_ ? std::max(liveness_since_, silence) + kLivenessTimeout() : silence;
      return std::min({alive, blocked_since_ + kReplyBlockedMax(), room_retry_at_});
    }
    case State::kLeaving:
      return leaving_since_ + kDisconnectNoticeGrace();
    case State::kClosing:
      return absl::InfiniteFuture();
  }
  return absl::InfiniteFuture();
}

// --- Sending ------------------------------------------------------------------------------------

size_t Connection::ReplyDataMax() const {
  return limits_.frame_bytes_max - sizeof(rdma::FrameHeader) - sizeof(rdma::ReplyBody);
}

// Now, and not when the turn began: an answered request had arrived by then, and the client derives
// the server's time from that.
uint64_t Connection::ServerTimeNs() const {
  return static_cast<uint64_t>(absl::ToUnixNanos(shared_.tables.ServerTime()));
}

void Connection::Reply(uint64_t sequence, const Answer& answer, absl::Time now) {
  if (state_ == State::kClosing) return;
  ++shared_.counters.answers[answer.body.status];
  rdma::FrameBytes data = answer.data();
  // Only texts can be too long (values are not sent then), and their beginning is the most useful.
  data = data.first(std::min(data.size(), ReplyDataMax()));
  rdma::Message<rdma::ReplyBody> message(rdma::Opcode::kReply, session_->id, sequence, answer.body,
                                         data.size());
  message.body.data_length = static_cast<uint32_t>(data.size());
  message.body.server_time = ServerTimeNs();
  if (data.empty()) return SendOrQueue({message.bytes()}, now);
  SendOrQueue({message.bytes(), data}, now);
}

void Connection::SendOrQueue(absl::Span<const rdma::Bytes> pieces, absl::Time now) {
  if (state_ == State::kClosing) return;
  if (reply_queue_.empty() && !in_batch_ && port_.transport.SendRoom(id_) > 0) {
    const absl::Status status = Send(pieces);
    // UNAVAILABLE: it has just ended, and kDisconnected will follow. Otherwise the device has no
    // room for the reply, and the client would wait for it forever.
    if (!status.ok() && !absl::IsUnavailable(status)) Close(CloseReason::kFailed, status.message());
    return;
  }
  if (reply_queue_.empty()) blocked_since_ = now;
  reply_queue_.Append(pieces);
  // A client that respects requests_max never has more waiting replies than that (and a
  // DisconnectNotice).
  if (reply_queue_.frames() > kRequestsMax + 1)
    Close(CloseReason::kBlocked, "more requests than it takes replies for");
}

void Connection::FlushReplies(absl::Time now) {
  while (!reply_queue_.empty() && port_.transport.SendRoom(id_) > 0) {
    const ReplyQueue::Slice slice = reply_queue_.Next(limits_.frame_bytes_max);
    if (!SendSlice(slice).ok()) break;  // it has just ended, and kDisconnected will follow
    reply_queue_.Drop(slice);
    blocked_since_ = now;
  }
  if (reply_queue_.empty()) {
    blocked_since_ = absl::InfiniteFuture();
    return;
  }
  if (now >= blocked_since_ + kReplyBlockedMax())
    Close(CloseReason::kBlocked, "it does not take its replies");
}

absl::Status Connection::SendSlice(const ReplyQueue::Slice& slice) {
  if (slice.count == 1) return Send({slice.bytes});
  ++shared_.counters.reply_batches;
  rdma::EmptyMessage batch(rdma::Opcode::kBatch, session_->id, 0);
  batch.header.length += static_cast<uint32_t>(slice.bytes.size());
  return Send({batch.bytes(), slice.bytes});
}

absl::Status Connection::Send(absl::Span<const rdma::Bytes> pieces) {
  absl::Status status = port_.transport.Send(id_, pieces);
  if (!status.ok()) return status;
  for (const rdma::Bytes& piece : pieces) shared_.counters.sent_bytes += piece.size();
  return status;
}

void Connection::Log(absl::string_view what) const {
  if (shared_.log) shared_.log(absl::StrCat("client ", peer_, " ", what));
}

}  // namespace osprey::server
