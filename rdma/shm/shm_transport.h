// One thread's shm connections. What goes over a connection's socket is in rdma/shm/socket.h, what
// through its rings in rdma/shm/ring.h.
//
//   ShmTransport   READs, frames and Poll; owns the parts
//     ShmSockets   what comes over sockets; exposed memory           transport_sockets.h
//       ShmSetup   listeners, connect data, migration                transport_setup.h
//         ShmEnding  closes what a connection holds                  connection_end.h
//           ShmCommon  the table of connections, events that wait    connection.h
//
// A part uses those below it, and none above.

#ifndef OSPREY_RDMA_SHM_SHM_TRANSPORT_H_
#define OSPREY_RDMA_SHM_SHM_TRANSPORT_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "rdma/handshake.h"
#include "rdma/shm/connection.h"
#include "rdma/shm/connection_end.h"
#include "rdma/shm/domain.h"
#include "rdma/shm/peer/slow_closer.h"
#include "rdma/shm/peer_ledger.h"
#include "rdma/shm/ring.h"
#include "rdma/shm/transport_setup.h"
#include "rdma/shm/transport_sockets.h"
#include "rdma/transport.h"

namespace osprey::rdma {

class ShmTransport final : public Transport, private MappedReads {
 public:
  // Errors: RESOURCE_EXHAUSTED (no descriptors), INVALID_ARGUMENT (options out of range).
  static absl::StatusOr<std::unique_ptr<Transport>> Create(const ShmDomainOptions& domain,
                                                           const TransportOptions& options,
                                                           std::shared_ptr<SlowCloser> closer,
                                                           std::shared_ptr<ShmPeerLedger> ledger);
  ~ShmTransport() override;

  absl::StatusOr<std::string> Listen(absl::string_view uri, uint64_t incarnation) override {
    return setup_.Listen(uri, incarnation);
  }
  absl::StatusOr<ConnectionId> Connect(absl::string_view uri, uint32_t affinity = 0,
                                       uint16_t version = 0) override {
    return setup_.Connect(uri, affinity, version);
  }
  absl::Status Accept(ConnectionId id) override { return setup_.Accept(id); }
  void Reject(ConnectionId id, RejectReason reason) override { setup_.Reject(id, reason); }
  absl::Status Migrate(ConnectionId id, Transport& other) override;
  absl::StatusOr<RemoteMemory> Expose(ConnectionId id, const Memory& memory) override {
    return sockets_.Expose(id, memory);
  }
  absl::StatusOr<RemoteMemory> Announce(ConnectionId id, const Memory& memory) override {
    return Expose(id, memory);
  }
  void Withdraw(ConnectionId id, const Memory& memory) override { sockets_.Withdraw(id, memory); }
  absl::Status Attach(ConnectionId id, const RemoteMemory& remote) override {
    return sockets_.Attach(id, remote);
  }
  absl::Status PostReads(ConnectionId id, absl::Span<const ReadRequest> reads,
                         uint64_t cookie) override;
  Bytes View(ConnectionId id, const RemoteMemory& remote) const override;
  absl::Status ReadNow(ConnectionId id, absl::Span<const ReadRequest> reads) override;
  MappedReads* mapped_reads() override { return this; }
  bool PollReads(ReadsDone& done) override;
  size_t ReadRoom(ConnectionId id) const override;
  absl::Status Send(ConnectionId id, absl::Span<const Bytes> pieces) override;
  size_t SendRoom(ConnectionId id) const override;
  void Disconnect(ConnectionId id) override { ending_.Disconnect(id); }
  size_t Poll(absl::Span<Event> events) override;
  bool Arm() override;
  int fd() const override { return common_.epoll.get(); }
  ConnectionLimits limits(ConnectionId id) const override;
  std::string Describe(ConnectionId id) const override;
  Resources resources() const override;

 private:
  using State = ShmConnection::State;

  ShmTransport(const ShmDomainOptions& domain, const TransportOptions& options,
               std::shared_ptr<SlowCloser> closer, std::shared_ptr<ShmPeerLedger> ledger);

  size_t DeliverQueued(absl::Span<Event> events, size_t count);
  size_t DeliverFrames(absl::Span<Event> events, size_t count);
  size_t DeliverFramesOf(ShmConnection* connection, absl::Span<Event> events, size_t count);
  void RestIfQuiet(ShmConnection* connection);
  void Wake(const ShmConnection& connection);
  void SendDueWakes();

  ShmCommon common_;
  ShmEnding ending_;
  ShmSetup setup_;
  ShmSockets sockets_;
  std::vector<ConnectionId> wakes_due_;  // to sleeping peers: the kernel did not take them yet
  FrameBuffers frame_buffers_;
};

}  // namespace osprey::rdma

#endif  // OSPREY_RDMA_SHM_SHM_TRANSPORT_H_
