// Builds and parses a Batch (rdma/wire/wire.h): several frames in one.
//
//   +--------------+----------------------+----------------------+---
//   | FrameHeader  | FrameHeader body …   | FrameHeader body …   | …   each inner frame is whole,
//   | opcode Batch | opcode Put, sequence | opcode Get, sequence |     as it would be sent alone
//   +--------------+----------------------+----------------------+---
//
// Pure functions and memory: no transport, no index.

#ifndef OSPREY_RDMA_WIRE_BATCH_H_
#define OSPREY_RDMA_WIRE_BATCH_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "rdma/wire/protocol.h"
#include "rdma/wire/wire.h"

namespace osprey::rdma {

// Puts the inner frames into `frames`, in order, as views into `frame`; 1 to kBatchFramesMax of
// them. ParseHeader accepts the header of each. Each has the Batch's session, and is a request or a
// reply (no Batch, no Hello …). The caller parses the bodies. REQUIRES: ParseHeader(frame) was OK
// and its opcode is kBatch. Errors: INVALID_ARGUMENT; `frames` is then not to be used.
absl::Status ParseBatch(FrameBytes frame, std::vector<FrameBytes>& frames);

// Collects frames of one session until they are sent as one. Keeps its memory from one Batch to the
// next. Not thread-safe.
//
//   FrameBatch batch(limits.frame_bytes_max);
//   if (!batch.Fits(bytes)) { Send(batch.Finish(session)); batch.Clear(); }
//   batch.Append({message.bytes(), key, value});
class FrameBatch {
 public:
  // `bytes_max`: of the frame that Finish returns.
  explicit FrameBatch(size_t bytes_max);

  // True if a frame of this length can be appended. An empty FrameBatch takes any frame of up to
  // bytes_max, since it would travel alone.
  bool Fits(size_t frame_bytes) const;
  // One whole frame, in pieces, which are copied. REQUIRES: Fits.
  void Append(absl::Span<const FrameBytes> pieces);

  bool empty() const { return frames_ == 0; }
  size_t frames() const { return frames_; }
  // Returns the bytes to send: the frame itself if there is one, else a Batch of them. Valid until
  // the next call on this. REQUIRES: !empty().
  FrameBytes Finish(uint64_t session);
  void Clear();

 private:
  const size_t bytes_max_;
  std::vector<std::byte> bytes_;  // room for the Batch's own header, then the frames
  size_t frames_ = 0;
};

}  // namespace osprey::rdma

#endif  // OSPREY_RDMA_WIRE_BATCH_H_
