// Moves requested connections to other threads. A connection's CM id, for which nothing has been
// made yet, moves to the event channel of the other VerbsTransport.

#ifndef OSPREY_RDMA_VERBS_CONNECTION_MIGRATION_H_
#define OSPREY_RDMA_VERBS_CONNECTION_MIGRATION_H_

#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "rdma/inbox.h"
#include "rdma/verbs/connection.h"
#include "rdma/verbs/connection_setup.h"
#include "rdma/verbs/transport_state.h"

namespace osprey::rdma {

class ConnectionMigration {
 public:
  // REQUIRES: the arguments outlive the result.
  ConnectionMigration(VerbsTransportState& state, ConnectionSetup& setup)
      : state_(state), setup_(setup) {}
  absl::Status Open();

  // Readable while connections have arrived.
  int fd() const { return arrived_->fd(); }

  // Moves a connection in kRequested to the Transport of `to`, whose thread may be another. If that
  // succeeds, `connection` is gone.
  absl::Status Move(VerbsConnection& connection, ConnectionMigration& to);
  // Adds the oldest one that has arrived, if any.
  void AddOne();
  // Empty before Open.
  std::vector<VerbsMigrated> TakeAll();

 private:
  VerbsTransportState& state_;
  ConnectionSetup& setup_;
  std::unique_ptr<Inbox<VerbsMigrated>> arrived_;  // from other Transports
};

}  // namespace osprey::rdma

#endif  // OSPREY_RDMA_VERBS_CONNECTION_MIGRATION_H_
