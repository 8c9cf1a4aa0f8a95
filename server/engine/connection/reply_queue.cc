#include "server/engine/connection/reply_queue.h"

#include <algorithm>
#include <cassert>

namespace osprey::server {
namespace {

// Dropped bytes are moved out when all, or this many, are dropped: rarely, and before they cost
// much memory.
constexpr size_t kDroppedBytesMax = 64 << 10;

}  // namespace

void ReplyQueue::Grow(size_t bytes) { bytes_.resize(std::max(2 * bytes_.size(), end_ + bytes)); }

void ReplyQueue::Append(absl::Span<const rdma::FrameBytes> pieces) {
  if (rdma::HeaderOf(pieces.front()).sequence == 0) ++lone_frames_;
  size_t bytes = 0;
  for (rdma::FrameBytes piece : pieces) bytes += piece.size();
  std::byte* to = AppendReply(bytes);
  for (rdma::FrameBytes piece : pieces) to = std::copy(piece.begin(), piece.end(), to);
}

ReplyQueue::Slice ReplyQueue::FirstOf(rdma::FrameBytes all, size_t bytes_max) const {
  const rdma::FrameHeader first = rdma::HeaderOf(all);
  size_t bytes = first.length;
  size_t count = 1;
  assert(bytes <= bytes_max);
  while (first.sequence != 0 && count < frames_ && count < rdma::kBatchFramesMax) {
    const rdma::FrameHeader next = rdma::HeaderOf(all.subspan(bytes));
    if (next.sequence == 0 || sizeof(rdma::FrameHeader) + bytes + next.length > bytes_max) break;
    bytes += next.length;
    ++count;
  }
  return {all.first(bytes), count};
}

void ReplyQueue::DropFirst(const Slice& slice) {
  assert(slice.count < frames_);
  if (lone_frames_ > 0 && rdma::HeaderOf(slice.bytes).sequence == 0) --lone_frames_;
  frames_ -= slice.count;
  first_ += slice.bytes.size();
  if (first_ < kDroppedBytesMax) return;
  std::copy(bytes_.begin() + static_cast<ptrdiff_t>(first_),
            bytes_.begin() + static_cast<ptrdiff_t>(end_), bytes_.begin());
  end_ -= first_;
  first_ = 0;
}

}  // namespace osprey::server
