#include "server/engine/connection/lifecycle.h"

#include <cstddef>

#include "absl/strings/str_cat.h"

namespace osprey::server {

void Lifecycle::Close(CloseReason reason, absl::string_view detail) {
  if (closing()) return;
  state_ = State::kClosing;
  ++shared_.counters.connections_closed[static_cast<size_t>(reason)];
  // Those that concern all clients at once are the server's to log.
  const bool is_of_all = reason == CloseReason::kStopping || reason == CloseReason::kNotServing;
  if (reason != CloseReason::kPeer && !is_of_all) {
    end_ = absl::StrCat("closed (", NameOf(reason), "): ", detail);
  }
  unfinished_ = true;
  FinishClosing();
}

// Work too long for the lock of a partition.
void Lifecycle::Finish() {
  unfinished_ = false;
  if (!end_.empty()) Log(std::exchange(end_, ""));
  release_();
}

void Lifecycle::Log(absl::string_view what) const {
  if (shared_.log) shared_.log(absl::StrCat("client ", peer_, " ", what));
}

}  // namespace osprey::server
