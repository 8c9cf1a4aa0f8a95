// Asynchronous events of the devices, passed from the Domain, which owns the devices, to the
// Transports, each on its own thread. The first Transport to see a device's descriptor readable
// reads the events, and puts a copy of each into every Transport's inbox. The events are rare, so
// the code is not optimised.

#ifndef OSPREY_RDMA_VERBS_DEVICE_ASYNC_H_
#define OSPREY_RDMA_VERBS_DEVICE_ASYNC_H_

#include <infiniband/verbs.h>

#include <cstdint>
#include <mutex>
#include <vector>

#include "absl/status/statusor.h"
#include "rdma/inbox.h"

namespace osprey::rdma {

struct DeviceNotice {
  ibv_context* device = nullptr;
  ibv_event_type type = IBV_EVENT_DEVICE_FATAL;
  uint32_t queue_pair = 0;  // number, for events of a queue pair; else 0
};

// The notices of one Transport. When full it drops further ones.
using DeviceInbox = Inbox<DeviceNotice>;

// Bounds the memory of a process that does not poll during a storm of notices (a flapping port).
// Device-wide errors come first in any storm, and connections detect their own errors without
// notices.
inline constexpr size_t kNoticesMax = 1024;

// Thread-safe.
class AsyncEvents {
 public:
  void Subscribe(DeviceInbox* inbox);
  void Unsubscribe(DeviceInbox* inbox);

  // Reads and acknowledges the events of `device`, if any, and distributes them. Bounded. REQUIRES:
  // the device's async descriptor is nonblocking.
  void Collect(ibv_context* device);

 private:
  std::mutex mutex_;
  std::vector<DeviceInbox*> inboxes_;
};

}  // namespace osprey::rdma

#endif  // OSPREY_RDMA_VERBS_DEVICE_ASYNC_H_
