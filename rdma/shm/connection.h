// One shm connection, the table of those of a Transport, and what its parts share.
//
// Life of a connection:
//
//   server                                          client
//   kGreeting   accepted, nothing heard yet         kConnecting  connect data sent
//      | connect data                                  | accepted
//   kRequested  kConnectRequest queued                 |           (may Migrate: there kRequested)
//      | Accept                                        |
//   kConnected  kConnected queued  <-----------------> kConnected
//      | the peer's socket hangs up
//   kDraining   frames published before are delivered
//      |
//   kEnded      kDisconnected queued; the entry goes when it is delivered
//
// From every state a breach of the rules, Reject or Disconnect leads to kEnded at once; kGreeting,
// of which the user does not know, just goes.

#ifndef OSPREY_RDMA_SHM_CONNECTION_H_
#define OSPREY_RDMA_SHM_CONNECTION_H_

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "rdma/handshake.h"
#include "rdma/shm/domain.h"
#include "rdma/shm/event_queue.h"
#include "rdma/shm/listener.h"
#include "rdma/shm/mapping.h"
#include "rdma/shm/peer/peer_fd.h"
#include "rdma/shm/peer_ledger.h"
#include "rdma/shm/ring.h"
#include "rdma/transport.h"
#include "rdma/unique_fd.h"

namespace osprey::rdma {

// Memory of this process that peers may be given. The descriptor belongs to its HostMemory.
class ShmMemory : public Memory {
 public:
  ShmMemory(std::byte* data, size_t size, int fd, Access access)
      : Memory(data, size), fd_(fd), access_(access), serial_(next_serial_.fetch_add(1)) {}

  int fd() const { return fd_; }
  Access access() const { return access_; }
  // Never used again within the process, unlike addresses.
  uint64_t serial() const { return serial_; }

 private:
  static inline std::atomic<uint64_t> next_serial_{1};

  int fd_;
  Access access_;
  uint64_t serial_;
};

// Memory that the peer exposed. A client's is read through its descriptor: its holes stay holes,
// where loads from a mapping would make the kernel allocate their pages and charge the server for
// them. A server's is mapped, which is faster.
struct ShmPeerMemory {
  uint32_t key = 0;
  uint64_t length = 0;
  PeerFd fd;        // a server's: until Attach
  Mapping mapping;  // a server's: from Attach on
  bool attached = false;
};

// Memory that we exposed.
struct ShmExposed {
  uint64_t serial = 0;  // of the ShmMemory
  RemoteMemory remote;
  bool withdrawn = false;  // the packet to the peer is still due: its socket was full
};

// What is said of a peer while the connection is made.
struct ShmPeer {
  // Whether descriptors may lie in the socket, so that its close may block.
  bool takes_descriptors = true;
  std::shared_ptr<const ShmLife> life;  // server only, until Accept
  std::string uri;           // names the peer: the address connected to, or the client's process
  std::string source;        // server only: the client's user
  ConnectData theirs;        // its version is that of the connection
  uint32_t exposed_max = 0;  // memories that we may have exposed at a time
};

struct ShmConnection {
  enum class State { kGreeting, kRequested, kConnecting, kConnected, kDraining, kEnded };

  ConnectionId id = ConnectionId::kNone;
  State state = State::kGreeting;
  PeerFd socket;
  // Server only: the peer may not have received descriptors that it was sent.
  bool descriptors_unread = false;
  ShmPeer peer;
  Mapping rings;
  RingProducer out;
  RingConsumer in;
  ConnectionLimits limits;
  Mapping page;        // client only: the server's incarnation page
  uint32_t alive = 0;  // that page's word when the connection was made
  std::vector<ShmPeerMemory> peer_memories;
  bool attached_once = false;  // one of these: the peer may expose more
  std::vector<ShmExposed> exposed;
  uint32_t last_exposed_key = 0;  // keys are not used again
  uint32_t reads_in_flight = 0;
  // REQUIRES: kConnected has been reached.
  bool is_server() const { return !page.mapped(); }

  bool announced = false;  // kConnected was delivered
  bool resting = false;    // not among ShmReceiving; a packet comes before the next frame is taken
  uint32_t quiet_looks = 0;  // at its ring, in a row, that found nothing
  bool bye = false;          // the peer took its leave before it hung up
};

// The connections of one Transport, by the low bits of their ids. Not thread-safe.
class ShmConnectionTable {
 public:
  // The connection of that id, or null.
  ShmConnection* Find(ConnectionId id) const {
    const size_t index = static_cast<uint64_t>(id) % kConnectionsMax;
    if (index >= slots_.size()) return nullptr;
    ShmConnection* connection = slots_[index].get();
    return connection != nullptr && connection->id == id ? connection : nullptr;
  }
  // A connection with an id of its own; null, and `socket` stays the caller's, when the table is
  // full.
  ShmConnection* Add(ShmConnection::State state, PeerFd&& socket) {
    if (free_.empty()) {
      if (slots_.size() == kConnectionsMax) return nullptr;
      free_.push_back(static_cast<uint32_t>(slots_.size()));
      slots_.emplace_back();
    }
    const uint32_t index = free_.back();
    free_.pop_back();
    slots_[index] = std::make_unique<ShmConnection>();
    ShmConnection* connection = slots_[index].get();
    connection->id = ConnectionId{next_serial_.fetch_add(1) << kIndexBits | index};
    connection->state = state;
    connection->socket = std::move(socket);
    return connection;
  }
  // REQUIRES: its socket is closed (ShmEnding::Erase).
  void Erase(ShmConnection* connection) {
    const uint64_t index = static_cast<uint64_t>(connection->id) % kConnectionsMax;
    slots_[index].reset();
    free_.push_back(static_cast<uint32_t>(index));
  }
  // Destroys all connections. REQUIRES: their sockets are closed.
  void Clear() {
    slots_.clear();
    free_.clear();
  }
  // Free ones are null.
  const std::vector<std::unique_ptr<ShmConnection>>& slots() const { return slots_; }

 private:
  // An id is a serial number, unique in the process, over the index in the table.
  static constexpr int kIndexBits = 16;
  static constexpr size_t kConnectionsMax = size_t{1} << kIndexBits;
  static inline std::atomic<uint64_t> next_serial_{1};

  std::vector<std::unique_ptr<ShmConnection>> slots_;
  std::vector<uint32_t> free_;
};

// Connections whose rings are looked at: kConnected and kDraining, without those that rest. Not
// thread-safe.
class ShmReceiving {
 public:
  bool empty() const { return connections_.empty(); }
  size_t size() const { return connections_.size(); }
  const std::vector<ShmConnection*>& all() const { return connections_; }

  void Add(ShmConnection* connection) { connections_.push_back(connection); }
  // Puts the last one in the place of `connection`, if that is among them.
  void Remove(ShmConnection* connection) {
    const auto found = std::find(connections_.begin(), connections_.end(), connection);
    if (found == connections_.end()) return;
    *found = connections_.back();
    connections_.pop_back();
  }
  // The one whose turn it is. REQUIRES: not empty.
  ShmConnection* Next() {
    if (next_ >= connections_.size()) next_ = 0;
    return connections_[next_++];
  }
  // REQUIRES: Next has returned it last, and it is still there.
  void RemoveLast() {
    connections_[--next_] = connections_.back();
    connections_.pop_back();
  }

 private:
  std::vector<ShmConnection*> connections_;
  size_t next_ = 0;
};

// What the parts of one ShmTransport share.
struct ShmCommon {
  ShmCommon(const ShmDomainOptions& domain_options, const TransportOptions& transport_options,
            std::shared_ptr<ShmPeerLedger> peer_ledger)
      : domain(domain_options), options(transport_options), ledger(std::move(peer_ledger)) {}

  // What this side says to a peer that connects, in this version of the protocol; 0: the newest.
  ConnectData Offer(uint16_t version = 0) const {
    ConnectData data;
    data.version = version == 0 ? domain.protocol_version : version;
    data.receive_credits = options.receive_credits;
    data.frame_bytes_max = options.frame_bytes_max;
    data.reads_in_flight_max = options.reads_in_flight_max;
    return data;
  }

  const ShmDomainOptions domain;
  const TransportOptions options;
  const std::shared_ptr<ShmPeerLedger> ledger;
  UniqueFd epoll;
  ShmConnectionTable connections;
  ShmReceiving receiving;
  size_t connecting = 0;  // connections in kConnecting
  EventQueue queue;
};

}  // namespace osprey::rdma

#endif  // OSPREY_RDMA_SHM_CONNECTION_H_
