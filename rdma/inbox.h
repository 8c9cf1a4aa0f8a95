// A queue from other threads to a Transport's thread, which sleeps until a descriptor is readable.

#ifndef OSPREY_RDMA_INBOX_H_
#define OSPREY_RDMA_INBOX_H_

#include <sys/eventfd.h>

#include <cerrno>
#include <cstddef>
#include <cstring>
#include <deque>
#include <limits>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "rdma/unique_fd.h"

namespace osprey::rdma {

// Thread-safe. T is movable.
template <typename T>
class Inbox {
 public:
  // It holds at most `size_max` things. Errors: RESOURCE_EXHAUSTED (no descriptors).
  static absl::StatusOr<std::unique_ptr<Inbox>> Create(size_t size_max) {
    UniqueFd fd(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
    if (!fd.valid()) {
      return absl::ResourceExhaustedError(absl::StrCat("eventfd: ", std::strerror(errno),
                                                       "; close connections, or raise ulimit -n"));
    }
    return std::unique_ptr<Inbox>(new Inbox(std::move(fd), size_max));
  }

  // Readable while the inbox is not empty.
  int fd() const { return fd_.get(); }

  // Appends the result of `make` (a StatusOr<T>()), or returns its error. If the inbox is full, it
  // returns RESOURCE_EXHAUSTED and does not call `make`. `make` runs under the lock: Take on
  // another thread sees all of its effects, or none.
  template <typename Make>
  absl::Status Put(Make&& make) {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (things_.size() >= size_max_)
      return absl::ResourceExhaustedError("too many wait to be taken over already");
    absl::StatusOr<T> thing = make();
    if (!thing.ok()) return thing.status();
    things_.push_back(*std::move(thing));
    (void)eventfd_write(fd_.get(), 1);
    return absl::OkStatus();
  }

  // Takes all, or at most `count_max` of the oldest.
  std::vector<T> Take(size_t count_max = std::numeric_limits<size_t>::max()) {
    const std::lock_guard<std::mutex> lock(mutex_);
    std::vector<T> taken;
    for (; !things_.empty() && taken.size() < count_max; things_.pop_front())
      taken.push_back(std::move(things_.front()));
    eventfd_t ignored;
    if (things_.empty()) (void)eventfd_read(fd_.get(), &ignored);
    return taken;
  }

 private:
  Inbox(UniqueFd fd, size_t size_max) : fd_(std::move(fd)), size_max_(size_max) {}

  const UniqueFd fd_;
  const size_t size_max_;
  std::mutex mutex_;
  std::deque<T> things_;
};

// Connections handed over to one Transport and not taken yet. One more is refused.
inline constexpr size_t kMigratedMax = 1024;

}  // namespace osprey::rdma

#endif  // OSPREY_RDMA_INBOX_H_
