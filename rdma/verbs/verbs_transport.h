// The Transport over verbs: one event channel for all CM events, completion queues per device, one
// epoll descriptor.
//
// The hot path (Send, PostReads, Poll) allocates nothing; its only system call is the device's own
// doorbell. CM events and asynchronous ones are rare, and checked by system calls. Poll checks them
// after a sleep, or while a connection is being made, else when the kernel's coarse clock has
// ticked (1 to 10 ms).
//
// Calls that could block in the kernel run on background threads. Making queue pairs of requests,
// and breaking and destroying all, takes milliseconds (blocking_executor.h). Destroying CM ids can
// take a minute (device/reaper.h). All else belongs to the Transport's thread.
//
// Implemented in verbs_transport.cc (Poll, and the methods on connections that are up), in
// transport_connecting.cc, transport_cm_events.cc and transport_migration.cc (the making of
// connections), and in transport_ending.cc. transport_state.h has what they share.

#ifndef OSPREY_RDMA_VERBS_VERBS_TRANSPORT_H_
#define OSPREY_RDMA_VERBS_VERBS_TRANSPORT_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "rdma/handshake.h"
#include "rdma/inbox.h"
#include "rdma/transport.h"
#include "rdma/verbs/connection.h"
#include "rdma/verbs/device/async.h"
#include "rdma/verbs/device/objects.h"
#include "rdma/verbs/event_output.h"
#include "rdma/verbs/link.h"
#include "rdma/verbs/readiness_sources.h"
#include "rdma/verbs/transport_state.h"

namespace osprey::rdma {

struct CmEvent;  // cm_event.h

class VerbsTransport : public Transport {
 public:
  // REQUIRES: `shared` outlives the result. Errors: INVALID_ARGUMENT for options out of range;
  // RESOURCE_EXHAUSTED.
  static absl::StatusOr<std::unique_ptr<VerbsTransport>> Create(VerbsShared& shared,
                                                                const TransportOptions& options);
  ~VerbsTransport() override;

  absl::StatusOr<std::string> Listen(absl::string_view uri, uint64_t incarnation) override;
  absl::StatusOr<ConnectionId> Connect(absl::string_view uri, uint32_t affinity = 0) override;
  absl::Status Accept(ConnectionId id) override;
  void Reject(ConnectionId id, RejectReason reason) override;
  absl::Status Migrate(ConnectionId id, Transport& other) override;
  absl::StatusOr<RemoteMemory> Expose(ConnectionId id, const Memory& memory) override;
  absl::StatusOr<RemoteMemory> Announce(ConnectionId id, const Memory& memory) override;
  void Withdraw(ConnectionId id, const Memory& memory) override;
  absl::Status Attach(ConnectionId id, const RemoteMemory& remote) override;
  absl::Status PostReads(ConnectionId id, absl::Span<const ReadRequest> reads,
                         uint64_t cookie) override;
  bool PollReads(ReadsDone& done) override;
  size_t ReadRoom(ConnectionId id) const override;
  absl::Status Send(ConnectionId id, absl::Span<const Bytes> pieces) override;
  size_t SendRoom(ConnectionId id) const override;
  void Disconnect(ConnectionId id) override;
  size_t Poll(absl::Span<Event> events) override;
  bool Arm() override;
  int fd() const override { return sources_.fd(); }
  ConnectionLimits limits(ConnectionId id) const override;
  std::string Describe(ConnectionId id) const override;
  Resources resources() const override;

  // For tests: to inspect its attributes, and for operations that this class never does. nullptr
  // when there is none.
  ibv_qp* queue_pair(ConnectionId id) const;

 private:
  VerbsTransport(VerbsShared& shared, const TransportOptions& options)
      : state_(shared, options), chain_(options.reads_in_flight_max) {}
  absl::Status Initialize();
  // verbs_transport.cc: progress.
  void ReleaseFrames();
  bool MustLookAround();
  void LookAround();
  // True when no completion is left.
  bool PollCompletions(EventSpan& output);
  // The connection that the completion is of; null: it came too late to matter.
  VerbsConnection* ConnectionOf(const ibv_wc& completion) const;
  void OnCompletion(const ibv_wc& completion, EventSpan& output);
  void OnFrame(VerbsConnection& connection, uint16_t receive, uint32_t bytes, EventSpan& output);
  void OnNotice(const DeviceNotice& notice);
  void OnDeviceLost();
  // The connection if frames and READs may be posted on it, else nullptr.
  VerbsConnection* FindConnected(ConnectionId id) const;

  // transport_connecting.cc.
  ConnectData OurData(RejectReason reason = RejectReason::kNone) const;
  rdma_conn_param ConnectParameters(const ConnectData& data, const Link& link,
                                    const ReadDepth& depth) const;
  absl::StatusOr<std::unique_ptr<Link>> NewLink(VerbsConnection& connection,
                                                uint16_t send_credits_max,
                                                uint32_t frame_bytes_max);
  absl::Status StartConnecting(VerbsConnection& connection);
  absl::Status SendConnectRequest(VerbsConnection& connection);
  absl::Status FinishConnecting(VerbsConnection& connection, const CmEvent& event);
  absl::Status StartBuilding(VerbsConnection& connection);
  void OnBuilt(VerbsConnection& connection, std::unique_ptr<Link> link, absl::Status status);
  absl::Status StartAccepting(VerbsConnection& connection);
  void OnConnectRequest(const CmEvent& event);
  // The new connection; kNone: it was refused. This and Refuse may destroy the id, so every fetched
  // event of it must have been acknowledged.
  ConnectionId AddRequested(VerbsMigrated asking);
  // Refuses an id that requests a connection, for which nothing has been made.
  void Refuse(CmId id, RejectReason reason);
  void BecomeConnected(VerbsConnection& connection);

  // transport_migration.cc.
  void TakeMigrated(size_t count_max);

  // transport_cm_events.cc.
  void ReadCmEvent();
  void OnCmEvent(VerbsConnection& connection, const CmEvent& event);
  absl::Status FailureOf(const VerbsConnection& connection, const CmEvent& event) const;
  absl::Status RejectionOf(const VerbsConnection& connection, const CmEvent& event) const;

  // transport_ending.cc. Break ignores a connection that is ending already.
  void Break(VerbsConnection& connection, absl::Status status);
  void StartDisconnectNotice(VerbsConnection& connection);
  void StartBreaking(VerbsConnection& connection);
  void StartDrain(VerbsConnection& connection);
  void Destroy(VerbsConnection& connection);
  void End(VerbsConnection& connection);
  // `seen_all`: every available completion has been handled.
  void FinishEnding(bool seen_all);

  VerbsTransportState state_;
  EventOutput events_{state_};
  ReadinessSources sources_;

  std::unique_ptr<DeviceInbox> inbox_;
  std::unique_ptr<Inbox<VerbsMigrated>> migrated_;  // from other Transports
  std::vector<CmId> listeners_;
  ReadChain chain_;
  std::vector<ConnectionId> ending_;  // kSendingDisconnectNotice, kDraining
  int64_t coarse_tick_ = 0;           // coarse time of the last look around
  uint32_t polls_unclocked_ = 0;
  bool device_lost_ = false;
};

}  // namespace osprey::rdma

#endif  // OSPREY_RDMA_VERBS_VERBS_TRANSPORT_H_
