// Sockets of ended connections whose peers have not received the descriptors that they were sent.
//
// The kernel counts a descriptor in an unread packet as in flight for the user that sent it. At
// RLIMIT_NOFILE that user can send no more to anyone. The descriptor stays in flight after its
// sender has closed the connection, until the peer receives it or closes its end. The server
// therefore keeps its own end open, which shows when that happens (SIOCOUTQ). It counts such sockets
// by user:
//
//   connection ends ── all received? ── yes: closed
//                                    └─ no:  kept here until it is, or the peer closes its end
//
// The server refuses new connections of a user that has too many of them. So a user can leave that
// many, and the connections that it has at that time, but not more with time.
//
// Thread rule: thread-safe; the Transports of a Domain share one.

#ifndef OSPREY_RDMA_SHM_PEER_LEDGER_H_
#define OSPREY_RDMA_SHM_PEER_LEDGER_H_

#include <sys/types.h>

#include <atomic>
#include <cstddef>
#include <list>
#include <map>
#include <mutex>

#include "rdma/shm/peer/peer_fd.h"

namespace osprey::rdma {

// Whether the peer of `socket` has received every packet sent to it, or has closed its end.
bool HasReceivedAll(int socket);

class ShmPeerLedger {
 public:
  // Sockets that are kept while new connections are still accepted. One user may have half of those
  // that the others leave: the first 32, the second 16. So no user takes them all.
  static constexpr size_t kKeptMax = 64;

  ShmPeerLedger() = default;
  ShmPeerLedger(const ShmPeerLedger&) = delete;
  ShmPeerLedger& operator=(const ShmPeerLedger&) = delete;

  // Keeps `socket`, which is shut down, until its peer has received everything.
  void Keep(PeerFd socket);
  // Looks at some of the sockets and lets go of those that need not be kept. Never blocks.
  void Sweep();
  // Whether `uid` has as many as it may, now.
  bool IsFull(uid_t uid);

  size_t kept() const { return kept_.load(std::memory_order_relaxed); }
  size_t KeptOf(uid_t uid) const;

 private:
  // Under the mutex. Drops those of `sockets` that need not be kept, of at most `looks_max`.
  void SweepSome(std::list<PeerFd>& sockets, size_t looks_max);

  mutable std::mutex mutex_;
  std::map<uid_t, std::list<PeerFd>> sockets_;  // by user; no list is empty
  std::atomic<size_t> kept_{0};                 // in all; changed under the mutex
  uid_t next_ = 0;                              // whose turn it is in Sweep
};

}  // namespace osprey::rdma

#endif  // OSPREY_RDMA_SHM_PEER_LEDGER_H_
