#include "rdma/verbs/device/async.h"

#include <algorithm>

namespace osprey::rdma {
namespace {

// Events read in one call. More stay in the kernel, and the descriptor stays readable.
constexpr int kEventsPerCollect = 64;

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
    for (DeviceInbox* inbox : inboxes_)
      (void)inbox->Put([&] { return absl::StatusOr<DeviceNotice>(notice); });
  }
}

}  // namespace osprey::rdma
