// One connection of a VerbsTransport, from the first CM call to kDisconnected, and the table of
// them.
//
//        Connect()                                          CONNECT_REQUEST
//            |                                                    |
//     kResolvingAddress                                       kRequested ------ Reject() --------+
//            |                                          (Migrate() takes it from one            |
//            |                                           Transport's table to another's)         |
//            |                                                    | Accept()                     |
//            | ADDR_RESOLVED                                  kBuilding                          |
//            |                                                    | the queue pair is made       |
//     kResolvingRoute                                         kAccepting                         |
//            | ROUTE_RESOLVED                                     | ESTABLISHED, or the first    |
//     kConnecting                                                 | frame (it may come earlier)  |
//            | CONNECT_RESPONSE                                   |                              |
//            +---------------------> kConnected <-----------------+                              |
//                                     |      |                                                   |
//                       Disconnect()  |      | DISCONNECTED, UNREACHABLE, a failed work request, |
//                                     v      | a malformed frame, a disconnect notice            |
//                kSendingDisconnectNotice    |                                                   |
//       sent, or kDisconnectNoticeMax |      |                                                   |
//                                     v      v                                                   |
//                                    kBreaking                                                   |
//                                     | the queue pair is in error, the peer is notified         |
//                                     v                                                          |
//                                    kDraining                                                   |
//                                     | all flushed, or kDrainMax                                |
//   (every state above kConnected     v                                                          |
//    goes here at once on an       kDestroying                                                   |
//    error, or on Disconnect;         | the queue pair is destroyed, if there was one            |
//    kBuilding when it is built)      v                                                          |
//                                    kEnded <----------------------------------------------------+
//                                     | kDisconnected was delivered
//                                   (gone)
//
// In kBuilding, kBreaking and kDestroying another thread makes calls of the link's queue pair
// (blocking_executor.h). The connection waits for it, whatever happens meanwhile.

#ifndef OSPREY_RDMA_VERBS_CONNECTION_H_
#define OSPREY_RDMA_VERBS_CONNECTION_H_

#include <rdma/rdma_cma.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "rdma/handshake.h"
#include "rdma/transport.h"
#include "rdma/verbs/device/address.h"
#include "rdma/verbs/device/objects.h"
#include "rdma/verbs/link.h"

namespace osprey::rdma {

enum class ConnectionState {
  kResolvingAddress,
  kResolvingRoute,
  kConnecting,
  kRequested,
  kBuilding,
  kAccepting,
  kConnected,
  kSendingDisconnectNotice,
  kBreaking,
  kDraining,
  kDestroying,
  kEnded,
};

// A connection in kRequested, on its way from one Transport to another.
struct VerbsMigrated {
  CmId cm_id;  // on the channel of the new one
  std::string peer;
  std::string source;
  ConnectData peer_data;
  ReadDepth depth;
};

struct VerbsConnection {
  ConnectionId id = ConnectionId::kNone;
  ConnectionState state = ConnectionState::kResolvingAddress;
  std::string peer;       // for messages: the URI of the request, or the peer's address
  SocketAddress target;   // Connect: the address behind it
  std::string source;     // kRequested: the peer's host
  uint32_t affinity = 0;  // Connect: to send with the request
  // kRequested: the request's data. Its version is that of the connection.
  ConnectData peer_data;
  ReadDepth depth;  // kConnecting: the requested depth; kRequested and later: the agreed one
  bool ended_by_us = false;  // Disconnect was called
  bool given_up = false;     // kBuilding: ends as soon as it is built
  absl::Status end_status;   // of kDisconnected
  std::chrono::steady_clock::time_point
      bound;  // kSendingDisconnectNotice, kDraining: the latest end
  CmId cm_id;
  std::unique_ptr<Link> link;  // null before it is made; destroyed before the CM id
};

// Connections by id. An id is a serial number, never used again within the process, above the
// connection's place in the table.
class ConnectionTable {
 public:
  // The result has a stable address until removed. nullptr when the table is full.
  VerbsConnection* Add();
  std::unique_ptr<VerbsConnection> Remove(ConnectionId id);

  VerbsConnection* Find(ConnectionId id) const {
    const uint64_t place = static_cast<uint64_t>(id) & kPlaceMask;
    if (place >= places_.size()) return nullptr;
    VerbsConnection* const connection = places_[place].get();
    return connection != nullptr && connection->id == id ? connection : nullptr;
  }
  // Finds by the tag of a work request.
  VerbsConnection* FindByTag(uint64_t tag) const {
    const uint64_t place = tag & kPlaceMask;
    if (place >= places_.size()) return nullptr;
    VerbsConnection* const connection = places_[place].get();
    return connection != nullptr && TagOf(connection->id) == tag ? connection : nullptr;
  }
  static uint64_t TagOf(ConnectionId id) {
    return static_cast<uint64_t>(id) & ((uint64_t{1} << WorkId::kTagBits) - 1);
  }

  size_t size() const { return places_.size() - free_places_.size(); }

  // Calls f(VerbsConnection&), which must not add or remove.
  template <typename F>
  void ForEach(F f) const {
    for (const std::unique_ptr<VerbsConnection>& connection : places_) {
      if (connection != nullptr) f(*connection);
    }
  }

 private:
  // A million connections of one thread; the tag keeps as many bits of the serial number.
  static constexpr int kPlaceBits = 20;
  static constexpr uint64_t kPlaceMask = (uint64_t{1} << kPlaceBits) - 1;
  static_assert(kPlaceBits < WorkId::kTagBits);

  std::vector<std::unique_ptr<VerbsConnection>> places_;
  std::vector<uint64_t> free_places_;
};

}  // namespace osprey::rdma

#endif  // OSPREY_RDMA_VERBS_CONNECTION_H_
