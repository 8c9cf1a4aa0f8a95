// The requests of an established connection: each is parsed, executed and answered, or refused.
//
// A write is answered once: a repeated one gets the answer that the session remembers. Thread rule:
// the engine's thread.

#ifndef OSPREY_SERVER_ENGINE_REQUEST_EXECUTOR_H_
#define OSPREY_SERVER_ENGINE_REQUEST_EXECUTOR_H_

#include <cstdint>

#include "absl/time/time.h"
#include "index/layout/hash.h"
#include "rdma/transport.h"
#include "rdma/wire/protocol.h"
#include "server/engine/lifecycle.h"
#include "server/engine/long_writes.h"
#include "server/engine/reply_port.h"
#include "server/engine/session_hold.h"
#include "server/engine/shared.h"
#include "server/requests/requests.h"
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

  // Executes a request of this session, or begins a long write. Closes the connection if the
  // request is malformed or breaks the order. REQUIRES: the connection is not closing.
  void Execute(const rdma::FrameHeader& header, rdma::FrameBytes frame, absl::Time now);
  // The hash of the next request's key, if it is known already; null otherwise.
  void set_known_hash(const index::KeyHash* hash) { known_hash_ = hash; }

 private:
  void TakePut(const rdma::FrameHeader& header, rdma::FrameBytes frame, absl::Time now);
  Answer Put(const rdma::PutRequest& request, absl::Time now);
  void TakeDelete(const rdma::FrameHeader& header, rdma::FrameBytes frame, absl::Time now);
  void TakeIncrement(const rdma::FrameHeader& header, rdma::FrameBytes frame, absl::Time now);
  void TakeAppend(const rdma::FrameHeader& header, rdma::FrameBytes frame, absl::Time now);
  void TakeFlush(const rdma::FrameHeader& header, rdma::FrameBytes frame, absl::Time now);
  void TakeGet(const rdma::FrameHeader& header, rdma::FrameBytes frame, absl::Time now);
  void TakeExpire(const rdma::FrameHeader& header, rdma::FrameBytes frame, absl::Time now);
  void TakeTouch(const rdma::FrameHeader& header, rdma::FrameBytes frame, absl::Time now);
  void TakeQuestion(const rdma::FrameHeader& header, rdma::FrameBytes frame, absl::Time now);
  void TakeHints(const rdma::FrameHeader& header, rdma::FrameBytes frame);
  void TakeReport(const rdma::FrameHeader& header, rdma::FrameBytes frame, absl::Time now);
  void TakeDisconnectNotice(rdma::FrameBytes frame);

  bool Settled(uint64_t sequence, absl::Time now);
  bool Refused(uint64_t sequence, absl::Time now);

  Shared& shared_;
  rdma::Transport& transport_;
  const rdma::ConnectionId id_;
  Lifecycle& lifecycle_;
  SessionHold& session_;
  ReplyPort& replies_;
  LongWrites& writes_;
  ReportLimit report_limit_;
  const index::KeyHash* known_hash_ = nullptr;
};

}  // namespace osprey::server

#endif  // OSPREY_SERVER_ENGINE_REQUEST_EXECUTOR_H_
