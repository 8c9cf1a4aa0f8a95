// Whether a silent peer lives: a READ of its liveness word, which does not wake its process.
//
// Thread rule: the engine's thread.

#ifndef OSPREY_SERVER_ENGINE_CONNECTION_LIVENESS_PROBE_H_
#define OSPREY_SERVER_ENGINE_CONNECTION_LIVENESS_PROBE_H_

#include <algorithm>
#include <cstdint>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "rdma/transport.h"
#include "rdma/wire/protocol.h"
#include "server/engine/connection/lifecycle.h"
#include "server/engine/connection/shared.h"

namespace osprey::server {

// After this long without input from a peer, the server READs its liveness word.
inline constexpr absl::Duration kSilenceMax() { return absl::Seconds(1); }
// The connection is closed if that READ takes longer. A retransmission or two fit in, and a dead
// host is detected within 4 s.
inline constexpr absl::Duration kLivenessTimeout() { return absl::Seconds(3); }

inline constexpr uint64_t kLivenessBytes = 8;

class LivenessProbe {
 public:
  // The cookie of its READ.
  static constexpr uint64_t kCookie = 0;

  LivenessProbe(Shared& shared, const Port& port, rdma::ConnectionId id, Lifecycle& lifecycle,
                absl::Time now)
      : shared_(shared), port_(port), id_(id), lifecycle_(lifecycle), last_input_(now) {}
  LivenessProbe(const LivenessProbe&) = delete;
  LivenessProbe& operator=(const LivenessProbe&) = delete;

  // Where the word is. REQUIRES: attached. Set before the first Check.
  void set_word(const rdma::WireMemory& word) { word_ = word; }
  void InputCame(absl::Time now) {
    last_input_ = now;
    spared_ = false;
  }
  // The peer need not be asked before `until`, unless an input comes: then the deadline becomes
  // earlier.
  void SpareUntil(absl::Time until) {
    last_input_ = until;
    spared_ = true;
  }
  bool spared() const { return spared_; }
  // Posts the READ if the peer is silent, and closes the connection if the READ takes too long.
  void Check(absl::Time now);
  // The READ ended. False if it failed, which closes the connection.
  bool OnReadDone(const absl::Status& status, absl::Time now);

  // When Check is due.
  absl::Time deadline() const {
    const absl::Time silence = last_input_ + kSilenceMax();
    return reading_ ? std::max(since_, silence) + kLivenessTimeout() : silence;
  }

 private:
  Shared& shared_;
  const Port& port_;
  const rdma::ConnectionId id_;
  Lifecycle& lifecycle_;
  rdma::WireMemory word_;
  absl::Time last_input_;  // or until when the peer is spared
  bool spared_ = false;
  bool reading_ = false;
  absl::Time since_ = absl::InfinitePast();  // when the last READ was posted
};

}  // namespace osprey::server

#endif  // OSPREY_SERVER_ENGINE_CONNECTION_LIVENESS_PROBE_H_
