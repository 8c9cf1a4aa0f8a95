#include "rdma/verbs/readiness_sources.h"

#include <cerrno>

#include "rdma/verbs/device/objects.h"

namespace osprey::rdma {

absl::Status ReadinessSources::Open() {
  epoll_.reset(epoll_create1(EPOLL_CLOEXEC));
  return epoll_.valid() ? absl::OkStatus() : VerbsError("epoll_create1", errno);
}

absl::Status ReadinessSources::Watch(int fd, Source source) {
  epoll_event event = {};
  event.events = EPOLLIN;
  event.data.u64 = sources_.size();
  if (epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) != 0)
    return VerbsError("epoll_ctl", errno);
  source.fd = fd;
  sources_.push_back(source);
  return absl::OkStatus();
}

void ReadinessSources::PauseAccept(bool hold) {
  for (size_t i = 0; i < sources_.size(); ++i) {
    const Source& source = sources_[i];
    if (source.kind != Source::Kind::kCm && source.kind != Source::Kind::kMigrated) continue;
    epoll_event event = {};
    if (!hold) event.events = EPOLLIN;
    event.data.u64 = i;
    (void)epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, source.fd, &event);  // needs no memory
  }
}

}  // namespace osprey::rdma
