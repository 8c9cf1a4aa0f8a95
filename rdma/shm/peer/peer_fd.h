// Owner of a descriptor whose close may block: one that a peer has sent, or the socket over which
// it sends them.

#ifndef OSPREY_RDMA_SHM_PEER_PEER_FD_H_
#define OSPREY_RDMA_SHM_PEER_PEER_FD_H_

#include <cassert>
#include <memory>
#include <utility>

#include "rdma/shm/peer/slow_closer.h"

namespace osprey::rdma {

// Gives it to a lane on destruction. Move-only. Not thread-safe.
class PeerFd {
 public:
  PeerFd() = default;
  // REQUIRES: `lane` is not null.
  PeerFd(int fd, std::shared_ptr<CloserLane> lane) : fd_(fd), lane_(std::move(lane)) {
    assert(lane_ != nullptr);
  }
  ~PeerFd() { reset(); }
  PeerFd(PeerFd&& other) noexcept
      : fd_(std::exchange(other.fd_, -1)), lane_(std::move(other.lane_)) {}
  PeerFd& operator=(PeerFd&& other) noexcept {
    if (this == &other) return *this;
    reset();
    fd_ = std::exchange(other.fd_, -1);
    lane_ = std::move(other.lane_);
    return *this;
  }

  int get() const { return fd_; }
  bool valid() const { return fd_ >= 0; }
  // Of what it owns, or owned last. Null if it never owned anything.
  const std::shared_ptr<CloserLane>& lane() const { return lane_; }

  // Never blocks.
  void reset() {
    if (fd_ >= 0) lane_->Close(std::exchange(fd_, -1));
  }
  // Gives the descriptor to the caller. REQUIRES: its close cannot block.
  int release() { return std::exchange(fd_, -1); }

 private:
  int fd_ = -1;
  std::shared_ptr<CloserLane> lane_;
};

}  // namespace osprey::rdma

#endif  // OSPREY_RDMA_SHM_PEER_PEER_FD_H_
