// The transport: moves bytes between two processes and knows nothing of what they mean.
//
// It offers what an RDMA queue pair offers and no more: memory that a peer may READ, READs posted
// in batches, frames sent and received under credits, and connections that end. Two implementations
// stand behind it: `verbs` (rdma_cm and libibverbs; InfiniBand, RoCE, soft-RoCE) and `shm` (a peer
// on the same host). One contract test (tests/transport_contract_test.cc) runs against both.
//
//   Domain      what memory belongs to: the devices and their protection domains. Thread-safe.
//   Memory      a registered span. Its owner is the caller that registered it; it must outlive the
//               READs that use it.
//   Transport   one thread's connections over a Domain: a completion queue and a source of
//               connection events. Not thread-safe: it belongs to one thread at a time.
//   Connection  named by a ConnectionId, which is never used again. It lives inside its Transport.
//
// Life of a connection, as both sides see it:
//
//   client                                     server
//   Connect(address) -> id                     Listen(address)
//       |                                          |  kConnectRequest (id, peer)
//       |                                      Accept(id), Reject(id, reason)
//       |                                          | or HandOver(id, other)
//   kConnected                                 kConnected
//       |<------------ Send / kReceived ---------->|
//       |                                      Expose(id, memory) -> RemoteMemory, sent in a frame
//   Attach(id, RemoteMemory)                       |
//   PostReads(...) / kReadsDone                    |          (either side may expose and READ)
//   Disconnect(id) or the peer's death         Disconnect(id) or the peer's death
//   kDisconnected (id is gone)                 kDisconnected (id is gone)
//
// kDisconnected comes exactly once for every id that Connect returned or kConnectRequest named, and
// it is the last event of that id: every READ batch posted before has had its kReadsDone, so after
// it no READ can land in this process's memory any more.
//
// Time: a Transport has no clock and keeps no deadline. Who needs one calls Disconnect when it
// passes.

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

// What a peer must know to READ a Memory. `address` is the address of its first byte in the space
// of that peer's READs (a virtual address over verbs; over shm an offset, 0). Travels in frames.
struct RemoteMemory {
  uint64_t address = 0;
  uint64_t length = 0;  // bytes
  uint32_t key = 0;     // rkey
};

enum class Access {
  kLocal,       // the local end of READs and SENDs only
  kRemoteRead,  // also READ by peers to whom it was exposed
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

// A client waits for the answers to 128 requests at most (server/sessions.h), and for a Goodbye. The
// memory of a ring is charged to the side that fills it, so it has no more slots than that.
inline constexpr uint16_t kShmCreditsMax = 129;

struct TransportOptions {
  // Frames that the peer may have on their way to us: receives posted for it. At least 2; over shm
  // at most kShmCreditsMax, and of what a peer offers there no more is used.
  uint16_t receive_credits = 32;
  // The longest frame that Send takes and that we receive, in bytes. Both sides use the smaller
  // value.
  uint32_t frame_bytes_max = 8192;
  // READs that one connection may have posted and not completed. At most Domain limits.
  uint16_t reads_in_flight_max = 128;
};

// What memory belongs to. Thread-safe.
class Domain {
 public:
  virtual ~Domain() = default;

  // Registers `memory`, which the caller keeps and must outlive the result. Over verbs this pins
  // it. Errors: RESOURCE_EXHAUSTED when RLIMIT_MEMLOCK or the device's max_mr_size forbids it; the
  // message has both numbers and the command that raises the limit.
  virtual absl::StatusOr<std::unique_ptr<Memory>> Register(HostMemory& memory, Access access) = 0;

  // Registers `size` bytes at `data`, any memory of this process: the caller keeps it, and it must
  // outlive the result. Over verbs this pins it. Errors: as of Register; FAILED_PRECONDITION for
  // kRemoteRead over shm, where a peer can only map what Allocate made.
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

// Part of the local end of a READ: `length` bytes at `data`, which lie within `memory`.
struct LocalSegment {
  std::byte* data = nullptr;
  uint32_t length = 0;  // bytes
  const Memory* memory = nullptr;
};

// One READ: from `remote_address` (within a RemoteMemory whose key is `remote_key`), as many bytes
// as the segments take, into the segments in order. Nothing is promised of the order in which bytes
// are fetched, nor that any two bytes are of one instant.
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
  kTooManyFromSource = 4,       // from this peer's Event::source
  kTooManyStrangers = 5,        // whose peers have not proved yet that they have the key
  kSourceHoldsDescriptors = 6,  // Event::status of its kConnectRequest says which
};

struct Event {
  enum class Kind {
    kConnectRequest,  // a peer asks: answer with Accept or Reject. `text` names it, `source` where
                      // it comes from. `status` is not OK: the peer's source holds up too many
                      // descriptors of this process; Reject with kSourceHoldsDescriptors
    kConnected,       // frames may be sent
    kReceived,        // `frame` arrived; it is valid until the next Poll
    kReadsDone,  // the batch posted with `cookie` ended: all landed when `status` is OK, else any
                 // part may have
    kDisconnected,  // the last event of this id; `status` says why (OK: we or the peer asked for
                    // it)
    kDeviceLost,  // the device behind this Transport is going: finish, close everything (connection
                  // is kNone)
  };
  Kind kind = Kind::kReceived;
  ConnectionId connection = ConnectionId::kNone;
  uint64_t cookie = 0;
  Bytes frame;
  absl::Status status;
  // Empty but for kConnectRequest. `source` is the same for all peers that one machine (verbs: its
  // address) or one user of this machine (shm: "uid=1000") can pretend to be: what is counted when
  // nobody may take too much.
  std::string text;
  std::string source;
  uint32_t affinity = 0;  // kConnectRequest: what the peer gave to Connect
};

// What was negotiated for one connection.
struct ConnectionLimits {
  uint32_t frame_bytes_max = 0;      // the longest frame
  uint16_t send_credits_max = 0;     // frames that may be on their way to the peer
  uint16_t reads_in_flight_max = 0;  // READs posted and not completed
  uint16_t read_depth = 0;  // READs that the device has on the wire at once, as both sides granted
  uint32_t read_bytes_max = 0;  // the longest single READ
};

// One thread's connections. Not thread-safe. All calls return at once; Poll makes progress.
// Destroying it breaks whatever is still connected and waits (bounded) until no READ can land any
// more.
class Transport {
 public:
  virtual ~Transport() = default;

  // Accepts connect requests at `uri` ("rdma://HOST:PORT", port 0 picks one; "shm://PATH").
  // `incarnation` names this life of the server: over shm it is what tells a reader that the region
  // it has mapped belongs to a server that is gone. Returns the URI that clients can use (the port
  // filled in). Errors: ALREADY_EXISTS (address in use), INVALID_ARGUMENT (not an address of an
  // RDMA device: those that are, are listed), PERMISSION_DENIED, FAILED_PRECONDITION (no device).
  virtual absl::StatusOr<std::string> Listen(absl::string_view uri, uint64_t incarnation) = 0;

  // Starts to connect. The outcome is kConnected or kDisconnected. `affinity` is told with the
  // request, for the peer to choose by who of it takes the connection.
  // Errors at once: INVALID_ARGUMENT for an address that cannot be meant.
  virtual absl::StatusOr<ConnectionId> Connect(absl::string_view uri, uint32_t affinity = 0) = 0;

  virtual absl::Status Accept(ConnectionId id) = 0;
  virtual void Reject(ConnectionId id, RejectReason reason) = 0;

  // Gives a peer that asks (its kConnectRequest has come; neither Accept nor Reject has been
  // called) to `other`, which may belong to another thread: there it asks anew, with a
  // kConnectRequest under another id. Here `id` is gone at once, without a kDisconnected. The only
  // call that reaches into another thread's Transport. REQUIRES: `other` is of the same Domain, is
  // not this one, and lives until the call returns. Errors, after which the peer still asks here:
  // UNAVAILABLE (it is gone: kDisconnected follows), RESOURCE_EXHAUSTED (too many wait there
  // already).
  virtual absl::Status HandOver(ConnectionId id, Transport& other) = 0;

  // Lets this peer READ `memory` from now on. The result goes to the peer in a frame sent after
  // this call. The first Expose of a connection is what grants its queue pair remote reads; before
  // it there are none.
  virtual absl::StatusOr<RemoteMemory> Expose(ConnectionId id, const Memory& memory) = 0;

  // Says what Expose of `memory` will return, for a peer that must prove first who it is: it may
  // READ nothing through this before the Expose. (Over shm it is given this one memory now, since
  // that is how it is told; so nothing else may lie in it.) Errors: as of Expose.
  virtual absl::StatusOr<RemoteMemory> Announce(ConnectionId id, const Memory& memory) = 0;

  // Takes an Expose back, so that the connection may expose something else in its place: over shm
  // the peer unmaps it. From now on a READ of it is a breach of the rules, which ends the
  // connection (over verbs once the Memory is gone), so the peer must have been asked for none, or
  // have answered. What was not exposed, and connections that are gone, are ignored.
  virtual void Withdraw(ConnectionId id, const Memory& memory) = 0;

  // Makes ready to READ what the peer exposed. REQUIRES: `remote` came in a frame from this peer.
  // Errors: INVALID_ARGUMENT when the peer did not expose any such thing (only shm can tell).
  virtual absl::Status Attach(ConnectionId id, const RemoteMemory& remote) = 0;

  // Posts `reads` as one chain with one completion: kReadsDone with `cookie`. The segments must
  // stay valid until then. READs of one chain may be executed in any order. Errors:
  // RESOURCE_EXHAUSTED when there is no room for all of them (none was posted), UNAVAILABLE when
  // not connected.
  virtual absl::Status PostReads(ConnectionId id, absl::Span<const ReadRequest> reads,
                                 uint64_t cookie) = 0;

  // Where this process sees what the peer exposed, for who looks before it READs: over shm, once
  // attached, and begins at a multiple of 8. Whatever it sees may change meanwhile, and be half of
  // anything. Empty: it does not, as over verbs. Valid until the next call of Poll.
  virtual Bytes View(ConnectionId, const RemoteMemory&) const { return {}; }

  // As PostReads and its kReadsDone at once: all have landed when it returns OK. Takes no room, and
  // no memory but a View's. Errors: UNAVAILABLE, INVALID_ARGUMENT, which end the connection.
  // REQUIRES: View was not empty.
  virtual absl::Status ReadNow(ConnectionId, absl::Span<const ReadRequest>) {
    return absl::UnimplementedError("");
  }

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

  // Makes progress and writes what happened to `events`; returns how many. Never blocks, bounded
  // work. Frees the frames of the last call.
  virtual size_t Poll(absl::Span<Event> events) = 0;

  // To sleep: call Arm; if it returns true, fd() becomes readable once Poll has something to do. If
  // false, there is something now. Spurious readiness is possible.
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
