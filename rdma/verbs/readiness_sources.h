// The descriptors that wake a VerbsTransport, behind one epoll descriptor.

#ifndef OSPREY_RDMA_VERBS_READINESS_SOURCES_H_
#define OSPREY_RDMA_VERBS_READINESS_SOURCES_H_

#include <sys/epoll.h>

#include <cstddef>
#include <vector>

#include "absl/status/status.h"
#include "rdma/unique_fd.h"

namespace osprey::rdma {

class ReadinessSources {
 public:
  struct Source {
    enum class Kind { kCm, kInbox, kMigrated, kBlockingCalls, kDeviceEvents, kCompletions };
    Kind kind;
    size_t device = 0;
    int fd = -1;
  };

  absl::Status Open();
  absl::Status Watch(int fd, Source source);
  // Leaves connect requests and other CM events in the kernel, where they do not wake us.
  void PauseAccept(bool hold);

  // Calls handle(const Source&) for each that is readable now.
  template <typename Handle>
  void ForEachReady(Handle handle) const {
    epoll_event ready[kReadyMax];
    const int count = epoll_wait(epoll_.get(), ready, kReadyMax, 0);
    for (int i = 0; i < count; i++) handle(sources_[ready[i].data.u64]);
  }

  // Readable while one of them is.
  int fd() const { return epoll_.get(); }

 private:
  // Descriptors that epoll reports at once: more than exist on a machine with up to 15 devices.
  static constexpr int kReadyMax = 32;

  std::vector<Source> sources_;  // epoll reports a source by its index
  UniqueFd epoll_;
};

}  // namespace osprey::rdma

#endif  // OSPREY_RDMA_VERBS_READINESS_SOURCES_H_
