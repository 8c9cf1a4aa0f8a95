// What a client tells of a hit, so that the server, which sees no GET, knows which keys are in use:
//
//   bit   63  62 61            46 45            38 37                                 0
//        +------+----------------+----------------+------------------------------------+
//        | kind | fingerprint    | partition      | offset / 8, within the partition   |
//        +------+----------------+----------------+------------------------------------+
//
//   kind 1 (WordKind::kSlot)     the key's item was at the offset
//   kind 3 (WordKind::kInline)   the line at the offset held the key itself
//
// It may be old, or a lie: it costs a wrong key some lives, and nothing else.

#ifndef OSPREY_INDEX_ACCESS_HINT_H_
#define OSPREY_INDEX_ACCESS_HINT_H_

#include <cstdint>

#include "index/layout.h"

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

#endif  // OSPREY_INDEX_ACCESS_HINT_H_
