#include "server/engine/connection/reply_port.h"

#include <algorithm>

#include "server/requests/sessions.h"

namespace osprey::server {

static_assert(kRequestsMax + 1 <= rdma::kShmCreditsMax,
              "an answer to each, and the DisconnectNotice");

// Read once after each poll of a transport (Engine::Poll): an answered request had arrived by then,
// and the client derives the server's time from that.
void ReplyPort::ReadServerTime() const {
  shared_.server_time_ns = static_cast<uint64_t>(absl::ToUnixNanos(shared_.tables.ServerTime()));
}

void ReplyPort::Reply(uint64_t sequence, const Answer& answer, absl::Time now) {
  // Only texts can be too long (values are not sent then), and their beginning is the most useful.
  const rdma::FrameBytes data = answer.data();
  SendReply(sequence, answer.body, data.first(std::min(data.size(), reply_data_max())), now);
}

// A server in a cluster answers only if it still has the right after it has looked at the data. Out of
// line: other servers' frames should not pay for it.
[[gnu::noinline]] absl::Status ReplyPort::MayAnswer() {
  if (shared_.may_answer()) return absl::OkStatus();
  lifecycle_.Close(CloseReason::kNotServing, "the server has no right to answer");
  return absl::UnavailableError("");  // as of a connection that has just ended
}

// Each frame of the connection goes through here, whatever it is and however long it waited. It may tell
// of anything that was executed before, so that is committed first.
inline absl::Status ReplyPort::Send(absl::Span<const rdma::Bytes> pieces) {
  if (shared_.write_log != nullptr && !index::IsMutant(index::Mutant::kReplyBeforeCommit)) {
    if (absl::Status status = shared_.write_log->Commit(); !status.ok()) return status;
  }
  if (shared_.may_answer != nullptr) {
    if (absl::Status status = MayAnswer(); !status.ok()) return status;
  }
  absl::Status status = transport_.Send(id_, pieces);
  if (!status.ok()) return status;
  for (const rdma::Bytes& piece : pieces) shared_.counters.sent_bytes += piece.size();
  return status;
}

inline absl::Status ReplyPort::SendSlice(const ReplyQueue::Slice& slice) {
  if (slice.count == 1) return Send({slice.bytes});
  ++shared_.counters.reply_batches;
  rdma::EmptyMessage batch(rdma::Opcode::kBatch, session_->id, 0);
  batch.header.length += static_cast<uint32_t>(slice.bytes.size());
  return Send({batch.bytes(), slice.bytes});
}

void ReplyPort::SendOrQueue(absl::Span<const rdma::Bytes> pieces, absl::Time now) {
  if (lifecycle_.closing()) return;
  if (queue_.empty() && !gathering_ && transport_.SendRoom(id_) > 0) {
    const absl::Status status = Send(pieces);
    // UNAVAILABLE: it has just ended, and kDisconnected will follow. Otherwise the device has no
    // room for the reply, and the client would wait for it forever.
    if (!status.ok() && !absl::IsUnavailable(status))
      lifecycle_.Close(CloseReason::kFailed, status.message());
    return;
  }
  if (queue_.empty()) blocked_until_ = now + kReplyBlockedMax();
  queue_.Append(pieces);
  LimitQueue();
}

void ReplyPort::Flush(absl::Time now) {
  bool sent = false;
  while (!queue_.empty() && transport_.SendRoom(id_) > 0) {
    const ReplyQueue::Slice slice = queue_.Next(frame_bytes_max_);
    if (!SendSlice(slice).ok()) break;  // it has just ended, and kDisconnected will follow
    queue_.Drop(slice);
    sent = true;
  }
  if (queue_.empty()) {
    blocked_until_ = absl::InfiniteFuture();
    return;
  }
  if (sent || blocked_until_ == absl::InfiniteFuture()) {
    blocked_until_ = now + kReplyBlockedMax();
  } else if (now >= blocked_until_) {
    lifecycle_.Close(CloseReason::kBlocked, "it does not take its replies");
  }
}

void ReplyPort::Clear() {
  queue_.Clear();
  blocked_until_ = absl::InfiniteFuture();
}

}  // namespace osprey::server
