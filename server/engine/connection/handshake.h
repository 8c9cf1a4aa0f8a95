// A connection from its connect request to its Welcome: the states before kEstablished.
// connection.h has the diagram.
//
// Thread rule: the engine's thread.

#ifndef OSPREY_SERVER_ENGINE_CONNECTION_HANDSHAKE_H_
#define OSPREY_SERVER_ENGINE_CONNECTION_HANDSHAKE_H_

#include <memory>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "rdma/authentication.h"
#include "rdma/reasons.h"
#include "rdma/transport.h"
#include "rdma/wire/protocol.h"
#include "server/engine/connection/lifecycle.h"
#include "server/engine/connection/liveness_probe.h"
#include "server/engine/connection/reply_port.h"
#include "server/engine/connection/session_hold.h"
#include "server/engine/connection/shared.h"
#include "server/stats/admission.h"

namespace osprey::server {

// From the connect request to the Welcome, a challenge included. A correct client needs some round
// trips, and once, when it resumes, the end of its old connection. A silent or unauthenticated
// client occupies a place no longer than this.
inline constexpr absl::Duration kHelloTimeout() { return absl::Seconds(5); }
// A client with a key lets the server READ its liveness word only after the Welcome, which has the
// proof. Such a client abandons a connection attempt after 3 s; until then the server sends no
// liveness READ.
inline constexpr absl::Duration kWelcomeTakenMax() { return absl::Seconds(3); }

class Handshake {
 public:
  // Sets the session of `session`, the longest frame of `replies`, and the word of `liveness`.
  Handshake(Shared& shared, const Port& port, rdma::ConnectionId id, Admission::Ticket& ticket,
            Lifecycle& lifecycle, SessionHold& session, ReplyPort& replies, LivenessProbe& liveness,
            absl::Time now)
      : shared_(shared),
        port_(port),
        id_(id),
        ticket_(ticket),
        lifecycle_(lifecycle),
        session_(session),
        replies_(replies),
        liveness_(liveness),
        deadline_(now + kHelloTimeout()) {}
  Handshake(const Handshake&) = delete;
  Handshake& operator=(const Handshake&) = delete;

  // REQUIRES: the state is one before kEstablished.
  void Handle(const Input& input, absl::Time now);
  absl::Time deadline() const { return deadline_; }

 private:
  using State = Lifecycle::State;

  // From Challenge to Welcome: what the proofs are over.
  struct Exchange {
    rdma::HelloBody hello;
    rdma::Nonces nonces;
  };

  void Connected();
  void TakeFrame(rdma::FrameBytes frame, absl::Time now);
  // What has not come in time.
  absl::string_view Missing() const;

  void TakeHello(rdma::FrameBytes frame, absl::Time now);
  void SendChallenge(const rdma::HelloBody& hello, absl::Time now);
  void TakeResponse(rdma::FrameBytes frame, absl::Time now);
  void RefuseUnproven(Reason reason, absl::string_view detail, absl::Time now);
  void SendRefused(const rdma::RefusedBody& body, absl::Time now);
  bool WantsThisShard(const rdma::HelloBody& hello, absl::Time now);
  void TellServers(absl::Time now);
  void Proceed(const rdma::HelloBody& hello, absl::Time now);
  void Welcome(bool resumed, absl::Time now);

  Shared& shared_;
  const Port& port_;
  const rdma::ConnectionId id_;
  Admission::Ticket& ticket_;
  Lifecycle& lifecycle_;
  SessionHold& session_;
  ReplyPort& replies_;
  LivenessProbe& liveness_;
  const absl::Time deadline_;
  std::unique_ptr<Exchange> exchange_;
};

}  // namespace osprey::server

#endif  // OSPREY_SERVER_ENGINE_CONNECTION_HANDSHAKE_H_
