// Owner of a file descriptor.

#ifndef OSPREY_RDMA_UNIQUE_FD_H_
#define OSPREY_RDMA_UNIQUE_FD_H_

#include <unistd.h>

#include <utility>

namespace osprey::rdma {

// Closes it on destruction. Move-only.
class UniqueFd {
 public:
  UniqueFd() = default;
  explicit UniqueFd(int fd) : fd_(fd) {}
  ~UniqueFd() { reset(); }
  UniqueFd(UniqueFd&& other) noexcept : fd_(other.release()) {}
  UniqueFd& operator=(UniqueFd&& other) noexcept {
    if (this != &other) reset(other.release());
    return *this;
  }

  int get() const { return fd_; }
  bool valid() const { return fd_ >= 0; }
  int release() { return std::exchange(fd_, -1); }
  void reset(int fd = -1) {
    if (fd_ >= 0) close(fd_);
    fd_ = fd;
  }

 private:
  int fd_ = -1;
};

}  // namespace osprey::rdma

#endif  // OSPREY_RDMA_UNIQUE_FD_H_
