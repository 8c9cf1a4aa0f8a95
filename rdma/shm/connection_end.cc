#include "rdma/shm/connection_end.h"

#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cassert>
#include <memory>
#include <utility>

#include "rdma/shm/socket.h"

namespace osprey::rdma {

void UnreadRings::Keep(Mapping rings, size_t offset, RingProducer& out) {
  const RingProducer::UnreadSpans unread = out.Unread();
  if (unread.first.bytes == 0) return ReleasePages(rings, 0, rings.size());
  // In the order of the file: the ring to the server, the words of the other, and between the frames.
  // (Frames that begin behind the ring's middle and go on at its start are the second span.)
  const size_t words_end = offset + RingShape::kControlBytes;
  const size_t low_end =
      unread.second.bytes == 0 ? words_end : offset + unread.second.offset + unread.second.bytes;
  ReleasePages(rings, 0, offset);
  ReleasePages(rings, low_end, offset + unread.first.offset);
  ReleasePages(rings, offset + unread.first.offset + unread.first.bytes, rings.size());
  rings_.push_back(std::move(rings));
  if (rings_.size() <= kRingsMax) return;
  ReleasePages(rings_.front(), 0, rings_.front().size());
  rings_.pop_front();
}

void ShmEnding::Disconnect(ConnectionId id) {
  ShmConnection* connection = common_.connections.Find(id);
  if (connection == nullptr || connection->state == State::kEnded) return;
  // To a client that was not answered yet the end of the socket is the answer.
  if (connection->state == State::kConnecting || connection->state == State::kConnected) {
    // The farewell is no descriptor.
    if (HasReceivedAll(connection->socket.get())) connection->descriptors_unread = false;
    ShmPacket packet;
    packet.kind = static_cast<uint32_t>(PacketKind::kBye);
    (void)SendPacket(connection->socket.get(),
                     packet);  // unheard, the end looks like a death: no harm
  }
  End(connection, absl::OkStatus());
}

void ShmEnding::End(ShmConnection* connection, absl::Status status) {
  assert(connection->state != State::kEnded && connection->state != State::kGreeting);
  if (connection->state == State::kConnecting) --common_.connecting;
  common_.receiving.Remove(connection);
  // READs are copied when they are posted: none can land after this.
  EndRings(connection, /*peer_reads_on=*/status.ok() && connection->socket.valid());
  CloseSocket(connection);
  connection->page = Mapping();
  connection->peer_memories.clear();
  connection->exposed.clear();
  connection->state = State::kEnded;
  common_.queue.Add(Event::Kind::kDisconnected, connection->id).event.status = std::move(status);
}

// The client's pages are given back with the server's: it made the file.
void ShmEnding::EndRings(ShmConnection* connection, bool peer_reads_on) {
  Mapping rings = std::move(connection->rings);
  if (!rings.mapped() || !connection->is_server()) return;
  if (!peer_reads_on) return ReleasePages(rings, 0, rings.size());
  const RingShapes shapes = ShapesOf(common_.Offer(), connection->peer.theirs);
  unread_rings_.Keep(std::move(rings), shapes.to_server.bytes(), connection->out);
}

// The close may be long in coming, so the connection is shut down and leaves the epoll set first.
void ShmEnding::CloseSocket(ShmConnection* connection) {
  if (!connection->socket.valid()) return;
  const int fd = connection->socket.get();
  (void)epoll_ctl(common_.epoll.get(), EPOLL_CTL_DEL, fd, nullptr);
  (void)shutdown(fd, SHUT_RDWR);
  if (connection->descriptors_unread && !HasReceivedAll(fd)) {
    common_.ledger->Keep(std::move(connection->socket));
  } else if (connection->peer.takes_descriptors) {
    connection->socket.reset();
  } else {
    close(connection->socket.release());
  }
}

void ShmEnding::Erase(ShmConnection* connection) {
  CloseSocket(connection);
  common_.connections.Erase(connection);
}

void ShmEnding::CloseAll() {
  for (const std::unique_ptr<ShmConnection>& connection : common_.connections.slots()) {
    if (connection == nullptr) continue;
    connection->descriptors_unread = false;  // there may be no Transport left to look after it
    CloseSocket(connection.get());
  }
  common_.connections.Clear();
}

}  // namespace osprey::rdma
