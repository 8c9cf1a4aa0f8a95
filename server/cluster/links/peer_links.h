// The connections of this server to other servers of its cluster, for messages.
//
//        this server                                    another server
//   Send ──> OutgoingLink ── the connection it makes ──> IncomingLink ──> kMessage
//   kMessage <── IncomingLink <── the connection it makes ── OutgoingLink <── Send
//
// Each server sends on the connections that it makes, and receives on those that it accepts. So two
// servers never have to agree which of two connections counts. Answers are messages of their own.
// Any server of the cluster may connect to this one, which itself connects to those that its owner needs.
//
//   auto links = PeerLinks::Create(options, std::move(ports), now);
//   links->Listen(uri);  links->SetPeers(peers);                 again with each configuration
//   in each turn:  links->Poll(now, events);  … links->Send(incarnation, kind, body) …
//
// What holds:
//
// - Messages to one incarnation arrive whole and in order, each at most once, while its link lasts.
//   From kConnected to kDisconnected none is missing but the last ones, of any number.
// - A message comes only from a server that has proved the cluster's key, of this cluster, whose
//   incarnation the configuration names now. (Over shm, without a key, the right to write to the
//   socket's file takes the place of the proof.)
// - A peer can end only its own connections.
// - Memory is bounded: for each peer, the queue and one incomplete message; for all connections that
//   have not proved the key, server/stats/admission.h.
//
// Time is an argument, and never decreases. Nothing blocks.
//
// Thread rule: one thread. The events own their bytes.

#ifndef OSPREY_SERVER_CLUSTER_LINKS_PEER_LINKS_H_
#define OSPREY_SERVER_CLUSTER_LINKS_PEER_LINKS_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "rdma/transport.h"
#include "server/cluster/links/incoming_link.h"
#include "server/cluster/links/link_options.h"
#include "server/cluster/links/outgoing_link.h"
#include "server/stats/admission.h"

namespace osprey {

// For the transports of links: 1 MiB of each connection may be under way.
inline constexpr rdma::TransportOptions kLinkTransportOptions = {
    .receive_credits = 64, .frame_bytes_max = 16 << 10, .reads_in_flight_max = 2};

// Connections of other servers, with those that have not proved the key: a quarter of them all, and a
// quarter of these from one source.
inline constexpr size_t kIncomingLinksMax = 256;

class PeerLinks {
 public:
  // One port for each scheme of addresses. `now` is the start of its time. Errors:
  // INVALID_ARGUMENT, with the option and the fix; a null key with an rdma:// port among them.
  static absl::StatusOr<std::unique_ptr<PeerLinks>> Create(const LinkOptions& options,
                                                           std::vector<LinkPort> ports,
                                                           absl::Time now);
  // Breaks all connections. Messages that are queued are lost.
  ~PeerLinks();
  PeerLinks(const PeerLinks&) = delete;
  PeerLinks& operator=(const PeerLinks&) = delete;

  // Accepts other servers at `uri`; returns the URI for them (the port filled in). Errors: those of
  // Transport::Listen, and INVALID_ARGUMENT for a scheme without a port.
  absl::StatusOr<std::string> Listen(absl::string_view uri);

  // The servers of the cluster as the configuration has them now; this one is ignored. New ones that are
  // needed are connected to at the next Poll. Links of incarnations that are gone end, in both directions; of
  // those that are not needed any more, the link to them.
  void SetPeers(LinkPeers peers);

  // Puts a message into the queue of the link to that incarnation; the next Poll begins to send it.
  // Errors, after which nothing has changed: NOT_FOUND (not a needed peer), UNAVAILABLE (not connected: no
  // kConnected, or kDisconnected after it), RESOURCE_EXHAUSTED (longer than RoomFor, or that is 0),
  // INVALID_ARGUMENT (longer than kLinkMessageBytesMax).
  absl::Status Send(uint64_t incarnation, uint8_t kind, std::string body);
  // The longest message, in bytes, that Send takes now. 0: it takes none, not even an empty one, as
  // without a link.
  uint64_t RoomFor(uint64_t incarnation) const;

  // One turn: sends and receives, and appends what happened to `events`. For each incarnation
  // kConnected and kDisconnected alternate. True if there was work: there may be more.
  bool Poll(absl::Time now, std::vector<LinkEvent>& events);

  // Begins to send what was queued since the last Poll. *Else* that takes another one.
  void Flush(absl::Time now);

  // Before a sleep: false if there is work now. Otherwise each of fds() that becomes readable
  // requires a Poll.
  bool Arm();
  std::vector<int> fds() const;
  // The time of the next Poll, even without a readable descriptor.
  absl::Time next_timer() const;

  // Not OK after the loss of a device: no link works any more.
  const absl::Status& failure() const { return failure_; }
  const LinkCounters& counters() const { return context_.counters; }
  // Connections of other servers, with those that have not proved the key.
  size_t incoming() const { return incoming_.size(); }

 private:
  // A connection: the number of its port, and its id there.
  using Place = std::pair<size_t, rdma::ConnectionId>;
  using Incoming = std::map<Place, std::unique_ptr<IncomingLink>>;

  PeerLinks(const LinkOptions& options, std::vector<LinkPort> ports, absl::Time now);

  void Handle(size_t port, const rdma::Event& event, absl::Time now);
  void HandleRequest(size_t port, const rdma::Event& event, absl::Time now);
  void TakeIncoming(Incoming::iterator link, const rdma::Event& event, absl::Time now);
  void EndOlder(const Place& newest);
  bool AdvanceAll(absl::Time now);
  void ExcuseDelay(absl::Time now);
  OutgoingLink* Find(uint64_t incarnation) const;

  LinkContext context_;
  std::vector<LinkPort> ports_;
  server::Admission admission_;                                    // of incoming connections
  std::map<std::string, std::unique_ptr<OutgoingLink>> outgoing_;  // by server
  Incoming incoming_;
  std::vector<rdma::Event> port_events_;
  absl::Time polled_at_;
  absl::Status failure_;
};

}  // namespace osprey

#endif  // OSPREY_SERVER_CLUSTER_LINKS_PEER_LINKS_H_
