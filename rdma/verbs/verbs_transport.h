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
// The class itself has the hot path and the methods on connections that are up. Its parts are
// classes with files of their own:
//
//   transport_state.h       what the parts share
//   event_output.h          events that wait for room, and what delivered ones refer to
//   readiness_sources.h     the epoll descriptor
//   connection_setup.h      listening, connecting, accepting
//   connection_migration.h  requested connections that move to other threads
//   connection_ending.h     from Disconnect or an error to kDisconnected
//   cm_event_handler.h      CM events
//   device_notices.h        asynchronous events of devices

#ifndef OSPREY_RDMA_VERBS_VERBS_TRANSPORT_H_
#define OSPREY_RDMA_VERBS_VERBS_TRANSPORT_H_

#include <infiniband/verbs.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "rdma/transport.h"
#include "rdma/verbs/cm_event_handler.h"
#include "rdma/verbs/connection.h"
#include "rdma/verbs/connection_ending.h"
#include "rdma/verbs/connection_migration.h"
#include "rdma/verbs/connection_setup.h"
#include "rdma/verbs/device_notices.h"
#include "rdma/verbs/event_output.h"
#include "rdma/verbs/link.h"
#include "rdma/verbs/readiness_sources.h"
#include "rdma/verbs/transport_state.h"

namespace osprey::rdma {

class VerbsTransport : public Transport {
 public:
  // REQUIRES: `shared` outlives the result. Errors: INVALID_ARGUMENT for options out of range;
  // RESOURCE_EXHAUSTED.
  static absl::StatusOr<std::unique_ptr<VerbsTransport>> Create(VerbsShared& shared,
                                                                const TransportOptions& options);
  ~VerbsTransport() override;

  absl::StatusOr<std::string> Listen(absl::string_view uri, uint64_t incarnation) override;
  absl::StatusOr<ConnectionId> Connect(absl::string_view uri, uint32_t affinity = 0,
                                       uint16_t version = 0) override;
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

  void ReleaseFrames();
  bool MustLookAround();
  void LookAround();
  // True when no completion is left.
  bool PollCompletions(EventSpan& output);
  // The connection that the completion is of; null: it came too late to matter.
  VerbsConnection* ConnectionOf(const ibv_wc& completion) const;
  void OnCompletion(const ibv_wc& completion, EventSpan& output);
  void OnFrame(VerbsConnection& connection, uint16_t receive, uint32_t bytes, EventSpan& output);
  // The connection if frames and READs may be posted on it, else nullptr.
  VerbsConnection* FindConnected(ConnectionId id) const;

  VerbsTransportState state_;
  EventOutput events_{state_};
  ReadinessSources sources_;
  ConnectionEnding ending_{state_, events_};
  ConnectionSetup setup_{state_, events_, sources_, ending_};
  ConnectionMigration migration_{state_, setup_};
  DeviceNotices notices_{state_, events_, ending_};
  CmEventHandler cm_events_{state_, setup_, ending_, migration_, notices_};

  ReadChain chain_;
  int64_t coarse_tick_ = 0;  // coarse time of the last look around
  uint32_t polls_unclocked_ = 0;
};

}  // namespace osprey::rdma

#endif  // OSPREY_RDMA_VERBS_VERBS_TRANSPORT_H_
