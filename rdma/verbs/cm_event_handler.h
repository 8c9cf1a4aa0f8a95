// Reads the CM events of a VerbsTransport and handles each. connection.h draws the states and
// transitions.

#ifndef OSPREY_RDMA_VERBS_CM_EVENT_HANDLER_H_
#define OSPREY_RDMA_VERBS_CM_EVENT_HANDLER_H_

#include "absl/status/status.h"
#include "rdma/verbs/connection.h"
#include "rdma/verbs/connection_ending.h"
#include "rdma/verbs/connection_migration.h"
#include "rdma/verbs/connection_setup.h"
#include "rdma/verbs/device/cm_event.h"
#include "rdma/verbs/device_notices.h"
#include "rdma/verbs/transport_state.h"

namespace osprey::rdma {

class CmEventHandler {
 public:
  // REQUIRES: the arguments outlive the result.
  CmEventHandler(VerbsTransportState& state, ConnectionSetup& setup, ConnectionEnding& ending,
                 ConnectionMigration& migration, DeviceNotices& notices)
      : state_(state), setup_(setup), ending_(ending), migration_(migration), notices_(notices) {}

  // Reads one event, and more at the next Poll. Most events make a connection or break one, which
  // takes the kernel milliseconds; the frames of all other connections wait meanwhile.
  void ReadOne();

 private:
  void OnCmEvent(VerbsConnection& connection, const CmEvent& event);
  absl::Status FailureOf(const VerbsConnection& connection, const CmEvent& event) const;
  absl::Status RejectionOf(const VerbsConnection& connection, const CmEvent& event) const;

  VerbsTransportState& state_;
  ConnectionSetup& setup_;
  ConnectionEnding& ending_;
  ConnectionMigration& migration_;
  DeviceNotices& notices_;
};

}  // namespace osprey::rdma

#endif  // OSPREY_RDMA_VERBS_CM_EVENT_HANDLER_H_
