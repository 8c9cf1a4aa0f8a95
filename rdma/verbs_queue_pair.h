// A queue pair's life: made, INIT, RTR, RTS, remote read granted, ERR. Each step is a named set of
// attributes.
//
// The queue pairs are our own and not the CM id's (rdma_create_qp), because librdmacm moves those
// itself: on the client to INIT once more just before RTR, with the kernel's access flags, which
// grant REMOTE_WRITE to every queue pair, and REMOTE_READ and ATOMIC to all that ask for READs.
// Flags that were set anew after rdma_create_qp are undone there. With our own, rdma_cm reports
// CONNECT_RESPONSE, we move the queue pair, and rdma_establish answers.

#ifndef OSPREY_RDMA_VERBS_QUEUE_PAIR_H_
#define OSPREY_RDMA_VERBS_QUEUE_PAIR_H_

#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>

#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "rdma/verbs_device.h"
#include "rdma/verbs_objects.h"

namespace osprey::rdma {

// Segments of one READ (ReadRequest has two).
inline constexpr uint32_t kSegmentsMax = 2;

// Local ACK timeout, 4.096 us << 14 = 67 ms: with the retries below a dead peer is told in half a
// second. rdma_cm's own choice, 19, makes one lost packet a stall of 2.2 s. Less than 14 mistakes a
// busy network for a dead one.
inline constexpr uint8_t kAckTimeoutExponent = 14;
// Retransmissions before a queue pair breaks. 7 would be the most, but it means for ever on
// soft-RoCE.
inline constexpr uint8_t kRetries = 6;
// The same for a receiver that is not ready. Credits see to it that there is none; 7 is for ever.
inline constexpr uint8_t kReceiverNotReadyRetries = 6;
// Code of the delay that a sender is told when no receive is posted: 14 is 1.28 ms. rdma_cm leaves
// 0: 655 ms.
inline constexpr uint8_t kReceiverNotReadyTimer = 14;
// READs that one queue pair asks to have on the wire. Beyond what any device grants (16 on
// NVIDIA's, 128 on soft-RoCE).
inline constexpr uint8_t kReadDepthMax = 128;
// Bytes of a SEND that we would like to go inside its work request, so that the device need not
// fetch them: a request with a small key and value. A device that cannot is asked for less.
inline constexpr uint32_t kInlineBytesWanted = 256;

struct QueuePairShape {
  uint32_t sends = 0;     // work requests: SENDs and READs
  uint32_t receives = 0;  // work requests
};

struct NewQueuePair {
  QueuePair queue_pair;
  uint32_t inline_bytes_max = 0;  // what the device granted
};

// In the state RESET. Errors: RESOURCE_EXHAUSTED, INTERNAL.
absl::StatusOr<NewQueuePair> CreateQueuePair(const VerbsDevice& device, ibv_cq* completions,
                                             const QueuePairShape& shape);

// READs on the wire at once, as the two sides agreed.
struct ReadDepth {
  uint8_t initiator = 0;  // ours
  uint8_t responder = 0;  // the peer's, which our device must remember
};
// What to ask for.
ReadDepth WantedReadDepth(const VerbsDevice& device);

// RESET to INIT, with no remote access whatever. REQUIRES: the id's device is known (address
// resolved, or a request).
absl::Status MoveToInit(ibv_qp* queue_pair, rdma_cm_id* id);

// INIT to RTR to RTS. REQUIRES: the id has the peer's request or response. Still no remote access.
absl::Status MoveToReady(ibv_qp* queue_pair, rdma_cm_id* id, const ReadDepth& depth);

// From now on the peer may READ what it knows the key of. REQUIRES: RTS.
absl::Status GrantRemoteRead(ibv_qp* queue_pair);

// From any state: what is posted comes back flushed, and nothing more is executed.
void MoveToError(ibv_qp* queue_pair);

}  // namespace osprey::rdma

#endif  // OSPREY_RDMA_VERBS_QUEUE_PAIR_H_
