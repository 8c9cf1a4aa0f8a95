// What the pollers of a server share. A poller is an engine on a thread of its own; each has its
// own transports, connections and sessions, and any of them executes any request, under the lock of
// the partition that the key is in.
//
//   poller 0: listens ── kConnectRequest ── Choose ──> its own: Accept
//                                             |
//                                             '──────> another's: Transport::HandOver
//   poller 1, 2, …:                  kConnectRequest, handed over ──> Accept
//
// A session belongs to one poller for life: the low 8 bits of its id say to which. A client that
// comes back for one says so when it asks to connect, by the low 32 bits of the id (the affinity).
//
// What each has counted is reported at the end of each turn in which something happened, or a timer
// was due, so that STATS, answered by any of them, tells of all.

#ifndef OSPREY_SERVER_POLLERS_H_
#define OSPREY_SERVER_POLLERS_H_

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "index/partitions.h"
#include "server/stats.h"

namespace osprey::server {

inline constexpr uint32_t kPollersMax = 64;

// The partitions of a server's region. More than pollers: two that work on keys at random meet in
// one partition of M, and N of them do N * M / (N + M - 1) times as much as one, if locks are all
// that they wait for: with M = N it would be no more than half of what N can do.
inline constexpr uint32_t PartitionsFor(uint32_t pollers) {
  constexpr uint32_t kPerPoller = 4;
  return pollers == 1 ? 1 : std::min(std::bit_ceil(pollers) * kPerPoller, index::kPartitionsMax);
}

// The poller that a session belongs to.
inline constexpr uint32_t PollerOf(uint64_t session_id) { return session_id & 0xff; }
// A session id of poller `poller`, from 64 random bits. Its low 32 bits are not 0, which would be
// no affinity.
inline constexpr uint64_t SessionIdOf(uint64_t random, uint32_t poller) {
  return (random & ~uint64_t{0xff}) | 0x100 | poller;
}

// What one poller tells of itself.
struct PollerReport {
  Counters counters;
  size_t connections = 0;
  size_t sessions = 0;
  size_t sessions_kept = 0;
  uint64_t requests_taken = 0;  // connect requests that it has dealt with, one way or another

  // Of several: sums.
  void Add(const PollerReport& other);
};

// Thread-safe.
class Pollers {
 public:
  // REQUIRES: 1 <= count <= kPollersMax.
  explicit Pollers(uint32_t count);
  Pollers(const Pollers&) = delete;
  Pollers& operator=(const Pollers&) = delete;

  uint32_t count() const { return static_cast<uint32_t>(pollers_.size()); }

  // Who takes a peer that asks with `affinity` (0: any): the poller that it names, if there is one,
  // else the one with the fewest connections. It must then be told Given, unless nothing came of
  // it. One thread: the listener's.
  uint32_t Choose(uint32_t affinity) const;
  void Given(uint32_t poller);

  void Report(uint32_t poller, const PollerReport& report);
  // Its last report.
  PollerReport Last(uint32_t poller) const;
  // The last reports of all but `asking`, together.
  PollerReport SumOfOthers(uint32_t asking) const;

 private:
  // On cache lines of its own: written by one thread in each of its turns.
  struct alignas(128) Poller {
    mutable std::mutex mutex;
    PollerReport report;
    uint64_t given = 0;  // the listener's alone
  };

  std::vector<std::unique_ptr<Poller>> pollers_;
};

}  // namespace osprey::server

#endif  // OSPREY_SERVER_POLLERS_H_
