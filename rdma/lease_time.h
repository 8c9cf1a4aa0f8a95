// How long rights and leases last, by clocks that differ.
//
// Each machine measures by a clock of its own, which gains or loses at most a tenth (adjtimex allows
// that; systemd-timesyncd slews by up to 5 %). So the holder of a right counts it as shorter, and a
// server that waits for its end as longer. Instants of two machines are never compared.

#ifndef OSPREY_RDMA_LEASE_TIME_H_
#define OSPREY_RDMA_LEASE_TIME_H_

#include <cstdint>

#include "absl/time/time.h"

namespace osprey {

inline constexpr int64_t kClockDriftPercent = 10;

// How long a right of `ttl` lasts by its holder's clock, and by the clock of a watcher.
inline absl::Duration HeldFor(absl::Duration ttl) { return ttl * (100 - kClockDriftPercent) / 100; }
inline absl::Duration AwaitedFor(absl::Duration ttl) {
  return ttl * (100 + kClockDriftPercent) / 100;
}

// Of a client, on what it READs from a server (client/lease/reader_lease.h): its length, and how
// often the server beats for it (server/cluster/beat/serving_beat.h).
constexpr absl::Duration kReaderLease() { return absl::Milliseconds(400); }
constexpr absl::Duration kBeatInterval() { return absl::Milliseconds(50); }

}  // namespace osprey

#endif  // OSPREY_RDMA_LEASE_TIME_H_
