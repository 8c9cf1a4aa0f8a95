// The order in which walks visit segments: by the low bits of their keys' hashes, reversed. In this
// order the keys of a segment are neighbours, and so are the halves into which it splits, or which
// merge into it.

#ifndef OSPREY_INDEX_SEGMENTS_SEGMENT_ORDER_H_
#define OSPREY_INDEX_SEGMENTS_SEGMENT_ORDER_H_

#include <cstdint>

#include "index/layout/layout.h"

namespace osprey::index {

// A position has 32 bits; the end is the one after.
inline constexpr uint64_t kSegmentPositionEnd = uint64_t{1} << 32;

// The positions that one segment of that depth covers.
constexpr uint64_t SegmentInterval(uint32_t depth) { return kSegmentPositionEnd >> depth; }

// From a position to hash bits, and back.
constexpr uint32_t ReverseBits(uint32_t bits) {
  bits = (bits >> 1 & 0x55555555) | (bits & 0x55555555) << 1;
  bits = (bits >> 2 & 0x33333333) | (bits & 0x33333333) << 2;
  bits = (bits >> 4 & 0x0f0f0f0f) | (bits & 0x0f0f0f0f) << 4;
  return __builtin_bswap32(bits);
}
static_assert(ReverseBits(1) == 0x80000000 && ReverseBits(0x12345678) == 0x1e6a2c48);

}  // namespace osprey::index

#endif  // OSPREY_INDEX_SEGMENTS_SEGMENT_ORDER_H_
