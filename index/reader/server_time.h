// Bounds of the server's clock at a reader, and their meaning for an expiry (R8).
//
// A key expires at a time of the server's clock, which a reader can only estimate. A reader has two
// bounds for each READ. Server time was not below `earliest_ns` when the READ was posted, and not
// above `latest_ns` when it had completed. An accepted item was the key's at an instant between
// them:
//
//   earliest                    latest
//   -----+-------------------------+------> server time
//        |<- the item was current ->|
//    E <= earliest   earliest < E <= latest   E > latest
//    expired         perhaps                  alive
//
// Pure functions: they read no clock.

#ifndef OSPREY_INDEX_READER_SERVER_TIME_H_
#define OSPREY_INDEX_READER_SERVER_TIME_H_

#include <cstdint>

#include "index/layout/test_hooks.h"

namespace osprey::index {

// Nanoseconds of server time. The defaults are no bounds.
struct ServerTimeBounds {
  uint64_t earliest_ns = 0;
  uint64_t latest_ns = UINT64_MAX;
};

enum class Life { kAlive, kExpired, kUnknown };

// The state of an item with this expiry (0: none), at the instant at which it was current.
constexpr Life LifeAt(uint64_t expiry_ns, const ServerTimeBounds& time) {
  if (expiry_ns == 0) return Life::kAlive;
  if (IsMutant(Mutant::kPresentByEarliestTime) && time.earliest_ns < expiry_ns) return Life::kAlive;
  if (IsMutant(Mutant::kAbsentByLatestTime) && time.latest_ns >= expiry_ns) return Life::kExpired;
  if (time.earliest_ns >= expiry_ns) return Life::kExpired;
  return time.latest_ns < expiry_ns ? Life::kAlive : Life::kUnknown;
}

}  // namespace osprey::index

#endif  // OSPREY_INDEX_READER_SERVER_TIME_H_
