// Asynchronous events of the devices, on their way from the Domain, which owns the devices, to the
// Transports, each of which belongs to a thread of its own. Whichever Transport sees a device's
// descriptor readable reads the events, and hands a copy of each to every Transport's inbox. They
// are rare: nothing here is fast.

#ifndef OSPREY_RDMA_VERBS_ASYNC_H_
#define OSPREY_RDMA_VERBS_ASYNC_H_

#include <infiniband/verbs.h>

#include <cstdint>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "rdma/unique_fd.h"

namespace osprey::rdma {

struct DeviceNotice {
  ibv_context* device = nullptr;
  ibv_event_type type = IBV_EVENT_DEVICE_FATAL;
  uint32_t queue_pair = 0;  // number, for events of a queue pair; else 0
};

// Thread-safe.
class DeviceInbox {
 public:
  static absl::StatusOr<std::unique_ptr<DeviceInbox>> Create();

  // Readable while there is something to take.
  int fd() const { return fd_.get(); }
  void Put(const DeviceNotice& notice);
  std::vector<DeviceNotice> Take();

 private:
  explicit DeviceInbox(UniqueFd fd) : fd_(std::move(fd)) {}

  UniqueFd fd_;
  std::mutex mutex_;
  std::vector<DeviceNotice> notices_;
};

// Thread-safe.
class AsyncEvents {
 public:
  void Subscribe(DeviceInbox* inbox);
  void Unsubscribe(DeviceInbox* inbox);

  // Reads what `device` has to tell, if anything, acknowledges it and hands it out. Bounded.
  // REQUIRES: the device's async descriptor is nonblocking.
  void Collect(ibv_context* device);

 private:
  std::mutex mutex_;
  std::vector<DeviceInbox*> inboxes_;
};

}  // namespace osprey::rdma

#endif  // OSPREY_RDMA_VERBS_ASYNC_H_
