// One client's connection: from its connect request to its last event.
//
//   kAccepting
//       | connected
//   kAwaitingHello ---- Hello, where there is a key: Challenge ----> kAwaitingResponse
//       | Hello, where there is none                                   | the right response
//       |<-------------------------------------------------------------+
//       |------ its session has an owner ------> kAwaitingFence
//       | new session or one without owner           | the owner's end
//       v                                            |
//   kEstablished <-----------------------------------+
//       | stop
//   kDraining
//       | all answered: DisconnectNotice
//   kLeaving
//       | kDisconnectNoticeGrace
//   kClosing
//       | kDisconnected (may come in any state): the session is kept for kSessionKept
//   (gone)
//
//   To kClosing at once: from any state on a malformed frame, silence, replies that the client does
//   not receive, or when a newer connection claims the session; before kEstablished also on stop, on
//   a wrong response, or when no Hello (response, owner's end) comes in time.
//
// Before kEstablished the client has not proved the key. It has received no information on the
// region and may READ nothing, and nothing of its memory was mapped or READ.
//
// The parts, each a class of its own header. They close the connection by Lifecycle, and none refers
// to a later one:
//
//   Lifecycle          the state, and the end
//   SessionHold        the session that is owned or awaited
//   ReplyPort          sends frames under the client's credits
//   LivenessProbe      READs the liveness word of a silent client
//   Handshake          the states before kEstablished
//   TurnBudget         the limits of a turn, and the requests that wait for one
//   LongWrites         PUTs by rendezvous and long APPENDs
//   RequestExecutor    requests, one by one
//
// Connection itself has the later states, and the order in which requests are executed.
//
// Thread rule: the engine's thread.

#ifndef OSPREY_SERVER_ENGINE_CONNECTION_CONNECTION_H_
#define OSPREY_SERVER_ENGINE_CONNECTION_CONNECTION_H_

#include <algorithm>
#include <cassert>
#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "rdma/transport.h"
#include "rdma/wire/protocol.h"
#include "server/engine/connection/handshake.h"
#include "server/engine/connection/lifecycle.h"
#include "server/engine/connection/liveness_probe.h"
#include "server/engine/connection/long_writes.h"
#include "server/engine/connection/partition_batch.h"
#include "server/engine/connection/reply_port.h"
#include "server/engine/connection/request_executor.h"
#include "server/engine/connection/session_hold.h"
#include "server/engine/connection/shared.h"
#include "server/engine/connection/timer_queue.h"
#include "server/engine/connection/turn_budget.h"
#include "server/requests/two_step_writes.h"
#include "server/stats/admission.h"
#include "server/stats/stats.h"

namespace osprey::server {

// From DisconnectNotice to Disconnect: requests that were in flight are refused as not applied.
inline constexpr absl::Duration kDisconnectNoticeGrace() { return absl::Milliseconds(100); }

class Connection {
 public:
  using State = Lifecycle::State;

  // `ticket` is held until the connection is gone completely.
  Connection(Shared& shared, const Port& port, rdma::ConnectionId id, std::string peer,
             Admission::Ticket ticket, absl::Time now);
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  void Handle(const Input& input, absl::Time now);
  // As Handle(kFrame).
  void HandleFrame(rdma::FrameBytes frame, absl::Time now) {
    if (lifecycle_.state() != State::kEstablished) return Handle({Input::Kind::kFrame, frame}, now);
    liveness_.InputCame(now);
    TakeFrame(frame, now);
  }
  // A READ ended.
  void HandleReadsDone(uint64_t cookie, const absl::Status& status, absl::Time now);
  // The last event. Releases the session; returns the connection that waited for it and owns it
  // now, if any.
  Connection* HandleDisconnected(const absl::Status& status, absl::Time now);
  // Ends without kDisconnected. REQUIRES: the transport is gone, and its engine is about to be
  // destroyed, though not the tables.
  void Abandon();

  // Disconnects, and counts the reason. No further request of this client is executed. While one of
  // its batched requests is being executed it does only that, and EndBatched does the rest.
  void Close(CloseReason reason, absl::string_view detail);

  // When Handle(kTime) is due.
  absl::Time deadline() const;
  // Belongs to its engine.
  Timer& timer() { return timer_; }
  // Replies wait for credits, whose return is no event: Handle(kTime) is due in each turn.
  bool blocked() const { return !replies_.empty(); }
  // True if Work, a bounded step, is due in each turn. Either requests wait for a turn of their own
  // (not for the client), or a long write is in progress: it may wait for space to be freed.
  bool busy() const { return !lifecycle_.closing() && (writes_.busy() || turn_.waiting()); }
  void Work(absl::Time now);

  // Executes one of its batched requests, whose table is held (TableAccess::Hold): its reply waits
  // until EndBatched. Returns its cost (kCostPerHold).
  uint64_t ExecuteBatched(const PartitionBatch::Request& request, index::Table& table,
                          absl::Time now);
  // The same in two steps (synced_batch.h). Decides a request. None: it has been answered, or waits
  // for a later turn. Its table is held in both. `replaced`: as RequestExecutor::DecideKeyed.
  absl::optional<Decision> DecideBatched(const PartitionBatch::Request& request,
                                         index::Table& table, const Decision* replaced,
                                         absl::Time now);
  // Whether a read has no answer before the pending write of its key is applied.
  bool AnswersLater(const PartitionBatch::Request& request, const index::Table& table) const {
    return executor_.AnswersLater(request, table);
  }
  // Applies and answers it, whatever became of the connection.
  void ApplyBatched(const PartitionBatch::Request& request, const Decision& decision,
                    index::Table& table, PartitionChanges& changes, absl::Time now);
  // Answers it alone: a later write has replaced it.
  void AnswerReplaced(const PartitionBatch::Request& request, const Decision& decision,
                      absl::Time now);
  // It will not be executed, since the server has to end.
  void DropBatched(const PartitionBatch::Request& request) { turn_.RemoveBatched(request.cost); }
  bool batched() const { return turn_.batched() > 0; }
  // Its batched requests have all been executed.
  void EndBatched(absl::Time now) {
    assert(!batched());
    lifecycle_.FinishClosing();
    if (lifecycle_.closing() || replies_.gathering()) return;
    replies_.Flush(now);
    LeaveWhenAnswered(now);
  }
  // Its long writes in Shared::publishing are durable.
  void ApplyDecided(absl::Time now);
  // A long write waits for a step, which may be due at deadline().
  bool awaits_retry() const { return writes_.retry_at() != absl::InfiniteFuture(); }
  // Whether the deadline may be earlier than when the timer was set. While nothing but the peer's
  // silence is awaited, each frame moves it later.
  bool needs_timer() const { return !timed_silence_ || !awaits_silence(); }
  // The timer was set to deadline(), or is due earlier.
  void TimerSet() { timed_silence_ = awaits_silence(); }
  State state() const { return lifecycle_.state(); }
  rdma::ConnectionId id() const { return id_; }

 private:
  // One for each state from kEstablished on.
  void InEstablished(const Input& input, absl::Time now);
  void InDraining(const Input& input, absl::Time now);
  void InLeaving(const Input& input, absl::Time now);

  // Frames of the client, and the turns in which they are executed.
  void TakeFrame(rdma::FrameBytes frame, absl::Time now);
  void TakeBatch(rdma::FrameBytes frame, absl::Time now);
  void MalformedFrame(absl::string_view detail, absl::Time now);
  void Execute(const rdma::FrameHeader& header, rdma::FrameBytes frame, absl::Time now);
  void Take(const rdma::FrameHeader& header, rdma::FrameBytes frame, absl::Time now);
  bool AddToBatch(const rdma::FrameHeader& header, rdma::FrameBytes frame, bool waited);
  void Defer(rdma::FrameBytes frame, absl::Time now);
  void Keep(rdma::FrameBytes frame);
  void WorkOffBacklog(absl::Time now);

  bool awaits_silence() const {
    return state() == State::kEstablished && replies_.empty() && writes_.empty() &&
           !turn_.waiting() && !liveness_.spared();
  }
  void Release();
  void AdvanceWrites(absl::Time now);
  void LeaveWhenAnswered(absl::Time now);

  Shared& shared_;
  const Port port_;
  const rdma::ConnectionId id_;
  Admission::Ticket ticket_;
  Timer timer_;
  bool timed_silence_ = false;  // the timer was set when nothing else was awaited

  Lifecycle lifecycle_;
  SessionHold session_;
  ReplyPort replies_;
  LivenessProbe liveness_;
  Handshake handshake_;
  TurnBudget turn_;
  LongWrites writes_;
  RequestExecutor executor_;

  absl::Time leaving_since_ = absl::InfiniteFuture();
};

inline uint64_t Connection::ExecuteBatched(const PartitionBatch::Request& request,
                                           index::Table& table, absl::Time now) {
  turn_.RemoveBatched(request.cost);
  if (lifecycle_.closing()) return TurnBudget::kRequestCost;
  const uint64_t before = turn_.spent();
  lifecycle_.set_locked(true);
  // The connection's other requests may have proved expensive.
  if (!request.waited && (turn_.waiting() || turn_.used_up())) {
    Keep(request.frame);
  } else {
    executor_.ExecuteKeyed(request, table, now);
    turn_.ChargeRequest(request.cost);
  }
  lifecycle_.set_locked(false);
  return std::max(turn_.spent() - before, TurnBudget::kRequestCost);
}

}  // namespace osprey::server

#endif  // OSPREY_SERVER_ENGINE_CONNECTION_CONNECTION_H_
