// Wakes the cluster's thread from any other.
//
// Thread-safe.

#ifndef OSPREY_SERVER_CLUSTER_NODE_WAKE_H_
#define OSPREY_SERVER_CLUSTER_NODE_WAKE_H_

#include <sys/eventfd.h>
#include <unistd.h>

#include <cstdint>

#include "rdma/unique_fd.h"

namespace osprey::server {

class Wake {
 public:
  Wake() : fd_(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) {}
  // False: the system has no descriptor left.
  bool valid() const { return fd_.valid(); }
  int fd() const { return fd_.get(); }
  // fd() is readable from now on.
  void Ring() {
    const uint64_t one = 1;
    // Fails only if the descriptor is readable already.
    [[maybe_unused]] const ssize_t written = write(fd_.get(), &one, sizeof(one));
  }
  void Clear() {
    uint64_t count = 0;
    [[maybe_unused]] const ssize_t bytes = read(fd_.get(), &count, sizeof(count));
  }

 private:
  const rdma::UniqueFd fd_;
};

}  // namespace osprey::server

#endif  // OSPREY_SERVER_CLUSTER_NODE_WAKE_H_
