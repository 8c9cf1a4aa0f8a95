#include "rdma/verbs/device_notices.h"

#include <infiniband/verbs.h>

#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "rdma/errors.h"
#include "rdma/transport.h"
#include "rdma/verbs/connection.h"
#include "rdma/verbs/link.h"

namespace osprey::rdma {

DeviceNotices::~DeviceNotices() {
  if (inbox_ != nullptr) state_.shared.async.Unsubscribe(inbox_.get());
}

absl::Status DeviceNotices::Open() {
  absl::StatusOr<std::unique_ptr<DeviceInbox>> inbox = DeviceInbox::Create(kNoticesMax);
  if (!inbox.ok()) return inbox.status();
  inbox_ = *std::move(inbox);
  state_.shared.async.Subscribe(inbox_.get());
  return absl::OkStatus();
}

void DeviceNotices::Handle() {
  for (const DeviceNotice& notice : inbox_->Take()) OnNotice(notice);
}

void DeviceNotices::OnNotice(const DeviceNotice& notice) {
  VerbsConnection* connection = nullptr;
  state_.connections.ForEach([&](VerbsConnection& candidate) {
    if (candidate.link == nullptr || candidate.link->queue_pair() == nullptr) return;
    const bool same = candidate.link->device().context == notice.device &&
                      candidate.link->queue_pair()->qp_num == notice.queue_pair;
    if (same) connection = &candidate;
  });
  switch (notice.type) {
    case IBV_EVENT_DEVICE_FATAL:
      return OnDeviceLost();
    case IBV_EVENT_QP_FATAL:
    case IBV_EVENT_QP_REQ_ERR:
    case IBV_EVENT_QP_ACCESS_ERR:
    case IBV_EVENT_PATH_MIG_ERR:
      if (connection != nullptr) {
        ending_.Break(*connection, PeerGoneError(absl::StrCat("its queue pair failed (",
                                                              ibv_event_type_str(notice.type), ", ",
                                                              connection->peer, ")")));
      }
      return;
    case IBV_EVENT_CQ_ERR:
      // Impossible, as room is reserved. Treats all connections of the device as broken.
      state_.connections.ForEach([&](VerbsConnection& candidate) {
        if (candidate.link == nullptr || candidate.link->device().context != notice.device) return;
        ending_.Break(candidate, absl::InternalError("a completion queue overran"));
      });
      return;
    default:
      // VerbsTransport::OnFrame does what COMM_EST would. Connections over a port that goes down end by their own
      // timers, unless it comes back before. The rest (LIDs, GIDs, subnet managers, shared receive
      // queues) does not affect connections that are up.
      return;
  }
}

void DeviceNotices::OnDeviceLost() {
  if (device_lost_) return;
  device_lost_ = true;
  events_.Queue(Event::Kind::kDeviceLost, ConnectionId::kNone,
                absl::UnavailableError("an RDMA device is being removed, or has failed"));
}

}  // namespace osprey::rdma
