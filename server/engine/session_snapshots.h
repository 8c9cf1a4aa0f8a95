// How a thread that writes a checkpoint gets the sessions, which belong to the pollers.
//
//   checkpoint's thread: Take ──wakes──> each poller, in its next turn: Give ──> Take returns
//
// Thread-safe.

#ifndef OSPREY_SERVER_ENGINE_SESSION_SNAPSHOTS_H_
#define OSPREY_SERVER_ENGINE_SESSION_SNAPSHOTS_H_

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "absl/types/optional.h"
#include "rdma/unique_fd.h"
#include "server/requests/sessions.h"

namespace osprey::server {

class SessionSnapshots {
 public:
  // Not valid() if the system has no descriptors left.
  explicit SessionSnapshots(uint32_t pollers);
  bool valid() const;

  // The sessions of all pollers. Waits for them. None after Close. One call at a time.
  absl::optional<std::vector<SessionImage>> Take();
  // The pollers have ended, or are about to.
  void Close();

  // For a poller: readable while a checkpoint waits for its sessions, so that it wakes.
  int fd(uint32_t poller) const { return pollers_[poller]->wake.get(); }
  bool IsWanted(uint32_t poller) const {
    return pollers_[poller]->wanted.load(std::memory_order_relaxed);
  }
  void Give(uint32_t poller, std::vector<SessionImage> images);

 private:
  // On its own cache lines: a poller reads it in each turn.
  struct alignas(128) Poller {
    std::atomic<bool> wanted{false};
    rdma::UniqueFd wake;
  };

  std::vector<std::unique_ptr<Poller>> pollers_;
  std::mutex mutex_;
  std::condition_variable given_;
  std::vector<SessionImage> images_;
  uint32_t awaited_ = 0;  // pollers that have not given theirs
  bool closed_ = false;
};

}  // namespace osprey::server

#endif  // OSPREY_SERVER_ENGINE_SESSION_SNAPSHOTS_H_
