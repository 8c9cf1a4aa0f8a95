// The end of connections: their sockets, and at the server the pages of their rings.
//
// The kernel charges a page to the process that touches it first, and a client can keep its rings
// mapped for any time. So a server takes the pages out of the file when the connection ends: all of
// them if the client is gone or broke a rule. A client that the server disconnects may not have
// taken the last frames yet. Those pages stay until kRingsMax more connections have ended so.

#ifndef OSPREY_RDMA_SHM_CONNECTION_END_H_
#define OSPREY_RDMA_SHM_CONNECTION_END_H_

#include <cstddef>
#include <deque>

#include "absl/status/status.h"
#include "rdma/shm/connection.h"
#include "rdma/shm/mapping.h"
#include "rdma/shm/ring.h"
#include "rdma/transport.h"

namespace osprey::rdma {

// Not thread-safe. When it is destroyed the frames stay in the files: the process is about to end.
class UnreadRings {
 public:
  // Bounds what clients that read nothing leave behind: some 1 MiB each.
  static constexpr size_t kRingsMax = 16;

  // Keeps what `out`, the ring at `offset` of `rings`, holds for its consumer, and no other page.
  void Keep(Mapping rings, size_t offset, RingProducer& out);

 private:
  std::deque<Mapping> rings_;  // the oldest first
};

// Ends the connections of one Transport. Not thread-safe.
class ShmEnding {
 public:
  // REQUIRES: `common` outlives this.
  explicit ShmEnding(ShmCommon& common) : common_(common) {}

  // Takes leave of the peer, and ends the connection if that has not happened.
  void Disconnect(ConnectionId id);
  // Closes what the connection holds. `status` goes out in kDisconnected, which is queued.
  void End(ShmConnection* connection, absl::Status status);
  // Hangs up, and closes the socket without waiting for that. One whose peer has descriptors to
  // receive goes to the ledger.
  void CloseSocket(ShmConnection* connection);
  // Closes the socket, and takes the connection out of the table.
  void Erase(ShmConnection* connection);
  // The end of the Transport: the same of all connections, for which no ledger is needed.
  void CloseAll();

 private:
  using State = ShmConnection::State;

  // Unmaps the rings, and gives their pages back but for frames that the peer is still to read.
  void EndRings(ShmConnection* connection, bool peer_reads_on);

  ShmCommon& common_;
  UnreadRings unread_rings_;  // of connections that we ended
};

}  // namespace osprey::rdma

#endif  // OSPREY_RDMA_SHM_CONNECTION_END_H_
