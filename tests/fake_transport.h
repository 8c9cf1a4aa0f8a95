// A Transport in one process, one thread and no time: what tests and simulations of the engines run
// on.
//
//   fake::Network network;                                    // everything happens inside it
//   auto server_domain = network.NewDomain("server");         // one for each "process"
//   auto client_domain = network.NewDomain("client");
//   auto server = server_domain->NewTransport({}).value();
//   auto client = client_domain->NewTransport({}).value();
//   server->Listen("rdma://server:7411", incarnation);        // any text is an address; the
//   listener must match it ConnectionId id = client->Connect("rdma://server:7411").value(); … Poll
//   both in turn: whatever is under way goes on inside Poll, and nowhere else …
//
// Deterministic: nothing happens but in calls, and the outcome depends on the calls and the seed
// alone. It is as strict as the real ones: READs outside what was exposed break the connection,
// frames are gone at the next Poll, a frame too many or too long is refused, kDisconnected comes
// once and last, after the READs have ended. Connection ids are unique in the whole network, so
// that one id names one end; remote addresses look like no pointer, so that the two cannot be mixed
// up.
//
// When what happens: Send puts the frame into the peer's next Poll. PostReads is carried out in one
// of our own next Polls (one batch of each connection in each Poll, unless NetworkOptions says
// more). Disconnect and the faults below show in the next Poll of each end.
//
// Thread rule: one thread for the Network and all that came from it. The Network must outlive all
// of it.

#ifndef OSPREY_TESTS_FAKE_TRANSPORT_H_
#define OSPREY_TESTS_FAKE_TRANSPORT_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "rdma/transport.h"
#include "tests/dice.h"

namespace osprey::fake {

class FakeTransport;
class FakeMemory;
struct End;

struct NetworkOptions {
  uint64_t seed = 1;
  // A READ is copied in pieces of so many bytes, with `before_piece` called before each; 0: in one
  // piece.
  uint32_t read_piece_bytes = 0;
  // Pieces are copied in random order.
  bool shuffle_pieces = false;
  // The longest single READ (ConnectionLimits::read_bytes_max), in bytes. Small, so that splitting
  // is exercised.
  uint32_t read_bytes_max = 1 << 20;
  // Of so many READs some pieces are copied twice, before the READ completes: as when a response
  // was lost and what it answers is sent again, of what the memory holds by then.
  uint32_t replays_per_10k = 0;
  // Batches of READs of each connection that are carried out in one Poll.
  uint32_t read_batches_per_poll = 1;
  // READs on the wire at once (ConnectionLimits::read_depth).
  uint16_t read_depth = 16;
  // Peers see each other's memory (Transport::View), as over shm: while nothing is held or cut.
  bool has_views = false;
};

class Network {
 public:
  explicit Network(const NetworkOptions& options = {});
  ~Network();
  Network(const Network&) = delete;
  Network& operator=(const Network&) = delete;

  // `name` shows in Describe, and as the peer's address and source in kConnectRequest.
  std::unique_ptr<rdma::Domain> NewDomain(absl::string_view name);

  // The other end of a connection; kNone when there is none (not yet accepted, or gone).
  rdma::ConnectionId Peer(rdma::ConnectionId id) const;
  // Whether this end may READ the memory of that key: its peer has exposed it.
  bool MayRead(rdma::ConnectionId id, uint32_t key) const;
  // Ends not yet kDisconnected, over all transports.
  size_t connections() const { return ends_.size(); }
  // READs carried out since the beginning, over all transports.
  uint64_t reads_executed() const { return reads_executed_; }
  // … of these, in memory of somebody else (Haunt).
  uint64_t haunted_reads() const { return haunted_reads_; }
  // READs of which pieces were copied twice, and pieces that were others the second time.
  uint64_t replayed_reads() const { return replayed_reads_; }
  uint64_t changed_pieces() const { return changed_pieces_; }
  // Frames that arrived where they were held.
  uint64_t held_frames() const { return held_frames_; }

  // --- Faults. `id` is either end, unless said otherwise. Ids that are gone are ignored.

  // The connection breaks: both ends get kDisconnected (UNAVAILABLE); READs that were posted fail;
  // frames that have not been polled yet are lost if `lose_frames`.
  void Break(rdma::ConnectionId id, bool lose_frames = true);
  // The wire is cut and nobody is told: frames are lost, READs stay pending, until an end calls
  // Disconnect (which the other end does not notice).
  void Cut(rdma::ConnectionId id);
  // READs posted by this end are not carried out while held (Disconnect ends them all the same).
  void HoldReads(rdma::ConnectionId id, bool held);
  // Frames for this end arrive only when they are no longer held, or when the connection ends.
  void HoldFrames(rdma::ConnectionId id, bool held);
  // The next batch of READs posted by this end fails with `status`, half of its bytes written, and
  // the connection breaks.
  void FailNextReads(rdma::ConnectionId id, absl::Status status);
  // From now on the READs of this end, which was cut, are carried out in `memory`, whoever is
  // there: as if a later life of its peer had come by the same queue pair number, packet sequence
  // and rkey.
  void Haunt(rdma::ConnectionId id, const rdma::Memory& memory);
  // kDeviceLost comes from every transport of this domain.
  void LoseDevice(absl::string_view domain_name);

  // Called before each piece of each READ is copied: `remote` is what is about to be read. A writer
  // may run in it; the memory may go in it, which fails the READ.
  std::function<void(absl::Span<const std::byte> remote)> before_piece;
  // Memories that a connection may have exposed at a time, as over shm; 0: any number, as over verbs.
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
  // Which of the pieces, in their order, is the last before some are copied again; none: `pieces`.
  size_t DrawReplay(size_t pieces);
  absl::Status Execute(End& end, absl::Span<const rdma::ReadRequest> reads);

  const NetworkOptions options_;
  Dice dice_;
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
  std::map<uint32_t, FakeMemory*> memories_;         // by key
  std::map<std::string, FakeTransport*> listeners_;  // by URI
  std::vector<FakeTransport*> transports_;
};

}  // namespace osprey::fake

#endif  // OSPREY_TESTS_FAKE_TRANSPORT_H_
