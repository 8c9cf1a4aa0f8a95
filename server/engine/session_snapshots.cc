#include "server/engine/session_snapshots.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cassert>
#include <iterator>
#include <utility>

namespace osprey::server {

SessionSnapshots::SessionSnapshots(uint32_t pollers) {
  for (uint32_t i = 0; i < pollers; ++i) {
    pollers_.push_back(std::make_unique<Poller>());
    pollers_.back()->wake = rdma::UniqueFd(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
  }
}

bool SessionSnapshots::valid() const {
  return std::all_of(pollers_.begin(), pollers_.end(),
                     [](const auto& poller) { return poller->wake.valid(); });
}

absl::optional<std::vector<SessionImage>> SessionSnapshots::Take() {
  std::unique_lock<std::mutex> lock(mutex_);
  images_.clear();
  awaited_ = static_cast<uint32_t>(pollers_.size());
  for (const std::unique_ptr<Poller>& poller : pollers_) {
    poller->wanted = true;
    const uint64_t one = 1;
    // Fails only if the descriptor is readable already.
    [[maybe_unused]] const ssize_t written = write(poller->wake.get(), &one, sizeof(one));
  }
  given_.wait(lock, [this] { return awaited_ == 0 || closed_; });
  if (awaited_ > 0) return absl::nullopt;
  return std::move(images_);
}

void SessionSnapshots::Close() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    closed_ = true;
  }
  given_.notify_all();
}

void SessionSnapshots::Give(uint32_t poller, std::vector<SessionImage> images) {
  uint64_t count = 0;
  [[maybe_unused]] const ssize_t taken = read(pollers_[poller]->wake.get(), &count, sizeof(count));
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (!pollers_[poller]->wanted.exchange(false)) return;
    assert(awaited_ > 0);
    std::move(images.begin(), images.end(), std::back_inserter(images_));
    --awaited_;
  }
  given_.notify_all();
}

}  // namespace osprey::server
