// The requests of an established connection: each is executed and answered, or refused.
//
//   frame ──> not on a key, or a PUT by rendezvous: Execute, at once
//     '─────> KeyedRequest ──> with others (partition_batch.h): ExecuteKeyed, or in two steps
//
// A write is answered once: a repeated one gets the answer that the session remembers. Thread rule:
// the engine's thread.

#ifndef OSPREY_SERVER_ENGINE_CONNECTION_REQUEST_EXECUTOR_H_
#define OSPREY_SERVER_ENGINE_CONNECTION_REQUEST_EXECUTOR_H_

#include <cstdint>

#include "absl/time/time.h"
#include "index/writer/table.h"
#include "rdma/transport.h"
#include "rdma/wire/protocol.h"
#include "server/engine/connection/lifecycle.h"
#include "server/engine/connection/long_writes.h"
#include "server/engine/connection/reply_port.h"
#include "server/engine/connection/session_hold.h"
#include "server/engine/connection/shared.h"
#include "server/requests/keyed_request.h"
#include "server/requests/requests.h"
#include "server/requests/two_step_writes.h"
#include "server/stats/client_gets.h"

namespace osprey::server {

class RequestExecutor {
 public:
  RequestExecutor(Shared& shared, rdma::Transport& transport, rdma::ConnectionId id,
                  Lifecycle& lifecycle, SessionHold& session, ReplyPort& replies,
                  LongWrites& writes, absl::Time now)
      : shared_(shared),
        transport_(transport),
        id_(id),
        lifecycle_(lifecycle),
        session_(session),
        replies_(replies),
        writes_(writes),
        report_limit_(now) {}
  RequestExecutor(const RequestExecutor&) = delete;
  RequestExecutor& operator=(const RequestExecutor&) = delete;

  // Executes a request of this session, or begins a rendezvous. Closes the connection if the request
  // is malformed or breaks the order. REQUIRES: it is none for ExecuteKeyed, the connection is not
  // closing, and this thread holds no table.
  void Execute(const rdma::FrameHeader& header, rdma::FrameBytes frame, absl::Time now);
  // Likewise a request on a key that came whole, and is parsed. REQUIRES: the table of its key is held, under
  // Lifecycle::set_locked, and its hash is set. Its reply waits for a Flush.
  void ExecuteKeyed(const KeyedRequest& request, index::Table& table, absl::Time now);
  // The same in two steps. None: it is answered, or began a long write. `replaced` is null, or the
  // decision that it replaces (MayReplace).
  absl::optional<Decision> DecideKeyed(const KeyedRequest& request, index::Table& table,
                                       const Decision* replaced, absl::Time now);
  void ApplyKeyed(const KeyedRequest& request, const Decision& decision, index::Table& table,
                  PartitionChanges& changes, absl::Time now);
  // Answers a write that was replaced by a later one.
  void AnswerReplaced(const KeyedRequest& request, const Decision& decision, absl::Time now);
  // Whether a read has no answer before the pending write of its key is applied.
  bool AnswersLater(const KeyedRequest& request, const index::Table& table) const;

 private:
  void TakeRendezvous(const rdma::FrameHeader& header, rdma::FrameBytes frame, absl::Time now);
  bool IsToExecute(const KeyedRequest& request, absl::Time now);
  bool IsOfOtherShard(const KeyedRequest& request, absl::Time now);
  void ExecuteChecked(const KeyedRequest& request, index::Table& table, absl::Time now);
  bool IsToLog(rdma::Opcode opcode, uint64_t sequence, absl::Time now);
  void TakeFlush(const rdma::FrameHeader& header, rdma::FrameBytes frame, absl::Time now);
  void TakeQuestion(const rdma::FrameHeader& header, rdma::FrameBytes frame, absl::Time now);
  void TakeHints(const rdma::FrameHeader& header, rdma::FrameBytes frame);
  void TakeReport(const rdma::FrameHeader& header, rdma::FrameBytes frame, absl::Time now);
  void TakeDisconnectNotice(rdma::FrameBytes frame, absl::Time now);

  bool Settled(uint64_t sequence, absl::Time now);
  void AnswerAgain(uint64_t sequence, absl::Time now);
  bool Refused(uint64_t sequence, absl::Time now);
  void Refuse(uint64_t sequence, absl::Time now);

  Shared& shared_;
  rdma::Transport& transport_;
  const rdma::ConnectionId id_;
  Lifecycle& lifecycle_;
  SessionHold& session_;
  ReplyPort& replies_;
  LongWrites& writes_;
  ReportLimit report_limit_;
};

}  // namespace osprey::server

#endif  // OSPREY_SERVER_ENGINE_CONNECTION_REQUEST_EXECUTOR_H_
