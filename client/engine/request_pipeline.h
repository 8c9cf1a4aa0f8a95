// The messages of the client's engine: requests out, replies in, and both after the loss of a
// connection.

#ifndef OSPREY_CLIENT_ENGINE_REQUEST_PIPELINE_H_
#define OSPREY_CLIENT_ENGINE_REQUEST_PIPELINE_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/time/time.h"
#include "client/common/registered_memory.h"
#include "client/engine/message_operation.h"
#include "client/engine/operations.h"
#include "client/engine/server_link.h"
#include "rdma/transport.h"
#include "rdma/wire/batch.h"
#include "rdma/wire/protocol.h"

namespace osprey::client {

// Not thread-safe.
class RequestPipeline : public Exposer {
 public:
  // The client sends hits beside requests once there are this many, which is worth a frame's
  // header, or after this time. It sends them alone at most this often.
  static constexpr size_t kToldTogether = 16;
  static constexpr absl::Duration kTellEvery() { return absl::Seconds(1); }

  // Both must outlive this.
  RequestPipeline(ServerLink& link, Operations& operations);

  // Requests the server's time if GETs or scans use it, and its bounds grow old.
  void AskTime(absl::Time now, bool scans_want_it);
  // Likewise the addresses of the cluster's servers, if it is time (known_servers.h).
  void AskServers(absl::Time now);
  // Sends all that are ready, in as few frames as possible.
  void SendAll(absl::Time now);
  // Sent before the DisconnectNotice: otherwise a client that makes a few GETs alone would never
  // report them.
  void SendLastReport();

  // False: the frame has neither a reply nor a Batch of replies.
  bool OnFrame(rdma::Bytes frame, absl::Time now);
  // A connection is ready, or was lost.
  void OnReady();
  void OnLost();

  void Withdraw(const rdma::Memory& memory) override;

 private:
  bool HasRequests() const {
    return !operations_.to_send.empty() || !operations_.to_resend.empty() ||
           !link_.sampler.notes().empty();
  }
  void SendRequests(absl::Time now);
  void BatchRequests();
  bool AppendHits(absl::Time now);
  bool AppendReport(absl::Time now);
  bool AppendRequest(Operation& operation, uint64_t& next_sequence);
  void SentRequest(Operation& operation);
  void OnReply(rdma::Bytes frame, absl::Time now);
  void Learn(const MessageOperation& message, const rdma::Reply& reply);
  void Refused(Operation& operation, absl::Time now);
  uint64_t Ask(rdma::Opcode question, uint64_t asked, absl::Time now);
  void LearnServers(const rdma::Reply& reply);
  void RequeueRequests();
  bool MayBeRead(const rdma::Memory& memory) const;

  ServerLink& link_;
  Operations& operations_;
  Exposures exposures_;
  // The frame under construction for the present connection, and its contents.
  std::optional<rdma::FrameBatch> batch_;
  std::vector<Operation*> in_frame_;
  std::vector<rdma::FrameBytes> replies_;      // of the Batch that is being parsed
  absl::Time told_at_ = absl::InfinitePast();  // when the server was last sent hits
  // The sequence of the last question for the time, and for servers; 0: none.
  uint64_t time_asked_ = 0, servers_asked_ = 0;
};

}  // namespace osprey::client

#endif  // OSPREY_CLIENT_ENGINE_REQUEST_PIPELINE_H_
