// The session that a connection owns, or awaits from its old connection.
//
//   Create --------------------------------------> held
//   Claim a session without owner ---------------> held
//   Claim another: its owner is closed --> awaited
//                                             | the owner's kDisconnected: TakeOver
//                                             '--> held
//
// W9: a session continues only when its old connection can have no further effects.
//
// Thread rule: the engine's thread.

#ifndef OSPREY_SERVER_ENGINE_CONNECTION_SESSION_HOLD_H_
#define OSPREY_SERVER_ENGINE_CONNECTION_SESSION_HOLD_H_

#include <cassert>
#include <utility>

#include "absl/time/time.h"
#include "server/requests/sessions.h"

namespace osprey::server {

class SessionHold {
 public:
  // `holder` is the connection itself.
  SessionHold(Sessions& sessions, Connection& holder) : sessions_(sessions), holder_(holder) {}
  ~SessionHold() { assert(session_ == nullptr && claimed_ == nullptr); }
  SessionHold(const SessionHold&) = delete;
  SessionHold& operator=(const SessionHold&) = delete;

  // The session. REQUIRES: it is held.
  Session* operator->() const { return session_; }

  // A new session.
  void Create() { session_ = &sessions_.Create(&holder_); }
  // True if it is held now. Otherwise its owner is closed, and TakeOver will follow. Closes a
  // connection that awaits the same session.
  bool Claim(Session& session);
  // The old connection is gone, and Release has made the holder the owner.
  void TakeOver() { session_ = std::exchange(claimed_, nullptr); }
  // Awaits none any more.
  void Waive();
  // The client will not resume it.
  void Forget() { sessions_.Forget(*std::exchange(session_, nullptr)); }
  // After kDisconnected: the session is kept, or goes to the connection that awaits it, which is
  // returned: its TakeOver is due.
  Connection* Release(absl::Time now);
  // The sessions are about to be destroyed.
  void Abandon() { session_ = claimed_ = nullptr; }

 private:
  Sessions& sessions_;
  Connection& holder_;
  Session* session_ = nullptr;  // owned by the holder
  Session* claimed_ = nullptr;  // awaited from its owner
};

}  // namespace osprey::server

#endif  // OSPREY_SERVER_ENGINE_CONNECTION_SESSION_HOLD_H_
