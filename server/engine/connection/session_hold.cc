#include "server/engine/connection/session_hold.h"

#include "server/engine/connection/connection.h"

namespace osprey::server {

bool SessionHold::Claim(Session& session) {
  if (session.owner == nullptr) {
    sessions_.Own(session, &holder_);
    session_ = &session;
    return true;
  }
  if (session.claimant != nullptr)
    session.claimant->Close(CloseReason::kSuperseded, "its client connected once more");
  assert(session.claimant == nullptr);
  session.claimant = &holder_;
  claimed_ = &session;
  session.owner->Close(CloseReason::kSuperseded, "its client connected once more");
  return false;
}

void SessionHold::Waive() {
  if (claimed_ == nullptr) return;
  claimed_->claimant = nullptr;
  claimed_ = nullptr;
}

Connection* SessionHold::Release(absl::Time now) {
  if (session_ == nullptr) return nullptr;
  // From here on the holder has no further effects, so its session may continue on another.
  Session& session = *std::exchange(session_, nullptr);
  Connection* claimant = std::exchange(session.claimant, nullptr);
  sessions_.Keep(session, now);
  if (claimant != nullptr) sessions_.Own(session, claimant);
  return claimant;
}

}  // namespace osprey::server
