#include "rdma/shm/peer_ledger.h"

#include <fcntl.h>
#include <linux/sockios.h>
#include <sys/ioctl.h>

#include <algorithm>
#include <utility>

#include "rdma/shm/socket.h"

namespace osprey::rdma {
namespace {

// Looks, each a system call, of one Sweep.
constexpr size_t kLooksMax = 8;

}  // namespace

bool HasReceivedAll(int socket) {
  int bytes = 0;
  return ioctl(socket, SIOCOUTQ, &bytes) == 0 && bytes == 0;
}

void ShmPeerLedger::Keep(PeerFd socket) {
  const uid_t uid = PeerOf(socket.get()).uid;
  // The peer may have sent its own end over it. That would stay open, unread as it is, as long as
  // it lies in `socket`.
  if (const int copy = fcntl(socket.get(), F_DUPFD_CLOEXEC, 0); copy >= 0)
    socket.lane()->DrainAndClose(copy);
  const std::lock_guard<std::mutex> lock(mutex_);
  sockets_[uid].push_back(std::move(socket));
  kept_.fetch_add(1, std::memory_order_relaxed);
}

void ShmPeerLedger::SweepSome(std::list<PeerFd>& sockets, size_t looks_max) {
  const size_t looks = std::min(looks_max, sockets.size());
  for (size_t i = 0; i < looks; ++i) {
    if (HasReceivedAll(sockets.front().get())) {
      sockets.pop_front();
      kept_.fetch_sub(1, std::memory_order_relaxed);
    } else {  // to the end: the next look is at another one
      sockets.splice(sockets.end(), sockets, sockets.begin());
    }
  }
}

void ShmPeerLedger::Sweep() {
  const std::lock_guard<std::mutex> lock(mutex_);
  auto turn = sockets_.lower_bound(next_);
  if (turn == sockets_.end()) turn = sockets_.begin();
  if (turn == sockets_.end()) return;
  SweepSome(turn->second, kLooksMax);
  next_ = turn->first + 1;
  if (turn->second.empty()) sockets_.erase(turn);
}

bool ShmPeerLedger::IsFull(uid_t uid) {
  if (kept() == 0) return false;
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto own = sockets_.find(uid);
  if (own == sockets_.end()) return false;
  SweepSome(own->second, 2 * kKeptMax);
  const size_t count = own->second.size();
  if (count == 0) sockets_.erase(own);
  const size_t others = kept() - count;
  return count > 0 && (others >= kKeptMax || count >= (kKeptMax - others + 1) / 2);
}

size_t ShmPeerLedger::KeptOf(uid_t uid) const {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto own = sockets_.find(uid);
  return own == sockets_.end() ? 0 : own->second.size();
}

}  // namespace osprey::rdma
