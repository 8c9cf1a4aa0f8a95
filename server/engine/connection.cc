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
      ticket_(std::move(ticket)),
      lifecycle_(shared, std::move(peer), [this] { Release(); }),
      session_(shared.sessions, *this),
      replies_(shared, port_.transport, id, lifecycle_, session_),
      hello_deadline_(now + kHelloTimeout()),
      report_limit_(now),
      heard_(now) {}

void Connection::Handle(const Input& input, absl::Time now) {
  switch (lifecycle_.state()) {
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
      replies_.set_frame_bytes_max(port_.transport.limits(id_).frame_bytes_max);
      // The client gives this length itself, and no reply may be longer.
      if (replies_.frame_bytes_max() < kFrameBytesLeast) {
        return lifecycle_.Malformed(absl::StrCat("it takes frames of ", replies_.frame_bytes_max(),
                                                 " bytes at most; ", kFrameBytesLeast,
                                                 " are the least"));
      }
      lifecycle_.Enter(State::kAwaitingHello);
      return;
    case Input::Kind::kStop:
      return lifecycle_.Close(CloseReason::kStopping, "the server ends");
    case Input::Kind::kTime:
      if (now >= hello_deadline_)
        lifecycle_.Close(CloseReason::kHelloTimeout, "it did not connect in time");
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
      return lifecycle_.Close(CloseReason::kStopping, "the server ends");
    case Input::Kind::kTime:
      if (now >= hello_deadline_)
        lifecycle_.Close(CloseReason::kHelloTimeout, "no Hello came in time");
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
      return lifecycle_.Close(CloseReason::kStopping, "the server ends");
    case Input::Kind::kTime:
      if (now >= hello_deadline_)
        lifecycle_.Close(CloseReason::kHelloTimeout, "no response to the challenge came in time");
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
      session_.TakeOver();
      return Welcome(/*resumed=*/true, now);
    case Input::Kind::kFrame:
      return lifecycle_.Malformed("a frame came between Hello and Welcome");
    case Input::Kind::kStop:
      return lifecycle_.Close(CloseReason::kStopping, "the server ends");
    case Input::Kind::kTime:
      if (now >= hello_deadline_)
        lifecycle_.Close(CloseReason::kHelloTimeout,
                         "the session's old connection did not end in time");
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
      lifecycle_.Enter(State::kDraining);
      return LeaveWhenAnswered(now);
    case Input::Kind::kTime:
      replies_.Flush(now);
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
      replies_.Flush(now);
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
  if (lifecycle_.state() != State::kDraining || UnderWay() > 0 || !replies_.empty() ||
      !backlog_.empty())
    return;
  lifecycle_.Enter(State::kLeaving);
  leaving_since_ = now;
  const rdma::EmptyMessage disconnect_notice(rdma::Opcode::kDisconnectNotice, session_->id, 0);
  replies_.SendOrQueue({disconnect_notice.bytes()}, now);
}

void Connection::Close(CloseReason reason, absl::string_view detail) {
  lifecycle_.Close(reason, detail);
}

// appends_ stay until the end, since returning their space takes a lock.
void Connection::Release() {
  replies_.Clear();
  backlog_.clear();
  awaits_room_ = false;
  room_retry_at_ = absl::InfiniteFuture();
  session_.Waive();
  port_.transport.Disconnect(id_);
}

Connection* Connection::HandleDisconnected(const absl::Status& status, absl::Time now) {
  const bool broke_rules = rdma::ReasonOf(status) == rdma::Reason::kBrokeRules;
  lifecycle_.Close(broke_rules ? CloseReason::kMalformed : CloseReason::kPeer, status.message());
  // Every READ has ended, so the reserved space can be returned.
  for (const std::unique_ptr<Rendezvous>& rendezvous : rendezvous_) {
    assert(!rendezvous->reading());
    ++shared_.counters.rendezvous_aborted;
  }
  rendezvous_.clear();
  appends_.clear();
  Connection* const claimant = session_.Release(now);
  if (claimant != nullptr) claimant->Handle({Input::Kind::kFenced, {}}, now);
  return claimant;
}

void Connection::Abandon() {
  for (const std::unique_ptr<Rendezvous>& rendezvous : rendezvous_) rendezvous->Abandon();
  session_.Abandon();
}

absl::Time Connection::deadline() const {
  switch (lifecycle_.state()) {
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
      return std::min({alive, replies_.deadline(), room_retry_at_});
    }
    case State::kLeaving:
      return leaving_since_ + kDisconnectNoticeGrace();
    case State::kClosing:
      return absl::InfiniteFuture();
  }
  return absl::InfiniteFuture();
}

}  // namespace osprey::server
