// The part of VerbsTransport that moves a requested connection to another thread. Its CM id, for
// which nothing has been made yet, moves to the event channel of the other Transport.

#include <rdma/rdma_cma.h>

#include <cassert>
#include <cerrno>
#include <utility>

#include "rdma/verbs/verbs_transport.h"

namespace osprey::rdma {

// rdma_migrate_id waits until the id's fetched events have been acknowledged, which always happens
// before they are handled. Events that are still in the kernel move with the id.
absl::Status VerbsTransport::Migrate(ConnectionId id, Transport& other) {
  VerbsConnection* const connection = state_.connections.Find(id);
  if (connection == nullptr || connection->state != ConnectionState::kRequested)
    return absl::UnavailableError("the peer does not wait to be accepted any more");
  auto* const to = dynamic_cast<VerbsTransport*>(&other);
  assert(to != nullptr && to != this && "a transport of another domain");
  absl::Status status = to->migrated_->Put([&]() -> absl::StatusOr<VerbsMigrated> {
    if (rdma_migrate_id(connection->cm_id.get(), to->state_.reaper->channel()) != 0)
      return VerbsError("rdma_migrate_id", errno);
    return VerbsMigrated{std::move(connection->cm_id), std::move(connection->peer),
                         std::move(connection->source), connection->peer_data, connection->depth};
  });
  if (status.ok()) (void)state_.connections.Remove(id);
  return status;
}

void VerbsTransport::TakeMigrated(size_t count_max) {
  for (VerbsMigrated& asking : migrated_->Take(count_max)) (void)AddRequested(std::move(asking));
}

}  // namespace osprey::rdma
