// The link by which this server sends messages to one incarnation of another server.
//
//   kPaused ──time──> kConnecting ──kConnected, Hello──> kGreeting ──Welcome──> kOpen
//      ^                   │                                 │                    │
//      └───────────────────┴── an error, a refusal, time ────┴────────────────────┘
//
// Messages are queued only in kOpen; those of a lost link are gone.
//
// Thread rule: one thread, that of its PeerLinks.

#ifndef OSPREY_SERVER_CLUSTER_LINKS_OUTGOING_LINK_H_
#define OSPREY_SERVER_CLUSTER_LINKS_OUTGOING_LINK_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "rdma/address.h"
#include "rdma/authentication.h"
#include "rdma/backoff.h"
#include "rdma/handshake.h"
#include "rdma/transport.h"
#include "server/cluster/links/limited_log.h"
#include "server/cluster/links/link_frames.h"
#include "server/cluster/links/link_options.h"
#include "server/cluster/links/message_queue.h"

namespace osprey {

// A transport for the addresses of one scheme.
struct LinkPort {
  rdma::Address::Scheme scheme = rdma::Address::Scheme::kRdma;
  std::unique_ptr<rdma::Transport> transport;
};

class OutgoingLink {
 public:
  // To `server` with `incarnation`. It begins to connect with the first Advance. `context` and
  // `ports` must outlive it.
  OutgoingLink(LinkContext& context, std::vector<LinkPort>& ports, std::string server,
               uint64_t incarnation);
  OutgoingLink(const OutgoingLink&) = delete;
  OutgoingLink& operator=(const OutgoingLink&) = delete;

  uint64_t incarnation() const { return incarnation_; }
  bool Is(const rdma::Transport& transport, rdma::ConnectionId id) const {
    return transport_ == &transport && id_ == id;
  }

  // An event of its connection. REQUIRES: Is.
  void Take(const rdma::Event& event, absl::Time now);
  // What is due: an attempt, a Ping, the end of a silent peer, frames for which there are credits.
  // True: a frame was sent.
  bool Advance(absl::Time now);
  // The time of the next Advance at the latest.
  absl::Time timer() const;
  // Messages are queued; and Advance would send some now.
  bool has_queued() const { return state_ == State::kOpen && !queue_.empty(); }
  bool CanSend() const;
  // The frames of the peer were not read for so long, which does not count as its silence.
  void Excuse(absl::Duration duration) { heard_at_ += duration; }

  // Ends it for good: the configuration names that incarnation no more.
  void End(const absl::Status& status);

  // As those of PeerLinks.
  uint64_t room() const { return state_ == State::kOpen ? queue_.room() : 0; }
  absl::Status Send(uint8_t kind, std::string body);

 private:
  enum class State { kPaused, kConnecting, kGreeting, kOpen };

  void Connect(absl::Time now);
  void Connected(absl::Time now);
  absl::Status TakeFrame(rdma::Bytes frame, absl::Time now);
  absl::Status TakeChallenge(rdma::Bytes frame);
  absl::Status TakeWelcome(rdma::Bytes frame, absl::Time now);
  absl::Status TakeRefused(rdma::Bytes frame) const;
  void Fail(const absl::Status& status, absl::Time now);
  void Leave(const absl::Status& status);
  bool Ping(absl::Time now);
  bool SendQueued(absl::Time now);
  absl::Status SendFrame(const std::string& frame);
  absl::Time ping_due() const;

  LinkContext& context_;
  std::vector<LinkPort>& ports_;
  const std::string server_;
  const uint64_t incarnation_;

  State state_ = State::kPaused;
  absl::Time timer_ = absl::InfinitePast();  // end of the pause, or of the attempt
  size_t attempts_ = 0;                      // which address is next
  rdma::VersionOffer offer_;                 // of this attempt
  std::string uri_;                          // of this attempt
  rdma::Transport* transport_ = nullptr;     // of this attempt
  rdma::ConnectionId id_ = rdma::ConnectionId::kNone;
  size_t frame_bytes_max_ = 0;
  LinkHelloBody hello_;                 // as it was sent
  std::optional<rdma::Nonces> nonces_;  // of the answered challenge
  absl::Time heard_at_;                 // the last frame came
  absl::Time pinged_at_;                // the last Ping went
  MessageQueue queue_;
  rdma::Backoff backoff_;
  LimitedLog log_;
};

}  // namespace osprey

#endif  // OSPREY_SERVER_CLUSTER_LINKS_OUTGOING_LINK_H_
