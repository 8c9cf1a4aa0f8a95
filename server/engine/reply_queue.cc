#include "server/engine/reply_queue.h"

#include <cassert>
#include <cstring>

namespace osprey::server {
namespace {

// Dropped bytes are moved out when all, or this many, are dropped: rarely, and before they cost
// much memory.
constexpr size_t kDroppedBytesMax = 64 << 10;

rdma::FrameHeader HeaderAt(rdma::FrameBytes bytes) {
  rdma::FrameHeader header;
  assert(bytes.size() >= sizeof(header));
  std::memcpy(&header, bytes.data(), sizeof(header));
  return header;
}

}  // namespace

void ReplyQueue::Append(absl::Span<const rdma::FrameBytes> pieces) {
  for (rdma::FrameBytes piece : pieces) bytes_.insert(bytes_.end(), piece.begin(), piece.end());
  ++frames_;
}

ReplyQueue::Slice ReplyQueue::Next(size_t bytes_max) const {
  assert(!empty());
  const rdma::FrameBytes all = rdma::FrameBytes(bytes_).subspan(first_);
  const rdma::FrameHeader first = HeaderAt(all);
  size_t bytes = first.length;
  size_t count = 1;
  assert(bytes <= bytes_max);
  while (first.sequence != 0 && count < frames_ && count < rdma::kBatchFramesMax) {
    const rdma::FrameHeader next = HeaderAt(all.subspan(bytes));
    if (next.sequence == 0 || sizeof(rdma::FrameHeader) + bytes + next.length > bytes_max) break;
    bytes += next.length;
    ++count;
  }
  return {all.first(bytes), count};
}

void ReplyQueue::Drop(const Slice& slice) {
  assert(slice.count <= frames_);
  frames_ -= slice.count;
  first_ += slice.bytes.size();
  if (frames_ == 0) return Clear();
  if (first_ < kDroppedBytesMax) return;
  bytes_.erase(bytes_.begin(), bytes_.begin() + static_cast<ptrdiff_t>(first_));
  first_ = 0;
}

void ReplyQueue::Clear() {
  bytes_.clear();
  first_ = frames_ = 0;
}

}  // namespace osprey::server
