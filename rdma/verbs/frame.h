// What the verbs transport puts before every frame that it SENDs, little-endian:
//
//   byte  0         2       3          4          8
//         +---------+-------+----------+----------+----------------+
//         | credits | flags | reserved |  length  | frame …        |
//         |   u16   |  u8   |  u8 = 0  |   u32    | `length` bytes |
//         +---------+-------+----------+----------+----------------+
//
// `credits` returns credits to the receiver of this envelope, which may send as many more frames.
//
// Why a SEND always finds a receive posted (this transport has no RNR retries). Let R be the
// receive credits that side A announced to its peer B in the connect data.
//   - A posts R + kControlReceives receives before B can send anything.
//   - A data frame of B uses one credit. A returns the credit only after it has posted the receive
//     again. So at most R data frames are in flight or not returned.
//   - A control frame uses no credit, hence the reserve. B sends a credits-only frame only when it
//     owes at least half of the credits of B's own receives (CreditsOwedMax). A cannot earn those
//     credits twice before it has received them, so at most 2 such frames hold all credits. A posts
//     a control frame's receive again before it uses the credits that the frame returned. So at
//     most 2 are in flight, and 1 disconnect notice: 3 in all.

#ifndef OSPREY_RDMA_VERBS_FRAME_H_
#define OSPREY_RDMA_VERBS_FRAME_H_

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "absl/status/statusor.h"
#include "rdma/transport.h"

namespace osprey::rdma {

// Values of FrameEnvelope::flags; a frame has none or one of them.
inline constexpr uint8_t kEnvelopeCreditsOnly = 1;       // no frame follows; credits is not 0
inline constexpr uint8_t kEnvelopeDisconnectNotice = 2;  // no frame follows; the sender disconnects

struct FrameEnvelope {
  uint16_t credits = 0;  // frames
  uint8_t flags = 0;
  uint8_t reserved = 0;
  uint32_t length = 0;  // bytes of the frame that follows
};
static_assert(std::is_trivially_copyable_v<FrameEnvelope>);
static_assert(sizeof(FrameEnvelope) == 8);
static_assert(offsetof(FrameEnvelope, credits) == 0);
static_assert(offsetof(FrameEnvelope, flags) == 2);
static_assert(offsetof(FrameEnvelope, reserved) == 3);
static_assert(offsetof(FrameEnvelope, length) == 4);

// Receives beyond the credits: two credits-only frames and one disconnect notice (see above).
inline constexpr uint32_t kControlReceives = 3;

// A side that owes its peer this many credits, of `receive_credits` in all, sends a credits-only
// frame.
constexpr uint32_t CreditsOwedMax(uint32_t receive_credits) { return (receive_credits + 1) / 2; }

// Parses the envelope of a peer's SEND; `received` is the whole message. It checks everything
// before it uses any of it. Errors: INVALID_ARGUMENT, naming the field.
absl::StatusOr<FrameEnvelope> ParseEnvelope(Bytes received, uint32_t frame_bytes_max);

}  // namespace osprey::rdma

#endif  // OSPREY_RDMA_VERBS_FRAME_H_
