// The transport: moves bytes between two processes without interpreting them.
//
// It offers what an RDMA queue pair offers and no more: memory that a peer may READ, READs posted
// in batches, frames sent and received under credits, and the end of connections. There are two
// implementations: `verbs` (rdma_cm and libibverbs; InfiniBand, RoCE, soft-RoCE) and `shm` (a peer
// on the same host). One contract test (tests/rdma/transport_contract_test.cc) runs against both.
//
//   Domain      what memory belongs to: the devices and their protection domains. Thread-safe.
//   Memory      a registered span. Its owner is the caller that registered it; it must outlive the
//               READs that use it.
//   Transport   one thread's connections over a Domain: a completion queue and a source of
//               connection events. Not thread-safe: it belongs to one thread at a time.
//   Connection  named by a ConnectionId, which is never used again. It lives inside its Transport.
//
// Life of a connection, at both sides:
//
//   client                                     server
//   Connect(address) -> id                     Listen(address)
//       |                                          |  kConnectRequest (id, peer)
//       |                                      Accept(id), Reject(id, reason)
//       |                                          | or Migrate(id, other)
//   kConnected                                 kConnected
//       |<------------ Send / kReceived ---------->|
//       |                                      Expose(id, memory) -> RemoteMemory, sent in a frame
//   Attach(id, RemoteMemory)                       |
//   PostReads(...) / kReadsDone                    |          (either side may expose and READ)
//   Disconnect(id) or the peer's death         Disconnect(id) or the peer's death
//   kDisconnected (id is gone)                 kDisconnected (id is gone)
//
// kDisconnected comes exactly once for every id that Connect returned or kConnectRequest named, and
// it is the last event of that id. Every READ batch posted before has had its kReadsDone, so no
// later READ can write to this process's memory.
//
// Time: a Transport has no clock and keeps no deadline. A caller with a deadline calls Disconnect
// when it passes.

#ifndef OSPREY_RDMA_TRANSPORT_H_
#define OSPREY_RDMA_TRANSPORT_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace osprey::rdma {

using Bytes = absl::Span<const std::byte>;

// The description by which a peer can READ a Memory. `address` is that of its first byte in the
// space of that peer's READs: a virtual address over verbs, an offset of 0 over shm. Travels in
// frames.
struct RemoteMemory {
  uint64_t address = 0;
  uint64_t length = 0;  // bytes
  uint32_t key = 0;     // rkey
};

enum class Access {
  kLocal,       // the local end of READs and SENDs only
  kRemoteRead,  // peers to which it was exposed may READ it too
};

// Registered memory. Obtained from a Domain; deregistered on destruction. Thread-safe (it has no
// state that changes). REQUIRES at destruction: no READ uses it any more, at either end.
class Memory {
 public:
  virtual ~Memory() = default;
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;

  std::byte* data() const { return data_; }
  size_t size() const { return size_; }

 protected:
  Memory(std::byte* data, size_t size) : data_(data), size_(size) {}

 private:
  std::byte* data_;
  size_t size_;
};

class HostMemory;  // rdma/host_memory.h
class Transport;

// A client has at most 128 unanswered requests (server/requests/sessions.h), and receives a
// DisconnectNotice. The memory of a ring is charged to the side that fills it, so it has no more
// slots than that.
inline constexpr uint16_t kShmCreditsMax = 129;

struct TransportOptions {
  // Receives posted for the peer: the frames that it may have on their way to this side. At least
  // 2. Over shm at most kShmCreditsMax; a peer's larger offer is used up to that.
  uint16_t receive_credits = 32;
  // The longest frame that Send takes and that this side receives, in bytes. Both sides use the
  // smaller value.
  uint32_t frame_bytes_max = 8192;
  // READs that one connection may have posted and not completed. At most Domain limits.
  uint16_t reads_in_flight_max = 128;
  // Whether Listen and Migrate may be used: over shm these take two descriptors.
  bool accepts = true;
};

// The owner of the devices with which memory is registered. Thread-safe.
class Domain {
 public:
  virtual ~Domain() = default;

  // Registers `memory`, which the caller keeps; it must outlive the result. Over verbs this pins
  // it. Errors: RESOURCE_EXHAUSTED if RLIMIT_MEMLOCK or the device's max_mr_size forbids it. The
  // message has both numbers and the command that raises the limit.
  virtual absl::StatusOr<std::unique_ptr<Memory>> Register(HostMemory& memory, Access access) = 0;

  // Registers `size` bytes at `data`, any memory of this process. The caller keeps it, and it must
  // outlive the result. Over verbs this pins it. Errors: as of Register. FAILED_PRECONDITION for
  // kRemoteRead over shm, where a peer can map only memory of Allocate.
  virtual absl::StatusOr<std::unique_ptr<Memory>> RegisterSpan(std::byte* data, size_t size,
                                                               Access access) = 0;

  // Allocates `bytes` (rounded up to pages, zeroed) and registers them; the result owns the
  // storage.
  virtual absl::StatusOr<std::unique_ptr<Memory>> Allocate(size_t bytes, Access access) = 0;

  // A transport for one thread. REQUIRES: the Domain outlives it.
  virtual absl::StatusOr<std::unique_ptr<Transport>> NewTransport(
      const TransportOptions& options) = 0;

  // One line for banners: "transport=verbs device=rxe0[,…]" or "transport=shm device=none".
  virtual std::string Describe() const = 0;
};

// Names one connection of one Transport. Never used again within the process; 0 names none.
enum class ConnectionId : uint64_t { kNone = 0 };

// Part of the local end of a READ: `length` bytes at `data`, all of them within `memory`.
struct LocalSegment {
  std::byte* data = nullptr;
  uint32_t length = 0;  // bytes
  const Memory* memory = nullptr;
};

// One READ: from `remote_address`, within the RemoteMemory of `remote_key`, into the segments in
// order. It takes as many bytes as the segments. The order in which bytes are fetched is undefined,
// and no two bytes need be of one instant.
struct ReadRequest {
  uint64_t remote_address = 0;
  uint32_t remote_key = 0;
  uint32_t segment_count = 1;
  LocalSegment segments[2];
};

enum class RejectReason : uint16_t {
  kNone = 0,
  kVersionMismatch = 1,  // sent by the transport itself
  kTooManyConnections = 2,
  kShuttingDown = 3,
  kTooManyFromSource = 4,       // its Event::source has too many connections
  kTooManyUnauthenticated = 5,  // too many peers have not proved yet that they have the key
  kSourceHoldsDescriptors = 6,  // details: Event::status of the kConnectRequest
  kNotServing = 7,              // the server is in a cluster, and not its shard's primary now
};

struct Event {
  enum class Kind {
    kConnectRequest,  // a peer requests a connection: answer with Accept or Reject. `text` names
                      // the peer, `source` its origin. If `status` is not OK, the peer's source
                      // holds up too many descriptors of this process: Reject with
                      // kSourceHoldsDescriptors
    kConnected,       // frames may be sent
    kReceived,        // `frame` arrived; it is valid until the next Poll
    kReadsDone,  // the batch posted with `cookie` ended. With an OK `status` all READs have landed,
                 // else any part may have
    kDisconnected,  // the last event of this id; `status` has the reason (OK: one of the two sides
                    // called Disconnect)
    kDeviceLost,    // the device behind this Transport is going away: finish, and close everything
                    // (connection is kNone)
  };
  Kind kind = Kind::kReceived;
  ConnectionId connection = ConnectionId::kNone;
  uint64_t cookie = 0;
  Bytes frame;
  absl::Status status;
  // Set in kConnectRequest only. `source` is the same for all peers that one machine (verbs: its
  // address) or one user of this machine (shm: "uid=1000") can imitate. Limits per origin count by
  // it.
  std::string text;
  std::string source;
  uint32_t affinity = 0;  // kConnectRequest: the argument of the peer's Connect
};

// The negotiated limits of one connection.
struct ConnectionLimits {
  uint32_t frame_bytes_max = 0;      // the longest frame
  uint16_t send_credits_max = 0;     // frames that may be on their way to the peer
  uint16_t reads_in_flight_max = 0;  // READs posted and not completed
  uint16_t read_depth = 0;      // READs that the device may have on the wire at once, as granted by
                                // both sides
  uint32_t read_bytes_max = 0;  // the longest single READ
  uint16_t version = 0;         // of the protocol, which both sides speak
};

// Peers' exposed memory that this process maps. Of a Transport, and for its thread.
class MappedReads {
 public:
  // The peer's exposed memory, for callers that probe before they copy. It exists once the memory is
  // attached, if it begins at a multiple of 8. Its bytes may change at any time, and may be torn.
  // Empty if there is no mapping. Valid until the next call of Poll.
  virtual Bytes View(ConnectionId id, const RemoteMemory& remote) const = 0;

  // Does Transport::PostReads and its kReadsDone at once: all READs have landed when it returns OK.
  // It needs no ReadRoom, and READs only memory that has a View. Errors: UNAVAILABLE,
  // INVALID_ARGUMENT; both end the connection. REQUIRES: View was not empty.
  virtual absl::Status ReadNow(ConnectionId id, absl::Span<const ReadRequest> reads) = 0;

 protected:
  ~MappedReads() = default;
};

// One thread's connections. Not thread-safe. All calls return at once; Poll makes progress. The
// destructor breaks all connections that are left. It waits (bounded) until no READ can land any
// more.
class Transport {
 public:
  virtual ~Transport() = default;

  // Accepts connect requests at `uri` ("rdma://HOST:PORT", port 0 picks one; "shm://PATH").
  // `incarnation` identifies this run of the server. Over shm, a client compares it to detect that
  // its mapped region belongs to a server that has ended. Returns the URI for clients (the port
  // filled in). Errors: ALREADY_EXISTS (address in use), INVALID_ARGUMENT (not an address of an
  // RDMA device; the message lists those), PERMISSION_DENIED, FAILED_PRECONDITION (no device).
  virtual absl::StatusOr<std::string> Listen(absl::string_view uri, uint64_t incarnation) = 0;

  // Starts to connect. The outcome is kConnected or kDisconnected. `affinity` travels with the
  // request; by it the peer chooses the Transport for the connection. `version`: of the protocol; 0:
  // the newest. A server that does not speak it rejects the request, and names its own.
  // Errors at once: INVALID_ARGUMENT for a malformed address.
  virtual absl::StatusOr<ConnectionId> Connect(absl::string_view uri, uint32_t affinity = 0,
                                               uint16_t version = 0) = 0;

  virtual absl::Status Accept(ConnectionId id) = 0;
  virtual void Reject(ConnectionId id, RejectReason reason) = 0;

  // Moves a requested connection (before Accept and Reject) to `other`, which may belong to another
  // thread. There it is a new kConnectRequest under another id. Here `id` is gone at once, without
  // a kDisconnected. This is the only call that touches another thread's Transport. REQUIRES:
  // `other` is another Transport of the same Domain, and lives until the call returns. Errors,
  // after which the request is still here: UNAVAILABLE (the peer is gone, and kDisconnected
  // follows), RESOURCE_EXHAUSTED (too many are waiting there).
  virtual absl::Status Migrate(ConnectionId id, Transport& other) = 0;

  // Lets this peer READ `memory` from now on. The result goes to the peer in a frame sent after
  // this call. The first Expose of a connection grants its queue pair remote reads; before it there
  // are none.
  virtual absl::StatusOr<RemoteMemory> Expose(ConnectionId id, const Memory& memory) = 0;

  // Returns what Expose of `memory` will return, for a peer that must first prove its key. Before
  // the Expose, the peer may READ nothing through it. (Over shm the peer receives this one memory
  // now, so nothing else may lie in it.) Errors: as of Expose.
  virtual absl::StatusOr<RemoteMemory> Announce(ConnectionId id, const Memory& memory) = 0;

  // Reverses an Expose, so that the connection may expose other memory in its place. Over shm the
  // peer unmaps it. A later READ of it violates the rules and ends the connection (over verbs once
  // the Memory is gone). So the peer must have no READ of it outstanding or requested. Memory that
  // was not exposed, and ended connections, are ignored.
  virtual void Withdraw(ConnectionId id, const Memory& memory) = 0;

  // Prepares READs of memory that the peer exposed. REQUIRES: `remote` came in a frame from this
  // peer. Errors: INVALID_ARGUMENT if the peer exposed no such memory (only shm can detect that).
  virtual absl::Status Attach(ConnectionId id, const RemoteMemory& remote) = 0;

  // Posts `reads` as one chain with one completion: kReadsDone with `cookie`. The segments must
  // stay valid until then. READs of one chain may be executed in any order. Errors:
  // RESOURCE_EXHAUSTED without room for all of them (none was posted), UNAVAILABLE when not
  // connected.
  virtual absl::Status PostReads(ConnectionId id, absl::Span<const ReadRequest> reads,
                                 uint64_t cookie) = 0;

  // The end of one batch of READs, as a kReadsDone tells.
  struct ReadsDone {
    ConnectionId connection = ConnectionId::kNone;
    uint64_t cookie = 0;
    absl::Status status;
  };
  // For a caller that waits for READs alone: takes the end of one batch, without the rest of Poll's
  // work. False: none has ended, or another event comes first. All other events are left to Poll.
  virtual bool PollReads(ReadsDone& done) = 0;

  // READs of memory that this process maps: over shm. Null where none can be, as over verbs.
  virtual MappedReads* mapped_reads() { return nullptr; }

  // READs that PostReads would take now.
  virtual size_t ReadRoom(ConnectionId id) const = 0;

  // Sends the concatenation of `pieces` as one frame; they are copied before it returns. Frames of
  // a connection arrive in order. Errors: RESOURCE_EXHAUSTED without a credit, INVALID_ARGUMENT
  // when empty or too long, UNAVAILABLE when not connected.
  virtual absl::Status Send(ConnectionId id, absl::Span<const Bytes> pieces) = 0;

  // Frames that Send would take now.
  virtual size_t SendRoom(ConnectionId id) const = 0;

  // Ends a connection in any state. kDisconnected follows. Unknown ids are ignored (it may have
  // just ended).
  virtual void Disconnect(ConnectionId id) = 0;

  // Makes progress, writes events to `events` and returns their number. Never blocks; the work is
  // bounded. Frees the frames of the last call.
  virtual size_t Poll(absl::Span<Event> events) = 0;

  // To sleep, call Arm. If it returns true, fd() becomes readable once Poll has something to do. If
  // it returns false, Poll has something to do now. Spurious readiness is possible.
  virtual bool Arm() = 0;
  virtual int fd() const = 0;

  // REQUIRES for both: kConnected has come and kDisconnected has not.
  virtual ConnectionLimits limits(ConnectionId id) const = 0;
  // One line, for banners: "transport=verbs device=rxe0 port=1 …".
  virtual std::string Describe(ConnectionId id) const = 0;

  // Objects held now, for leak checks and metrics.
  struct Resources {
    size_t connections = 0;    // ids not yet kDisconnected
    size_t queue_pairs = 0;    // verbs only
    size_t peer_memories = 0;  // attached; shm only
  };
  virtual Resources resources() const = 0;
};

}  // namespace osprey::rdma

#endif  // OSPREY_RDMA_TRANSPORT_H_
