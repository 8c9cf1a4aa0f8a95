// What a connection sends: replies, and the frames of the handshake and of the end.
//
//   Reply, AnswerWrite, SendOrQueue ──> a credit, and nothing waits? ──yes──> Transport::Send
//                                         | no
//                                         v
//                                    ReplyQueue ──Flush, as credits come──> Transport::Send
//
// Replies wait for credits, for the end of the Batch that they answer, and for that of a table's
// hold. Thread rule: the engine's thread.

#ifndef OSPREY_SERVER_ENGINE_CONNECTION_REPLY_PORT_H_
#define OSPREY_SERVER_ENGINE_CONNECTION_REPLY_PORT_H_

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <utility>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "rdma/transport.h"
#include "rdma/wire/protocol.h"
#include "server/engine/connection/lifecycle.h"
#include "server/engine/connection/reply_queue.h"
#include "server/engine/connection/session_hold.h"
#include "server/engine/connection/shared.h"
#include "server/requests/requests.h"

namespace osprey::server {

// The longest that a reply may wait for the client to receive earlier ones. Credits are granted so
// that it need not wait at all, but may be returned in batches.
inline constexpr absl::Duration kReplyBlockedMax() { return absl::Seconds(1); }

class ReplyPort {
 public:
  ReplyPort(Shared& shared, rdma::Transport& transport, rdma::ConnectionId id, Lifecycle& lifecycle,
            const SessionHold& session)
      : shared_(shared), transport_(transport), id_(id), lifecycle_(lifecycle), session_(session) {}
  ReplyPort(const ReplyPort&) = delete;
  ReplyPort& operator=(const ReplyPort&) = delete;

  // The longest frame that the client takes. Set before the first frame is sent.
  void set_frame_bytes_max(uint32_t bytes) { frame_bytes_max_ = bytes; }
  uint32_t frame_bytes_max() const { return frame_bytes_max_; }
  // REQUIRES: the session is held.
  uint64_t session_id() const { return session_->id; }
  // The longest data of a reply.
  size_t reply_data_max() const {
    return frame_bytes_max_ - sizeof(rdma::FrameHeader) - sizeof(rdma::ReplyBody);
  }
  // For a Welcome or a reply to a request of this turn.
  uint64_t ServerTimeNs() const {
    if (shared_.server_time_ns == 0) ReadServerTime();
    return shared_.server_time_ns;
  }

  // Answers a request. While a table is held (Lifecycle::set_locked) the reply waits for Flush.
  // REQUIRES: the session is held, or the connection is closing.
  void Reply(uint64_t sequence, const Answer& answer, absl::Time now);
  // Likewise a write, whose answer the session remembers. Nothing happens if the answer is void.
  void AnswerWrite(uint64_t sequence, const Answer& answer, absl::Time now) {
    if (answer.is_void) return;
    session_->results.Remember(sequence, ResultOf(answer));
    Reply(sequence, answer, now);
  }
  // As AnswerWrite, of a part of a FLUSH.
  void AnswerFlush(uint64_t sequence, const Answer& answer, absl::Time now) {
    if (answer.is_void) return;
    Result result = ResultOf(answer);
    result.slot_is_cursor = true;
    session_->results.Remember(sequence, result);
    Reply(sequence, answer, now);
  }
  // As AnswerWrite, of a write that was applied and has nothing else to say.
  void AnswerWritten(uint64_t sequence, uint64_t version, uint64_t slot, absl::Time now);
  // Sends one whole frame. Closes the connection if too many wait.
  void SendOrQueue(absl::Span<const rdma::Bytes> pieces, absl::Time now);

  // More replies are about to follow: they wait for Flush. Returns what was so before.
  bool set_gathering(bool gathering) { return std::exchange(gathering_, gathering); }
  bool gathering() const { return gathering_; }
  // Sends as many as there are credits for. Closes the connection of a client that does not receive
  // them.
  void Flush(absl::Time now);
  void Clear();

  bool empty() const { return queue_.empty(); }
  // When Flush is due, even if no credit comes.
  absl::Time deadline() const { return blocked_until_; }

 private:
  void ReadServerTime() const;
  void SendReply(uint64_t sequence, const rdma::ReplyBody& body, rdma::Bytes data, absl::Time now);
  void LimitQueue();
  absl::Status SendSlice(const ReplyQueue::Slice& slice);
  absl::Status Send(absl::Span<const rdma::Bytes> pieces);
  absl::Status MayAnswer();

  Shared& shared_;
  rdma::Transport& transport_;
  const rdma::ConnectionId id_;
  Lifecycle& lifecycle_;
  const SessionHold& session_;
  uint32_t frame_bytes_max_ = 0;
  bool gathering_ = false;
  ReplyQueue queue_;
  // Until when some of the waiting replies must leave; InfiniteFuture: none waits for a credit.
  absl::Time blocked_until_ = absl::InfiniteFuture();
};

// A client that respects requests_max never has more waiting replies than that (and a
// DisconnectNotice).
inline void ReplyPort::LimitQueue() {
  if (queue_.frames() > kRequestsMax + 1)
    lifecycle_.Close(CloseReason::kBlocked, "more requests than it takes replies for");
}

// In line for the two forms of answers.
[[gnu::always_inline]] inline void ReplyPort::SendReply(uint64_t sequence,
                                                        const rdma::ReplyBody& body,
                                                        rdma::Bytes data, absl::Time now) {
  if (lifecycle_.closing()) return;
  ++shared_.counters.answers[body.status];
  rdma::Message<rdma::ReplyBody> message(rdma::Opcode::kReply, session_->id, sequence, body,
                                         data.size());
  message.body.data_length = static_cast<uint32_t>(data.size());
  message.body.server_time = ServerTimeNs();
  if (!gathering_ && !lifecycle_.locked()) {
    if (data.empty()) return SendOrQueue({message.bytes()}, now);
    return SendOrQueue({message.bytes(), data}, now);
  }
  std::byte* const reply = queue_.AppendReply(sizeof(message) + data.size());
  std::memcpy(reply, &message, sizeof(message));
  if (!data.empty()) std::memcpy(reply + sizeof(message), data.data(), data.size());
  LimitQueue();
}

[[gnu::always_inline]] inline void ReplyPort::AnswerWritten(uint64_t sequence, uint64_t version,
                                                            uint64_t slot, absl::Time now) {
  Result result;
  result.code = absl::StatusCode::kOk;
  rdma::ReplyBody body;
  result.version = body.version = version;
  result.slot = body.slot = slot;
  session_->results.Remember(sequence, result);
  SendReply(sequence, body, {}, now);
}

}  // namespace osprey::server

#endif  // OSPREY_SERVER_ENGINE_CONNECTION_REPLY_PORT_H_
