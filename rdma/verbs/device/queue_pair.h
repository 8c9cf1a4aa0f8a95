// The states of a queue pair: made, INIT, RTR, RTS, remote read granted, ERR. Each transition is a
// named set of attributes.
//
// Osprey makes the queue pairs itself instead of by rdma_create_qp, because librdmacm would move
// those itself. On the client it repeats INIT just before RTR, with the kernel's access flags.
// Those grant REMOTE_WRITE to every queue pair, and REMOTE_READ and ATOMIC to all that ask for
// READs. That undoes flags set after rdma_create_qp. With our own queue pairs, rdma_cm reports
// CONNECT_RESPONSE, we move the queue pair, and rdma_establish answers.

#ifndef OSPREY_RDMA_VERBS_DEVICE_QUEUE_PAIR_H_
#define OSPREY_RDMA_VERBS_DEVICE_QUEUE_PAIR_H_

#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>

#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "rdma/verbs/device/device.h"
#include "rdma/verbs/device/objects.h"

namespace osprey::rdma {

// Segments of one READ (ReadRequest has two).
inline constexpr uint32_t kSegmentsMax = 2;

// Local ACK timeout, 4.096 us << 14 = 67 ms. With the retries below, a dead peer is detected in
// half a second. With rdma_cm's own choice, 19, one lost packet is a stall of 2.2 s. A value below
// 14 mistakes a busy network for a dead one.
inline constexpr uint8_t kAckTimeoutExponent = 14;
// Retransmissions before a queue pair breaks. 7 would be the most, but means forever on soft-RoCE.
inline constexpr uint8_t kRetries = 6;
// The same for a receiver that is not ready. Credits prevent that case; 7 means forever.
inline constexpr uint8_t kReceiverNotReadyRetries = 6;
// Code of the delay that a sender receives when no receive is posted: 14 is 1.28 ms. rdma_cm leaves
// 0: 655 ms.
inline constexpr uint8_t kReceiverNotReadyTimer = 14;
// READs that one queue pair requests to have on the wire. No device grants more (16 on NVIDIA's,
// 128 on soft-RoCE).
inline constexpr uint8_t kReadDepthMax = 128;
// Requested inline bytes of a SEND, which the device need not fetch: enough for a request with a
// small key and value. A device that cannot grant it is asked for less.
inline constexpr uint32_t kInlineBytesWanted = 256;

// The required attributes of each transition of a reliable connection. No more are set, as
// rdma_init_qp_attr's own masks differ by kernel.
inline constexpr int kInitMask =
    IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;
inline constexpr int kReceiveMask = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
                                    IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC |
                                    IBV_QP_MIN_RNR_TIMER;
inline constexpr int kSendMask = IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
                                 IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC;

struct QueuePairShape {
  uint32_t sends = 0;     // work requests: SENDs and READs
  uint32_t receives = 0;  // work requests
};

struct NewQueuePair {
  QueuePair queue_pair;
  uint32_t inline_bytes_max = 0;  // as granted by the device
};

// In the state RESET. Errors: RESOURCE_EXHAUSTED, INTERNAL.
absl::StatusOr<NewQueuePair> CreateQueuePair(const VerbsDevice& device, ibv_cq* completions,
                                             const QueuePairShape& shape);

// READs on the wire at once, as agreed by the two sides.
struct ReadDepth {
  uint8_t initiator = 0;  // ours
  uint8_t responder = 0;  // the peer's, for which our device needs resources
};
// The depth to request.
ReadDepth WantedReadDepth(const VerbsDevice& device);

// The parameters of rdma_connect and rdma_accept, with `bytes` of private data at `data`, which must
// outlive them.
rdma_conn_param ConnectParameters(const void* data, uint8_t bytes, const ReadDepth& depth,
                                  const ibv_qp* queue_pair);

// RESET to INIT, without any remote access. REQUIRES: the id has a device (address resolved, or a
// request).
absl::Status MoveToInit(ibv_qp* queue_pair, rdma_cm_id* id);

// INIT to RTR to RTS. REQUIRES: the id has the peer's request or response. Still no remote access.
absl::Status MoveToReady(ibv_qp* queue_pair, rdma_cm_id* id, const ReadDepth& depth);

// Allows the peer to READ memory whose key it has. REQUIRES: RTS.
absl::Status GrantRemoteRead(ibv_qp* queue_pair);

// From any state. Posted work completes as flushed, and no work is executed any more.
void MoveToError(ibv_qp* queue_pair);

}  // namespace osprey::rdma

#endif  // OSPREY_RDMA_VERBS_DEVICE_QUEUE_PAIR_H_
