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
// connections), and in transport_ending.cc.

#ifndef OSPREY_RDMA_VERBS_VERBS_TRANSPORT_H_
#define OSPREY_RDMA_VERBS_VERBS_TRANSPORT_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "rdma/blocking_executor.h"
#include "rdma/handshake.h"
#include "rdma/inbox.h"
#include "rdma/transport.h"
#include "rdma/unique_fd.h"
#include "rdma/verbs/completions.h"
#include "rdma/verbs/connection.h"
#include "rdma/verbs/device/async.h"
#include "rdma/verbs/device/device.h"
#include "rdma/verbs/device/objects.h"
#include "rdma/verbs/device/reaper.h"
#include "rdma/verbs/link.h"

namespace osprey::rdma {

struct CmEvent;  // cm_event.h

// State that the Transports of one Domain share. Thread-safe.
struct VerbsShared {
  uint16_t protocol_version = kProtocolVersion;
  std::unique_ptr<VerbsDevices> devices;
  AsyncEvents async;
};

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
  int fd() const override { return epoll_.get(); }
  ConnectionLimits limits(ConnectionId id) const override;
  std::string Describe(ConnectionId id) const override;
  Resources resources() const override;

  // For tests: to inspect its attributes, and for operations that this class never does. nullptr
  // when there is none.
  ibv_qp* queue_pair(ConnectionId id) const;

 private:
  // A source that epoll reports ready: an index into readiness_.
  struct Source {
    enum class Kind { kCm, kInbox, kMigrated, kBlockingCalls, kDeviceEvents, kCompletions };
    Kind kind;
    size_t device = 0;
    int fd = -1;
  };
  // An event that waits for room in the caller's span.
  struct Pending {
    Event event;
    uint16_t receive = 0;  // kReceived: the receive buffer that holds the frame
  };
  struct DeliveredFrame {
    ConnectionId connection;
    uint16_t receive;
  };
  // The filled part of the caller's span.
  struct Output {
    absl::Span<Event> events;
    size_t count = 0;
    bool full() const { return count == events.size(); }
  };

  VerbsTransport(VerbsShared& shared, const TransportOptions& options)
      : shared_(shared), options_(options), chain_(options.reads_in_flight_max) {}
  absl::Status Initialize();
  absl::Status Watch(int fd, Source source);
  // Leaves connect requests and other CM events in the kernel, where they do not wake us.
  void PauseAccept(bool hold);

  // verbs_transport.cc: progress.
  void ReleaseFrames();
  bool MustLookAround();
  void LookAround();
  void FreeEnded();
  // True when no completion is left.
  bool PollCompletions(Output& output);
  // The connection that the completion is of; null: it came too late to matter.
  VerbsConnection* ConnectionOf(const ibv_wc& completion) const;
  void OnCompletion(const ibv_wc& completion, Output& output);
  void OnFrame(VerbsConnection& connection, uint16_t receive, uint32_t bytes, Output& output);
  void OnNotice(const DeviceNotice& notice);
  void OnDeviceLost();
  void Emit(Output& output, Event::Kind kind, ConnectionId id, uint64_t cookie, Bytes frame,
            uint16_t receive);
  void DeliverPending(Output& output);
  void Queue(Event::Kind kind, ConnectionId id, absl::Status status = absl::OkStatus());
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
  void SetState(VerbsConnection& connection, ConnectionState state);

  VerbsShared& shared_;
  const TransportOptions options_;
  std::unique_ptr<CmReaper> reaper_;                             // and the CM events' channel
  std::vector<std::unique_ptr<DeviceCompletions>> completions_;  // by device
  std::unique_ptr<DeviceInbox> inbox_;
  std::unique_ptr<Inbox<VerbsMigrated>> migrated_;  // from other Transports
  std::vector<CmId> listeners_;
  ConnectionTable connections_;
  std::unique_ptr<BlockingExecutor> blocking_executor_;  // holds some connections' links
  ReadChain chain_;

  std::vector<ConnectionId> ending_;  // kSendingDisconnectNotice, kDraining
  std::vector<std::unique_ptr<VerbsConnection>>
      delivered_ends_;  // their frames are valid until the next Poll
  std::vector<DeliveredFrame> delivered_frames_;
  std::deque<Pending> pending_;

  std::vector<Source> sources_;
  size_t connecting_ = 0;         // connections that wait for a CM event, or for slow_calls_
  size_t batches_in_flight_ = 0;  // of READs, of all connections
  bool look_around_ = true;       // at the next Poll
  int64_t coarse_tick_ = 0;       // coarse time of the last look around
  uint32_t polls_unclocked_ = 0;
  bool device_lost_ = false;
  UniqueFd epoll_;
};

}  // namespace osprey::rdma

#endif  // OSPREY_RDMA_VERBS_VERBS_TRANSPORT_H_
