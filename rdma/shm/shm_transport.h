// One thread's shm connections. What goes over a connection's socket is in rdma/shm/socket.h, what
// through its rings in rdma/shm/ring.h.

#ifndef OSPREY_RDMA_SHM_SHM_TRANSPORT_H_
#define OSPREY_RDMA_SHM_SHM_TRANSPORT_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "rdma/handshake.h"
#include "rdma/inbox.h"
#include "rdma/shm/connection.h"
#include "rdma/shm/connection_end.h"
#include "rdma/shm/domain.h"
#include "rdma/shm/listener.h"
#include "rdma/shm/mapping.h"
#include "rdma/shm/peer_fd.h"
#include "rdma/shm/peer_ledger.h"
#include "rdma/shm/ring.h"
#include "rdma/shm/slow_closer.h"
#include "rdma/shm/socket.h"
#include "rdma/transport.h"
#include "rdma/unique_fd.h"

namespace osprey::rdma {

// A connection that asks, on its way from one Transport to another.
struct ShmMigrated {
  PeerFd socket;
  bool takes_descriptors = true;
  std::shared_ptr<const ShmLife> life;
  std::string uri;
  std::string source;
  ConnectData theirs;
  uint32_t exposed_max = 0;
};

class ShmTransport final : public Transport, private MappedReads {
 public:
  // Errors: RESOURCE_EXHAUSTED (no descriptors), INVALID_ARGUMENT (options out of range).
  static absl::StatusOr<std::unique_ptr<Transport>> Create(const ShmDomainOptions& domain,
                                                           const TransportOptions& options,
                                                           std::shared_ptr<SlowCloser> closer,
                                                           std::shared_ptr<ShmPeerLedger> ledger);
  ~ShmTransport() override;

  absl::StatusOr<std::string> Listen(absl::string_view uri, uint64_t incarnation) override;
  absl::StatusOr<ConnectionId> Connect(absl::string_view uri, uint32_t affinity = 0) override;
  absl::Status Accept(ConnectionId id) override;
  void Reject(ConnectionId id, RejectReason reason) override;
  absl::Status Migrate(ConnectionId id, Transport& other) override;
  absl::StatusOr<RemoteMemory> Expose(ConnectionId id, const Memory& memory) override;
  absl::StatusOr<RemoteMemory> Announce(ConnectionId id, const Memory& memory) override {
    return Expose(id, memory);
  }
  void Withdraw(ConnectionId id, const Memory& memory) override;
  absl::Status Attach(ConnectionId id, const RemoteMemory& remote) override;
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

  // Marks the epoll entry of a listener; the low bits are its index. No connection's id has it.
  static constexpr uint64_t kListenerTag = uint64_t{1} << 63;
  // Marks that of handed_over_.
  static constexpr uint64_t kMigratedTag = uint64_t{1} << 62;

  ShmTransport(const ShmDomainOptions& domain, const TransportOptions& options,
               std::shared_ptr<SlowCloser> closer, std::shared_ptr<ShmPeerLedger> ledger);

  // Adds the socket to the epoll set.
  bool Watch(ShmConnection* connection);

  // Set-up: transport_setup.cc.
  void SendRejection(int socket, RejectReason reason) const;
  void QueueRequest(const ShmConnection& connection);
  absl::Status StartConnect(ShmConnection* connection, const std::string& path, uint32_t affinity);
  absl::Status SendAcceptance(ShmConnection* connection);
  void SetRings(ShmConnection* connection, Mapping rings, bool server);
  void TakeNewcomers(size_t listener);
  bool TakeNewcomer(size_t listener);
  void RefuseForLackOfDescriptors(const ShmListener& listener);
  void HandleRequest(ShmConnection* connection, const ReceivedPacket& received);
  void HandleAnswer(ShmConnection* connection, ReceivedPacket& received);
  absl::Status TakeAcceptance(ShmConnection* connection, ReceivedPacket& received);

  // transport_migration.cc.
  void TakeMigrated();

  // What comes over sockets: transport_sockets.cc.
  void CheckSockets();
  void ReadSocket(ShmConnection* connection);
  void HandlePacket(ShmConnection* connection, ReceivedPacket& received);
  void HandleExpose(ShmConnection* connection, ReceivedPacket& received);
  void HandleWithdraw(ShmConnection* connection, const ReceivedPacket& received);
  void SendWithdrawals(ShmConnection* connection);
  void HandleHangUp(ShmConnection* connection);

  // Hot path: shm_transport.cc.
  bool SocketsAreDue();
  size_t DeliverQueued(absl::Span<Event> events, size_t count);
  size_t DeliverFrames(absl::Span<Event> events, size_t count);
  size_t DeliverFramesOf(ShmConnection* connection, absl::Span<Event> events, size_t count);
  void Wake(const ShmConnection& connection);
  void SendDueWakes();

  ShmCommon common_;
  const std::shared_ptr<SlowCloser> closer_;
  ShmEnding ending_;
  // Given up for a moment to refuse a newcomer politely when there are no descriptors left.
  UniqueFd spare_;
  std::vector<std::unique_ptr<ShmListener>> listeners_;
  std::unique_ptr<Inbox<ShmMigrated>> migrated_;  // what other Transports gave us
  std::vector<ConnectionId> greeting_;            // accepted and silent, oldest first
  std::vector<ConnectionId> wakes_due_;  // to sleeping peers: the kernel did not take them yet
  FrameBuffers frame_buffers_;
  uint32_t polls_since_sockets_ = 0;
  bool sockets_due_ = false;
};

}  // namespace osprey::rdma

#endif  // OSPREY_RDMA_SHM_SHM_TRANSPORT_H_
