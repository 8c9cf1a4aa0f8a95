#include "rdma/verbs/device/queue_pair.h"

#include <algorithm>
#include <cerrno>

#include "absl/strings/str_cat.h"

namespace osprey::rdma {
namespace {

// The attributes that rdma_cm has for `state`: path, peer, sequence numbers.
absl::StatusOr<ibv_qp_attr> AttributesFor(rdma_cm_id* id, ibv_qp_state state) {
  ibv_qp_attr attributes = {};
  attributes.qp_state = state;
  int ignored_mask = 0;
  if (rdma_init_qp_attr(id, &attributes, &ignored_mask) != 0) {
    return VerbsError(absl::StrCat("rdma_init_qp_attr to state ", static_cast<int>(state)), errno);
  }
  return attributes;
}

absl::Status Modify(ibv_qp* queue_pair, ibv_qp_attr& attributes, int mask, absl::string_view step) {
  const int error = ibv_modify_qp(queue_pair, &attributes, mask);
  return error == 0 ? absl::OkStatus() : VerbsError(absl::StrCat("ibv_modify_qp to ", step), error);
}

}  // namespace

absl::StatusOr<NewQueuePair> CreateQueuePair(const VerbsDevice& device, ibv_cq* completions,
                                             const QueuePairShape& shape) {
  int error = 0;
  // A device's largest inline size cannot be queried: too much is EINVAL (or ENOMEM). So each try
  // asks for less.
  for (const uint32_t inline_bytes : {kInlineBytesWanted, kInlineBytesWanted / 4, 0U}) {
    ibv_qp_init_attr wanted = {};
    wanted.send_cq = completions;
    wanted.recv_cq = completions;
    wanted.qp_type = IBV_QPT_RC;
    wanted.cap.max_send_wr = shape.sends;
    wanted.cap.max_recv_wr = shape.receives;
    wanted.cap.max_send_sge = kSegmentsMax;
    wanted.cap.max_recv_sge = 1;
    wanted.cap.max_inline_data = inline_bytes;
    NewQueuePair result;
    result.queue_pair.reset(ibv_create_qp(device.domain.get(), &wanted));
    error = errno;
    if (result.queue_pair != nullptr) {
      result.inline_bytes_max = wanted.cap.max_inline_data;
      return result;
    }
  }
  return VerbsError(
      absl::StrCat("ibv_create_qp with ", shape.sends, " sends and ", shape.receives, " receives"),
      error);
}

ReadDepth WantedReadDepth(const VerbsDevice& device) {
  const auto clamp = [](int device_max) {
    return static_cast<uint8_t>(std::clamp(device_max, 0, static_cast<int>(kReadDepthMax)));
  };
  return {clamp(device.attributes.max_qp_init_rd_atom), clamp(device.attributes.max_qp_rd_atom)};
}

rdma_conn_param ConnectParameters(const void* data, uint8_t bytes, const ReadDepth& depth,
                                  const ibv_qp* queue_pair) {
  rdma_conn_param parameters = {};
  parameters.private_data = data;
  parameters.private_data_len = bytes;
  parameters.initiator_depth = depth.initiator;
  parameters.responder_resources = depth.responder;
  parameters.retry_count = kRetries;
  parameters.rnr_retry_count = kReceiverNotReadyRetries;
  parameters.qp_num = queue_pair->qp_num;
  return parameters;
}

absl::Status MoveToInit(ibv_qp* queue_pair, rdma_cm_id* id) {
  absl::StatusOr<ibv_qp_attr> attributes = AttributesFor(id, IBV_QPS_INIT);
  if (!attributes.ok()) return attributes.status();
  attributes->qp_access_flags = 0;  // rdma_cm would have granted REMOTE_WRITE
  return Modify(queue_pair, *attributes, kInitMask, "INIT");
}

absl::Status MoveToReady(ibv_qp* queue_pair, rdma_cm_id* id, const ReadDepth& depth) {
  absl::StatusOr<ibv_qp_attr> attributes = AttributesFor(id, IBV_QPS_RTR);
  if (!attributes.ok()) return attributes.status();
  attributes->max_dest_rd_atomic = depth.responder;
  attributes->min_rnr_timer = kReceiverNotReadyTimer;
  if (absl::Status status = Modify(queue_pair, *attributes, kReceiveMask, "RTR"); !status.ok())
    return status;

  attributes = AttributesFor(id, IBV_QPS_RTS);
  if (!attributes.ok()) return attributes.status();
  attributes->max_rd_atomic = depth.initiator;
  attributes->timeout = kAckTimeoutExponent;
  attributes->retry_cnt = kRetries;
  attributes->rnr_retry = kReceiverNotReadyRetries;
  return Modify(queue_pair, *attributes, kSendMask, "RTS");
}

absl::Status GrantRemoteRead(ibv_qp* queue_pair) {
  ibv_qp_attr attributes = {};
  attributes.qp_access_flags = IBV_ACCESS_REMOTE_READ;
  return Modify(queue_pair, attributes, IBV_QP_ACCESS_FLAGS, "remote read access");
}

void MoveToError(ibv_qp* queue_pair) {
  ibv_qp_attr attributes = {};
  attributes.qp_state = IBV_QPS_ERR;
  // It can fail only if the device is gone; the queue pair then executes nothing either.
  (void)ibv_modify_qp(queue_pair, &attributes, IBV_QP_STATE);
}

}  // namespace osprey::rdma
