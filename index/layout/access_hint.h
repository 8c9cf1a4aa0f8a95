// A client's report of one hit. The server sees no GET, so these hints show it which keys are in
// use:
//
//   bit   63  62 61            46 45            38 37                                 0
//        +------+----------------+----------------+------------------------------------+
//        | kind | fingerprint    | partition      | offset / 8, within the partition   |
//        +------+----------------+----------------+------------------------------------+
//
//   kind 1 (WordKind::kSlot)     the key's item was at the offset
//   kind 3 (WordKind::kInline)   the line at the offset held the key itself
//
// A hint may be stale or forged. It then raises the CLOCK counter of another key, and has no other
// effect.

#ifndef OSPREY_INDEX_LAYOUT_ACCESS_HINT_H_
#define OSPREY_INDEX_LAYOUT_ACCESS_HINT_H_

#include <cstdint>

#include "index/layout/layout.h"

namespace osprey::index {

struct AccessHint {
  WordKind kind = WordKind::kEmpty;
  uint32_t fingerprint = 0;  // of the key's hash
  uint32_t partition = 0;
  uint64_t offset = 0;  // bytes, a multiple of 8

  constexpr uint64_t Pack() const {
    return uint64_t{static_cast<uint8_t>(kind)} << 62 | uint64_t{fingerprint} << 46 |
           uint64_t{partition} << kOffsetBits | offset / kWordBytes;
  }
  static constexpr AccessHint Unpack(uint64_t word) {
    return {KindOf(word), static_cast<uint32_t>(word >> 46 & 65535),
            static_cast<uint32_t>(word >> kOffsetBits & 255), (word & kOffsetMask) * kWordBytes};
  }
};

}  // namespace osprey::index

#endif  // OSPREY_INDEX_LAYOUT_ACCESS_HINT_H_
