// The state of a connection, and its end. connection.h has the diagram of the states.
//
// Every part of a connection may close it, at any point of its work, and from then on does nothing
// more. Thread rule: the engine's thread.

#ifndef OSPREY_SERVER_ENGINE_CONNECTION_LIFECYCLE_H_
#define OSPREY_SERVER_ENGINE_CONNECTION_LIFECYCLE_H_

#include <cassert>
#include <functional>
#include <string>
#include <utility>

#include "absl/strings/string_view.h"
#include "rdma/wire/protocol.h"
#include "server/engine/connection/shared.h"
#include "server/stats/stats.h"

namespace osprey::server {

// An input of a connection's state machine.
struct Input {
  enum class Kind {
    kConnected,
    kFrame,
    kFenced,  // the old connection of our session is gone
    kStop,    // the server is about to end
    kTime,    // deadline() has come
  };
  Kind kind = Kind::kTime;
  rdma::Bytes frame;  // kFrame
};

class Lifecycle {
 public:
  enum class State {
    kAccepting,
    kAwaitingHello,
    kAwaitingResponse,
    kAwaitingFence,
    kEstablished,
    kDraining,
    kLeaving,
    kClosing
  };

  // `release` releases what the connection holds, and disconnects. It is called once, by the end.
  Lifecycle(Shared& shared, std::string peer, std::function<void()> release)
      : shared_(shared), peer_(std::move(peer)), release_(std::move(release)) {}
  Lifecycle(const Lifecycle&) = delete;
  Lifecycle& operator=(const Lifecycle&) = delete;

  State state() const { return state_; }
  bool closing() const { return state_ == State::kClosing; }
  // REQUIRES: neither state is kClosing.
  void Enter(State next) {
    assert(!closing() && next != State::kClosing);
    state_ = next;
  }

  // Counts the reason, and disconnects. Under the lock of a table it does only the first; the rest
  // happens with FinishClosing. Only the first reason counts.
  void Close(CloseReason reason, absl::string_view detail);
  void Malformed(absl::string_view detail) { Close(CloseReason::kMalformed, detail); }

  // A request of the connection is being executed while its table is held. FinishClosing is due
  // after the end of that.
  void set_locked(bool locked) { locked_ = locked; }
  bool locked() const { return locked_; }
  void FinishClosing() {
    if (unfinished_ && !locked_) Finish();
  }

 private:
  void Finish();
  void Log(absl::string_view what) const;

  Shared& shared_;
  const std::string peer_;
  const std::function<void()> release_;
  State state_ = State::kAccepting;
  bool locked_ = false;
  bool unfinished_ = false;
  std::string end_;  // the log line of the end
};

}  // namespace osprey::server

#endif  // OSPREY_SERVER_ENGINE_CONNECTION_LIFECYCLE_H_
