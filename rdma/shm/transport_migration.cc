// The part of ShmTransport by which a connection that asks goes to another thread: its socket, on
// which nothing but connect data has come so far, changes hands.

#include <sys/epoll.h>

#include <cassert>
#include <utility>

#include "rdma/shm/shm_transport.h"

namespace osprey::rdma {

absl::Status ShmTransport::Migrate(ConnectionId id, Transport& other) {
  ShmConnection* connection = common_.connections.Find(id);
  if (connection == nullptr || connection->state != State::kRequested)
    return absl::UnavailableError("the client does not wait to be accepted any more");
  auto* const to = dynamic_cast<ShmTransport*>(&other);
  assert(to != nullptr && to != this && "a transport of another domain");
  absl::Status status = to->migrated_->Put([&]() -> absl::StatusOr<ShmMigrated> {
    // It stays open, so that epoll would not forget it by itself.
    (void)epoll_ctl(common_.epoll.get(), EPOLL_CTL_DEL, connection->socket.get(), nullptr);
    return ShmMigrated{std::move(connection->socket), connection->takes_descriptors,
                       std::move(connection->life),   std::move(connection->uri),
                       std::move(connection->source), connection->theirs,
                       connection->exposed_max};
  });
  if (status.ok()) ending_.Erase(connection);
  return status;
}

void ShmTransport::TakeMigrated() {
  for (ShmMigrated& one : migrated_->Take()) {
    const int fd = one.socket.get();
    ShmConnection* connection = common_.connections.Add(State::kRequested, std::move(one.socket));
    if (connection == nullptr) {
      SendRejection(fd, RejectReason::kTooManyConnections);
      continue;
    }
    connection->takes_descriptors = one.takes_descriptors;
    connection->life = std::move(one.life);
    connection->uri = std::move(one.uri);
    connection->source = std::move(one.source);
    connection->theirs = one.theirs;
    connection->exposed_max = one.exposed_max;
    if (!Watch(connection)) {
      SendRejection(fd, RejectReason::kTooManyConnections);
      ending_.Erase(connection);
      continue;
    }
    QueueRequest(*connection);
  }
}

}  // namespace osprey::rdma
