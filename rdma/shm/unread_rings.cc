#include "rdma/shm/unread_rings.h"

#include <utility>

namespace osprey::rdma {

void UnreadRings::Keep(Mapping rings, size_t offset, RingProducer& out) {
  const RingProducer::UnreadSpans unread = out.Unread();
  if (unread.first.bytes == 0) return ReleasePages(rings, 0, rings.size());
  // In the order of the file: the ring to the server, the words of the other, and between the frames.
  // (Frames that begin behind the ring's middle and go on at its start are the second span.)
  const size_t words_end = offset + RingShape::kControlBytes;
  const size_t low_end =
      unread.second.bytes == 0 ? words_end : offset + unread.second.offset + unread.second.bytes;
  ReleasePages(rings, 0, offset);
  ReleasePages(rings, low_end, offset + unread.first.offset);
  ReleasePages(rings, offset + unread.first.offset + unread.first.bytes, rings.size());
  rings_.push_back(std::move(rings));
  if (rings_.size() <= kRingsMax) return;
  ReleasePages(rings_.front(), 0, rings_.front().size());
  rings_.pop_front();
}

}  // namespace osprey::rdma
