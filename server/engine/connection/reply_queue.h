// Replies that cannot be sent yet: the client has no credit left for them, or more are about to
// follow. They leave in order; each frame takes as many as fit (a Batch).
//
// The frames are adjacent, as in a Batch, so that many of them are sent with one copy. Pure memory.
// Thread rule: the engine's thread.

#ifndef OSPREY_SERVER_ENGINE_CONNECTION_REPLY_QUEUE_H_
#define OSPREY_SERVER_ENGINE_CONNECTION_REPLY_QUEUE_H_

#include <cassert>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "rdma/wire/protocol.h"

namespace osprey::server {

class ReplyQueue {
 public:
  // Appends one whole frame, whose pieces are copied. The first has the whole header.
  void Append(absl::Span<const rdma::FrameBytes> pieces);
  // Appends a reply of `bytes` bytes, which the caller writes there before the next call on this.
  std::byte* AppendReply(size_t bytes) {
    if (bytes > bytes_.size() - end_) Grow(bytes);
    std::byte* const frame = bytes_.data() + end_;
    end_ += bytes;
    ++frames_;
    return frame;
  }

  // The frames that fit one frame of at most `bytes_max` bytes: `count` of the first ones. For a
  // `count` above one a Batch header goes before them, for which `bytes_max` has space. A frame
  // without a sequence (DisconnectNotice) goes alone. Valid until the next call on this. REQUIRES:
  // !empty(), and no frame is longer than `bytes_max`.
  struct Slice {
    rdma::FrameBytes bytes;
    size_t count = 0;
  };
  Slice Next(size_t bytes_max) const {
    assert(!empty());
    const rdma::FrameBytes all(bytes_.data() + first_, end_ - first_);
    // Mostly all of them fit.
    const bool fit = lone_frames_ == 0 && frames_ <= rdma::kBatchFramesMax &&
                     sizeof(rdma::FrameHeader) + all.size() <= bytes_max;
    return fit ? Slice{all, frames_} : FirstOf(all, bytes_max);
  }
  // Removes frames that were sent.
  void Drop(const Slice& slice) {
    if (slice.count == frames_) return Clear();
    DropFirst(slice);
  }
  void Clear() { first_ = end_ = frames_ = lone_frames_ = 0; }

  bool empty() const { return frames_ == 0; }
  size_t frames() const { return frames_; }

 private:
  void Grow(size_t bytes);
  Slice FirstOf(rdma::FrameBytes all, size_t bytes_max) const;
  void DropFirst(const Slice& slice);

  std::vector<std::byte> bytes_;  // its size is the space there is
  size_t first_ = 0;              // where the first frame starts
  size_t end_ = 0;                // … and the last one ends
  size_t frames_ = 0;
  size_t lone_frames_ = 0;  // of these, frames without a sequence
};

}  // namespace osprey::server

#endif  // OSPREY_SERVER_ENGINE_CONNECTION_REPLY_QUEUE_H_
