// The making of connections: listeners and what comes to them, the exchange of connect data, and the
// way of a connection that asks to another thread.

#ifndef OSPREY_RDMA_SHM_TRANSPORT_SETUP_H_
#define OSPREY_RDMA_SHM_TRANSPORT_SETUP_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "rdma/handshake.h"
#include "rdma/inbox.h"
#include "rdma/shm/connection.h"
#include "rdma/shm/connection_end.h"
#include "rdma/shm/listener.h"
#include "rdma/shm/mapping.h"
#include "rdma/shm/peer/peer_fd.h"
#include "rdma/shm/peer/slow_closer.h"
#include "rdma/shm/socket.h"
#include "rdma/transport.h"
#include "rdma/unique_fd.h"

namespace osprey::rdma {

// A connection that asks, on its way from one Transport to another.
struct ShmMigrated {
  PeerFd socket;
  ShmPeer peer;
};

// Makes the connections of one Transport. Not thread-safe, but for HandOver to this.
class ShmSetup {
 public:
  // Marks the epoll entry of a listener; the low bits are its index. No connection's id has it.
  static constexpr uint64_t kListenerTag = uint64_t{1} << 63;
  // Marks that of what other Transports hand over.
  static constexpr uint64_t kMigratedTag = uint64_t{1} << 62;

  // REQUIRES: `common` and `ending` outlive this.
  ShmSetup(ShmCommon& common, ShmEnding& ending, std::shared_ptr<SlowCloser> closer)
      : common_(common), ending_(ending), closer_(std::move(closer)) {}

  // To be called once, before all others. Errors: RESOURCE_EXHAUSTED (no descriptors).
  absl::Status Open();

  // As of Transport.
  absl::StatusOr<std::string> Listen(absl::string_view uri, uint64_t incarnation);
  absl::StatusOr<ConnectionId> Connect(absl::string_view uri, uint32_t affinity, uint16_t version);
  absl::Status Accept(ConnectionId id);
  void Reject(ConnectionId id, RejectReason reason);

  // Migrate of a connection in kRequested; the Transport of `to` is another.
  absl::Status HandOver(ShmConnection* connection, ShmSetup& to);
  // Takes what others handed over.
  void TakeMigrated();

  // Takes one client that waits at the listener of that index; false when none was taken. Sets
  // `newcomer` to its connection, in kGreeting, or to null if it was refused.
  bool TakeNewcomer(size_t listener, ShmConnection** newcomer);
  // Erases a connection in kGreeting.
  void DropNewcomer(ShmConnection* connection);
  // The first packet of a connection in kGreeting. May erase it.
  void HandleRequest(ShmConnection* connection, const ReceivedPacket& received);
  // The first packet of a connection in kConnecting. May end it.
  void HandleAnswer(ShmConnection* connection, ReceivedPacket& received);

 private:
  using State = ShmConnection::State;

  // Adds the socket to the epoll set.
  bool Watch(ShmConnection* connection);
  void SendRejection(int socket, RejectReason reason, uint16_t version = 0) const;
  void QueueRequest(const ShmConnection& connection);
  absl::Status StartConnect(ShmConnection* connection, const std::string& path, uint32_t affinity);
  absl::Status SendAcceptance(ShmConnection* connection);
  void SetRings(ShmConnection* connection, Mapping rings, bool server);
  void RefuseForLackOfDescriptors(const ShmListener& listener);
  absl::Status TakeAcceptance(ShmConnection* connection, ReceivedPacket& received);

  ShmCommon& common_;
  ShmEnding& ending_;
  const std::shared_ptr<SlowCloser> closer_;
  // Given up for a moment to refuse a newcomer politely when there are no descriptors left.
  UniqueFd spare_;
  std::vector<std::unique_ptr<ShmListener>> listeners_;
  std::unique_ptr<Inbox<ShmMigrated>> migrated_;  // what other Transports gave us
  std::vector<ConnectionId> greeting_;            // accepted and silent, oldest first
};

}  // namespace osprey::rdma

#endif  // OSPREY_RDMA_SHM_TRANSPORT_SETUP_H_
