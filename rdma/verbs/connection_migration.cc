#include "rdma/verbs/connection_migration.h"

#include <rdma/rdma_cma.h>

#include <cerrno>
#include <utility>

#include "absl/status/statusor.h"
#include "rdma/verbs/device/objects.h"

namespace osprey::rdma {

absl::Status ConnectionMigration::Open() {
  absl::StatusOr<std::unique_ptr<Inbox<VerbsMigrated>>> inbox =
      Inbox<VerbsMigrated>::Create(kMigratedMax);
  if (!inbox.ok()) return inbox.status();
  arrived_ = *std::move(inbox);
  return absl::OkStatus();
}

// rdma_migrate_id waits until the id's fetched events have been acknowledged, which always happens
// before they are handled. Events that are still in the kernel move with the id.
absl::Status ConnectionMigration::Move(VerbsConnection& connection, ConnectionMigration& to) {
  absl::Status status = to.arrived_->Put([&]() -> absl::StatusOr<VerbsMigrated> {
    if (rdma_migrate_id(connection.cm_id.get(), to.state_.reaper->channel()) != 0)
      return VerbsError("rdma_migrate_id", errno);
    return VerbsMigrated{std::move(connection.cm_id), std::move(connection.peer),
                         std::move(connection.source), connection.peer_data, connection.depth};
  });
  if (status.ok()) (void)state_.connections.Remove(connection.id);
  return status;
}

void ConnectionMigration::AddOne() {
  for (VerbsMigrated& asking : arrived_->Take(1)) (void)setup_.AddRequested(std::move(asking));
}

std::vector<VerbsMigrated> ConnectionMigration::TakeAll() {
  return arrived_ == nullptr ? std::vector<VerbsMigrated>() : arrived_->Take();
}

}  // namespace osprey::rdma
