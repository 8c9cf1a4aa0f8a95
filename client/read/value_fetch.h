// One long value that arrives in pieces (client/read/value_reads.h): where it goes and how much has
// arrived.

#ifndef OSPREY_CLIENT_READ_VALUE_FETCH_H_
#define OSPREY_CLIENT_READ_VALUE_FETCH_H_

#include <cassert>
#include <cstdint>

namespace osprey::client {

struct ValueFetch {
  // The limit of READs of one value under way: enough to keep the wire busy while a piece is
  // hashed.
  static constexpr uint32_t kPiecesMax = 4;

  uint64_t offset = 0;  // of the value's first byte, in the region
  uint64_t length = 0;  // bytes
  uint64_t posted = 0;  // bytes that READs were posted for
  uint64_t taken = 0;   // bytes that were hashed and are in their place

  // Pieces that were posted and not yet taken, in order, by their numbers in ValueReads.
  uint32_t pieces[kPiecesMax] = {};
  uint32_t first = 0;
  uint32_t count = 0;

  uint32_t front() const { return pieces[first % kPiecesMax]; }
  uint32_t piece(uint32_t i) const { return pieces[(first + i) % kPiecesMax]; }
  void PushBack(uint32_t piece) {
    assert(count < kPiecesMax);
    pieces[(first + count++) % kPiecesMax] = piece;
  }
  void PopFront() {
    assert(count > 0);
    ++first;
    --count;
  }
};

}  // namespace osprey::client

#endif  // OSPREY_CLIENT_READ_VALUE_FETCH_H_
