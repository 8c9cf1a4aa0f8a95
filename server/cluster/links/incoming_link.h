// A connection that another server has made, by which it sends messages to this one.
//
//   kAccepting ──kConnected──> kAwaitingHello ──Hello──> kAwaitingResponse ──Response──> kOpen
//                                    │      (without a key: Hello) ────────────────────────^
//                                    └──> kRefused <──────────┘   until the peer disconnects, or time
//
// Nothing of the peer is used before it has proved the key. Anything that the protocol forbids ends
// this connection alone.
//
// Thread rule: one thread, that of its PeerLinks.

#ifndef OSPREY_SERVER_CLUSTER_LINKS_INCOMING_LINK_H_
#define OSPREY_SERVER_CLUSTER_LINKS_INCOMING_LINK_H_

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "rdma/authentication.h"
#include "rdma/transport.h"
#include "server/cluster/links/link_frames.h"
#include "server/cluster/links/link_options.h"
#include "server/cluster/links/message_assembly.h"
#include "server/stats/admission.h"

namespace osprey {

class IncomingLink {
 public:
  // `peer` is how the transport names it. The connection was accepted at `now`. `context` and
  // `transport` must outlive it.
  IncomingLink(LinkContext& context, rdma::Transport& transport, rdma::ConnectionId id,
               std::string peer, server::Admission::Ticket ticket, absl::Time now);
  IncomingLink(const IncomingLink&) = delete;
  IncomingLink& operator=(const IncomingLink&) = delete;

  // After a call that returns kEnded the connection is disconnected, and this is to be deleted.
  enum class Change { kNone, kOpened, kEnded };

  // REQUIRES: an event of its connection, other than kDisconnected.
  Change Take(const rdma::Event& event, absl::Time now);
  // What is due: the end of a silent peer, a Pong.
  Change Advance(absl::Time now);
  // The time of the next Advance at the latest.
  absl::Time timer() const;
  // The frames of the peer were not read for so long, which does not count as its silence.
  void Excuse(absl::Duration duration) { heard_at_ += duration; }
  // Another connection took its place, or the configuration names that incarnation no more.
  void End() { transport_.Disconnect(id_); }

  // Of the server that sends; 0 before it is open.
  uint64_t incarnation() const { return state_ == State::kOpen ? hello_.incarnation : 0; }

 private:
  enum class State { kAccepting, kAwaitingHello, kAwaitingResponse, kOpen, kRefused };

  Change Connected(absl::Time now);
  Change TakeFrame(rdma::Bytes frame, absl::Time now);
  Change TakeHello(rdma::Bytes frame, absl::Time now);
  Change Challenge(absl::Time now);
  Change TakeResponse(rdma::Bytes frame, absl::Time now);
  Change Welcome(absl::Time now);
  Change TakeMessages(rdma::Bytes frame, absl::Time now);
  std::optional<LinkRefusal> WhyNot() const;
  bool IsPeer() const;
  Change Refuse(LinkRefusal reason, absl::Time now);
  Change Malformed(absl::string_view what, absl::Time now);
  Change Disconnect(absl::string_view why, absl::Time now);
  absl::Status SendFrame(const std::string& frame);
  std::string Name() const;

  LinkContext& context_;
  rdma::Transport& transport_;
  const rdma::ConnectionId id_;
  const std::string peer_;
  server::Admission::Ticket ticket_;

  State state_ = State::kAccepting;
  absl::Time deadline_;  // before kOpen, and in kRefused
  absl::Time heard_at_;  // the last frame came
  bool owes_pong_ = false;
  LinkHelloBody hello_;  // once it came
  rdma::Nonces nonces_;  // of the challenge
  MessageAssembly messages_;
};

}  // namespace osprey

#endif  // OSPREY_SERVER_CLUSTER_LINKS_INCOMING_LINK_H_
