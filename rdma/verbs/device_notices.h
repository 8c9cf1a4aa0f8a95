// The asynchronous events of devices (device/async.h), as one VerbsTransport handles them.

#ifndef OSPREY_RDMA_VERBS_DEVICE_NOTICES_H_
#define OSPREY_RDMA_VERBS_DEVICE_NOTICES_H_

#include <memory>

#include "absl/status/status.h"
#include "rdma/verbs/connection_ending.h"
#include "rdma/verbs/device/async.h"
#include "rdma/verbs/event_output.h"
#include "rdma/verbs/transport_state.h"

namespace osprey::rdma {

class DeviceNotices {
 public:
  // REQUIRES: the arguments outlive the result.
  DeviceNotices(VerbsTransportState& state, EventOutput& events, ConnectionEnding& ending)
      : state_(state), events_(events), ending_(ending) {}
  ~DeviceNotices();
  DeviceNotices(const DeviceNotices&) = delete;
  DeviceNotices& operator=(const DeviceNotices&) = delete;

  // From here on notices arrive.
  absl::Status Open();
  // Readable while notices wait.
  int fd() const { return inbox_->fd(); }
  // Handles those that wait.
  void Handle();
  // Reports the first lost device.
  void OnDeviceLost();

 private:
  void OnNotice(const DeviceNotice& notice);

  VerbsTransportState& state_;
  EventOutput& events_;
  ConnectionEnding& ending_;
  std::unique_ptr<DeviceInbox> inbox_;
  bool device_lost_ = false;
};

}  // namespace osprey::rdma

#endif  // OSPREY_RDMA_VERBS_DEVICE_NOTICES_H_
