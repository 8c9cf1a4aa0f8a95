#include "server/engine/reply_queue.h"

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

ReplyQueue::Slice ReplyQueue::Next(size_t bytes_max) const {
  assert(!empty());
  const rdma::FrameBytes all(bytes_.data() + first_, end_ - first_);
  // Mostly all of them fit.
  if (lone_frames_ == 0 && frames_ <= rdma::kBatchFramesMax &&
      sizeof(rdma::FrameHeader) + all.size() <= bytes_max)
    return {all, frames_};
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

void ReplyQueue::Drop(const Slice& slice) {
  assert(slice.count <= frames_);
  if (lone_frames_ > 0 && rdma::HeaderOf(slice.bytes).sequence == 0) --lone_frames_;
  frames_ -= slice.count;
  first_ += slice.bytes.size();
  if (frames_ == 0) return Clear();
  if (first_ < kDroppedBytesMax) return;
  std::copy(bytes_.begin() + static_cast<ptrdiff_t>(first_),
            bytes_.begin() + static_cast<ptrdiff_t>(end_), bytes_.begin());
  end_ -= first_;
  first_ = 0;
}

void ReplyQueue::Clear() { first_ = end_ = frames_ = lone_frames_ = 0; }

}  // namespace osprey::server
