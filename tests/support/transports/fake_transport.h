// A Transport within one process and one thread, without real time, for tests and simulations of
// the engines.
//
//   fake::Network network;                                    // everything happens inside it
//   auto server_domain = network.NewDomain("server");         // one for each "process"
//   auto client_domain = network.NewDomain("client");
//   auto server = server_domain->NewTransport({}).value();
//   auto client = client_domain->NewTransport({}).value();
//   server->Listen("rdma://server:7411", incarnation);        // any text is an address
//   ConnectionId id = client->Connect("rdma://server:7411").value();  // the same text
//   … Poll both in turn: work progresses only inside Poll …
//
// Deterministic: all effects occur within calls, and the outcome depends on the calls and the seed
// alone. It is as strict as the real transports. READs outside exposed memory break the connection.
// Frames are gone at the next Poll. One frame too many, or too long, is refused. kDisconnected
// comes once and last, after the READs have ended. Connection ids are unique in the whole network,
// so one id names one end. Remote addresses do not look like pointers, so the two cannot be
// confused.
//
// Timing: Send puts the frame into the peer's next Poll. A later Poll of the same end executes
// PostReads: one batch of each connection in each Poll, unless NetworkOptions says more. Disconnect
// and the faults below take effect in the next Poll of each end.
//
// Thread rule: one thread for the Network and all objects from it. The Network must outlive them.

#ifndef OSPREY_TESTS_SUPPORT_TRANSPORTS_FAKE_TRANSPORT_H_
#define OSPREY_TESTS_SUPPORT_TRANSPORTS_FAKE_TRANSPORT_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "rdma/transport.h"
#include "tests/support/split_mix64.h"

namespace osprey::fake {

class FakeTransport;
class FakeMemory;
struct End;

struct NetworkOptions {
  uint64_t seed = 1;
  // The piece length by which a READ is copied, with `before_piece` called before each; 0: in one
  // piece.
  uint32_t read_piece_bytes = 0;
  // Pieces are copied in random order.
  bool shuffle_pieces = false;
  // The longest single READ (ConnectionLimits::read_bytes_max), in bytes. It is small, so that
  // tests exercise splitting.
  uint32_t read_bytes_max = 1 << 20;
  // The rate of READs of which some pieces are copied twice before the READ completes. This models
  // a lost response: the device repeats it from the memory's later contents.
  uint32_t replays_per_10k = 0;
  // Batches of READs of each connection that one Poll executes.
  uint32_t read_batches_per_poll = 1;
  // READs on the wire at once (ConnectionLimits::read_depth).
  uint16_t read_depth = 16;
  // Peers can map each other's memory (Transport::mapped_reads), as over shm, unless held or cut.
  bool has_views = false;
};

class Network {
 public:
  explicit Network(const NetworkOptions& options = {});
  ~Network();
  Network(const Network&) = delete;
  Network& operator=(const Network&) = delete;

  // `name` appears in Describe, and as the peer's address and source in kConnectRequest.
  std::unique_ptr<rdma::Domain> NewDomain(absl::string_view name);

  // The other end of a connection; kNone if there is none (not yet accepted, or gone).
  rdma::ConnectionId Peer(rdma::ConnectionId id) const;
  // Whether this end may READ the memory of that key: its peer has exposed it.
  bool MayRead(rdma::ConnectionId id, uint32_t key) const;
  // Ends not yet kDisconnected, over all transports.
  size_t connections() const { return ends_.size(); }
  // READs executed since the start, over all transports.
  uint64_t reads_executed() const { return reads_executed_; }
  // … of these, in the memory of another process (Haunt).
  uint64_t haunted_reads() const { return haunted_reads_; }
  // READs with pieces that were copied twice, and pieces that differed the second time.
  uint64_t replayed_reads() const { return replayed_reads_; }
  uint64_t changed_pieces() const { return changed_pieces_; }
  // Frames that arrived while held.
  uint64_t held_frames() const { return held_frames_; }

  // --- Faults. `id` is either end, unless said otherwise. Ids that are gone are ignored.

  // The connection breaks: both ends get kDisconnected (UNAVAILABLE). READs that were posted fail.
  // Frames that have not been polled yet are lost if `lose_frames`.
  void Break(rdma::ConnectionId id, bool lose_frames = true);
  // The wire is cut without a report: frames are lost and READs stay pending, until an end calls
  // Disconnect (which the other end does not notice).
  void Cut(rdma::ConnectionId id);
  // READs posted by this end are not executed while held (Disconnect still ends them).
  void HoldReads(rdma::ConnectionId id, bool held);
  // This end never gets kDisconnected, as with a peer that does not answer to the end of a connection.
  void HoldEnd(rdma::ConnectionId id);
  // Frames for this end arrive only when the hold ends, or the connection.
  void HoldFrames(rdma::ConnectionId id, bool held);
  // The next batch of READs posted by this end fails with `status`, half of its bytes written, and
  // the connection breaks.
  void FailNextReads(rdma::ConnectionId id, absl::Status status);
  // From now on the READs of this end, which was cut, are executed in `memory`. This models a later
  // incarnation of the peer with the same queue pair number, packet sequence and rkey.
  void Haunt(rdma::ConnectionId id, const rdma::Memory& memory);
  // The server at `uri` speaks this version of the protocol, and serves the one before.
  void SetVersion(const std::string& uri, uint16_t version) { versions_[uri] = version; }
  // Every transport of this domain reports kDeviceLost.
  void LoseDevice(absl::string_view domain_name);
  // The process of this domain is gone, though its objects are not yet: nothing of it is reached any more, and it
  // reaches nothing. Its peers get kDisconnected if `is_reported`; else their connections are cut.
  void EndDomain(absl::string_view domain_name, bool is_reported);
  // Wakes all transports: is_blocked answers otherwise now.
  void NoteBlocks();
  // Connection requests from this domain bring `status`: the source holds too many descriptors.
  void FailRequests(absl::string_view domain_name, absl::Status status);

  // Whether nothing that is sent from one domain to another arrives now. It arrives later: requests to connect and their
  // acceptance, and frames. READs need both directions. Empty: never.
  std::function<bool(absl::string_view from, absl::string_view to)> is_blocked;
  // Called before each piece of each READ is copied, with the bytes to be read as `remote`. A
  // writer may run in it. The memory may be released in it, which fails the READ.
  std::function<void(absl::Span<const std::byte> remote)> before_piece;
  // Memories that a connection may have exposed at a time, as over shm; 0: any number, as over
  // verbs.
  uint32_t exposed_max = 0;
  // Called when a batch is about to be carried out, with the end that posted it. May Break, Cut …
  std::function<void(rdma::ConnectionId reader)> before_reads;

 private:
  friend class FakeTransport;
  friend class FakeMemory;
  friend class FakeDomain;

  End* Find(rdma::ConnectionId id);
  const End* Find(rdma::ConnectionId id) const;
  End& NewEnd(FakeTransport* transport);
  void Close(End& end, absl::Status status, bool lose_frames);
  bool Copy(uint32_t key, absl::Span<const std::byte> from, const rdma::ReadRequest& read,
            size_t bytes);
  // The piece after which some pieces are copied again; `pieces`: none.
  size_t DrawReplay(size_t pieces);
  bool MayArrive(const End& end) const;
  bool MayRead(const End& end) const;
  absl::Status Execute(End& end, absl::Span<const rdma::ReadRequest> reads);

  const NetworkOptions options_;
  SplitMix64 rng_;
  uint64_t last_id_ = 0;
  uint32_t last_key_ = 0;
  uint16_t last_port_ = 40000;
  uint64_t reads_executed_ = 0;
  uint64_t haunted_reads_ = 0;
  uint64_t replays_until_ = 0;
  uint64_t replayed_reads_ = 0;
  uint64_t changed_pieces_ = 0;
  uint64_t held_frames_ = 0;
  uint64_t memories_gone_ = 0;
  std::map<rdma::ConnectionId, std::unique_ptr<End>> ends_;
  std::map<uint32_t, FakeMemory*> memories_;             // by key
  std::map<std::string, FakeTransport*> listeners_;      // by URI
  std::map<std::string, uint16_t> versions_;             // likewise; of others: kProtocolVersion
  std::map<std::string, absl::Status> failed_requests_;  // by domain name
  std::set<std::string, std::less<>> ended_domains_;
  std::vector<FakeTransport*> transports_;
};

}  // namespace osprey::fake

#endif  // OSPREY_TESTS_SUPPORT_TRANSPORTS_FAKE_TRANSPORT_H_
