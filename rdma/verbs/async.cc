#include "rdma/verbs/async.h"

#include <sys/eventfd.h>

#include <algorithm>
#include <cerrno>
#include <memory>
#include <utility>

#include "rdma/verbs/objects.h"

namespace osprey::rdma {
namespace {

// Events read in one call. More stay in the kernel, and the descriptor stays readable.
constexpr int kEventsPerCollect = 64;

// Bounds the memory of a process that does not poll during a storm of notices (a flapping port).
// Device-wide errors come first in any storm, and connections detect their own errors without
// notices.
constexpr size_t kNoticesMax = 1024;

uint32_t QueuePairOf(const ibv_async_event& event) {
  switch (event.event_type) {
    case IBV_EVENT_QP_FATAL:
    case IBV_EVENT_QP_REQ_ERR:
    case IBV_EVENT_QP_ACCESS_ERR:
    case IBV_EVENT_COMM_EST:
    case IBV_EVENT_SQ_DRAINED:
    case IBV_EVENT_PATH_MIG:
    case IBV_EVENT_PATH_MIG_ERR:
    case IBV_EVENT_QP_LAST_WQE_REACHED:
      return event.element.qp->qp_num;
    default:
      return 0;
  }
}

}  // namespace

absl::StatusOr<std::unique_ptr<DeviceInbox>> DeviceInbox::Create() {
  UniqueFd fd(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
  if (!fd.valid()) return VerbsError("eventfd", errno);
  return std::unique_ptr<DeviceInbox>(new DeviceInbox(std::move(fd)));
}

void DeviceInbox::Put(const DeviceNotice& notice) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (notices_.size() >= kNoticesMax) return;
  notices_.push_back(notice);
  (void)eventfd_write(fd_.get(), 1);
}

std::vector<DeviceNotice> DeviceInbox::Take() {
  const std::lock_guard<std::mutex> lock(mutex_);
  eventfd_t ignored;
  (void)eventfd_read(fd_.get(), &ignored);
  return std::exchange(notices_, {});
}

void AsyncEvents::Subscribe(DeviceInbox* inbox) {
  const std::lock_guard<std::mutex> lock(mutex_);
  inboxes_.push_back(inbox);
}

void AsyncEvents::Unsubscribe(DeviceInbox* inbox) {
  const std::lock_guard<std::mutex> lock(mutex_);
  inboxes_.erase(std::remove(inboxes_.begin(), inboxes_.end(), inbox), inboxes_.end());
}

void AsyncEvents::Collect(ibv_context* device) {
  const std::lock_guard<std::mutex> lock(mutex_);
  for (int i = 0; i < kEventsPerCollect; i++) {
    ibv_async_event event;
    if (ibv_get_async_event(device, &event) != 0) return;
    // The queue pair exists until the event is acknowledged. Afterwards its number may be unused.
    const DeviceNotice notice{device, event.event_type, QueuePairOf(event)};
    ibv_ack_async_event(&event);
    for (DeviceInbox* inbox : inboxes_) inbox->Put(notice);
  }
}

}  // namespace osprey::rdma
