// What a server of a cluster says of itself in its region: a beat, by which clients see that it runs,
// and the shard that it serves from the region: none, or one at a time.
//
//   region    0        64        128               4 KiB
//             +--------+---------+-------- … ------+-----------
//             | header | serving | zeros           | directory
//             +--------+---------+-------- … ------+-----------
//
//   serving   0           16     24              32              40            48       56
//             +-----------+------+---------------+---------------+-------------+--------+----------+
//             | record    | beat | loss revision | gain revision | incarnation | shards | reserved |
//             +-----------+------+---------------+---------------+-------------+--------+----------+
//
// It is a record as all others (record.h), so a torn copy is noticed. It has a CPU cache line of its
// own in partition 0, beside the header. A server without a cluster never writes it: there are zeros.

#ifndef OSPREY_INDEX_LAYOUT_SERVING_RECORD_H_
#define OSPREY_INDEX_LAYOUT_SERVING_RECORD_H_

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "absl/types/optional.h"
#include "index/layout/layout.h"
#include "index/layout/partitions.h"

namespace osprey::index {

inline constexpr uint32_t kServingRecordTag = 3;
inline constexpr uint64_t kServingRecordOffset = 64;

// Its meaning. Revisions and beats are the server's own, and rise within an incarnation.
struct ServingState {
  uint64_t beat = 0;
  uint64_t loss_revision = 0;  // changes when the server stops serving shards
  uint64_t gain_revision = 0;  // changes when it begins to
  uint64_t incarnation = 0;    // of the server in its cluster; not of the region. Never 0
  uint64_t shards = 0;         // bit n: the server serves shard n, as its primary

  bool Serves(uint32_t shard) const { return shard < kPartitionsMax && (shards >> shard & 1) != 0; }
  friend bool operator==(const ServingState&, const ServingState&) = default;
};
static_assert(kPartitionsMax <= 64);

struct ServingRecord {
  RecordHeader record;
  ServingState state;
  uint64_t reserved;  // 0
};
static_assert(std::is_trivially_copyable_v<ServingRecord>);
static_assert(sizeof(ServingState) == 40);
static_assert(sizeof(ServingRecord) == 64);
static_assert(offsetof(ServingRecord, state) == 16);
static_assert(offsetof(ServingState, loss_revision) == 8);
static_assert(offsetof(ServingState, gain_revision) == 16);
static_assert(offsetof(ServingState, incarnation) == 24);
static_assert(offsetof(ServingState, shards) == 32);
static_assert(kServingRecordOffset >= sizeof(RegionHeader));
static_assert(kServingRecordOffset + sizeof(ServingRecord) <= kDirectoryOffset);

// What a copy of the record says. nullopt: it is torn, of another region, or none was written. The
// caller READs it again, later. REQUIRES: bytes.size() == sizeof(ServingRecord).
absl::optional<ServingState> ReadServingRecord(ByteSpan bytes, uint64_t region_incarnation);

}  // namespace osprey::index

#endif  // OSPREY_INDEX_LAYOUT_SERVING_RECORD_H_
