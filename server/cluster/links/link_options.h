// What the links of a server share: options, peers, events, counters.

#ifndef OSPREY_SERVER_CLUSTER_LINKS_LINK_OPTIONS_H_
#define OSPREY_SERVER_CLUSTER_LINKS_LINK_OPTIONS_H_

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "rdma/authentication.h"
#include "rdma/transport.h"
#include "server/cluster/links/limited_log.h"

namespace osprey {

struct LinkOptions {
  std::string server;        // this server's ID
  uint64_t incarnation = 0;  // this server's, random, not 0
  uint64_t cluster_id = 0;   // not 0
  // The cluster's key, not the one of clients. Null only where all links are over shm.
  rdma::AuthKey::Pointer key = nullptr;
  // Returns 64 random bits, which a peer cannot guess. Required.
  std::function<uint64_t()> random;
  // Takes a log line about a peer; may be empty.
  std::function<void(absl::string_view)> log = {};
  // Of what one link has still to send, but for one longer message alone.
  uint64_t queue_bytes_max = 4 << 20;
  // After so long without a frame from the peer, a Ping is sent; at the end of silence_max the link
  // is.
  absl::Duration ping_after = absl::Milliseconds(200);
  absl::Duration silence_max = absl::Seconds(1);
  // From a connect request to Welcome, at both ends.
  absl::Duration attempt_max = absl::Seconds(3);
  // The pause after a lost link, and the longest one (rdma/backoff.h).
  absl::Duration backoff_first = absl::Milliseconds(10);
  absl::Duration backoff_last = absl::Milliseconds(500);
};

// Another server of the cluster, as the configuration has it.
struct LinkPeer {
  uint64_t incarnation = 0;            // not 0; no two servers have the same
  std::vector<std::string> addresses;  // where it listens; tried in turn
  bool is_needed = true;               // this server connects to it

  friend bool operator==(const LinkPeer&, const LinkPeer&) = default;
};
using LinkPeers = std::map<std::string, LinkPeer, std::less<>>;  // by ID

struct LinkEvent {
  enum class Kind {
    kConnected,     // messages can be sent to `incarnation`
    kDisconnected,  // they cannot any more, and any part of those sent may be lost: why, in `status`
    kMessage,       // `incarnation` sent a message
  };
  Kind kind = Kind::kMessage;
  uint64_t incarnation = 0;
  absl::Status status;       // kDisconnected: not OK
  uint8_t message_kind = 0;  // kMessage
  std::string body;          // kMessage
};

// Since the start.
struct LinkCounters {
  uint64_t connected = 0;        // outgoing links that came up
  uint64_t failed_attempts = 0;  // … and attempts that did not
  uint64_t accepted = 0;         // incoming links that came up
  uint64_t refused = 0;          // incoming connections that may not send, or were too many
  uint64_t bad_frames = 0;       // frames that ended their connection
  uint64_t silent = 0;           // links that ended because the peer was silent
  uint64_t messages_sent = 0;    // put into the queue of a link
  uint64_t messages_received = 0;
};

// Of a PeerLinks, for its links.
struct LinkContext {
  explicit LinkContext(const LinkOptions& link_options)
      : options(link_options), incoming_log(link_options.log) {}

  const LinkOptions options;
  LinkPeers peers;  // without this server
  LinkCounters counters;
  std::vector<LinkEvent> events;  // for the next end of Poll
  LimitedLog incoming_log;        // about all that connects
};

// The poll interval while frames wait for credits, which come without an event.
inline constexpr absl::Duration kLinkBlockedStep() { return absl::Milliseconds(1); }

}  // namespace osprey

#endif  // OSPREY_SERVER_CLUSTER_LINKS_LINK_OPTIONS_H_
