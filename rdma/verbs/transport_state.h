// The state that the parts of one VerbsTransport share.

#ifndef OSPREY_RDMA_VERBS_TRANSPORT_STATE_H_
#define OSPREY_RDMA_VERBS_TRANSPORT_STATE_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "rdma/blocking_executor.h"
#include "rdma/handshake.h"
#include "rdma/transport.h"
#include "rdma/verbs/completions.h"
#include "rdma/verbs/connection.h"
#include "rdma/verbs/device/async.h"
#include "rdma/verbs/device/device.h"
#include "rdma/verbs/device/reaper.h"

namespace osprey::rdma {

// State that the Transports of one Domain share. Thread-safe.
struct VerbsShared {
  uint16_t protocol_version = kProtocolVersion;
  std::unique_ptr<VerbsDevices> devices;
  AsyncEvents async;
};

// Belongs to the Transport's thread. Destroyed after the parts that refer to it.
struct VerbsTransportState {
  VerbsTransportState(VerbsShared& of_domain, const TransportOptions& of_transport)
      : shared(of_domain), options(of_transport) {}

  // Every change of a connection's state after the first one.
  void SetState(VerbsConnection& connection, ConnectionState state) {
    connecting -= Waits(connection.state);
    connection.state = state;
    connecting += Waits(connection.state);
  }

  VerbsShared& shared;
  const TransportOptions options;
  std::unique_ptr<CmReaper> reaper;                             // and the CM events' channel
  std::vector<std::unique_ptr<DeviceCompletions>> completions;  // by device
  ConnectionTable connections;
  std::unique_ptr<BlockingExecutor> blocking_executor;  // holds some connections' links
  size_t connecting = 0;         // connections that wait for a CM event, or for blocking_executor
  size_t batches_in_flight = 0;  // of READs, of all connections
  bool look_around = true;       // at the next Poll

 private:
  static bool Waits(ConnectionState state) {
    using State = ConnectionState;
    return state == State::kResolvingAddress || state == State::kResolvingRoute ||
           state == State::kConnecting || state == State::kBuilding || state == State::kAccepting ||
           state == State::kBreaking || state == State::kDestroying;
  }
};

}  // namespace osprey::rdma

#endif  // OSPREY_RDMA_VERBS_TRANSPORT_STATE_H_
