// The end of a connection's rings, at the server: the pages that it filled are given back.
//
// The kernel charges a page to the process that touches it first, and a client can keep its rings
// mapped for any time. So a server takes the pages out of the file when the connection ends: all of
// them if the client is gone or broke a rule. A client that the server disconnects may not have
// taken the last frames yet. Those pages stay until kRingsMax more connections have ended so.

#ifndef OSPREY_RDMA_SHM_UNREAD_RINGS_H_
#define OSPREY_RDMA_SHM_UNREAD_RINGS_H_

#include <cstddef>
#include <deque>

#include "rdma/shm/mapping.h"
#include "rdma/shm/ring.h"

namespace osprey::rdma {

// Not thread-safe. When it is destroyed the frames stay in the files: the process is about to end.
class UnreadRings {
 public:
  // Bounds what clients that read nothing leave behind: some 1 MiB each.
  static constexpr size_t kRingsMax = 16;

  // Keeps what `out`, the ring at `offset` of `rings`, holds for its consumer, and no other page.
  void Keep(Mapping rings, size_t offset, RingProducer& out);

 private:
  std::deque<Mapping> rings_;  // the oldest first
};

}  // namespace osprey::rdma

#endif  // OSPREY_RDMA_SHM_UNREAD_RINGS_H_
